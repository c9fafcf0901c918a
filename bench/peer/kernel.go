package peer

import (
	"fmt"
	"strconv"
)

// kernelForwarder is a forwarder in the kernel that a few commands set up. It ends with the box.
func kernelForwarder(s Setting, commands [][]string) (*Forwarder, error) {
	if err := s.Lab.Run(commands); err != nil {
		return nil, err
	}
	return &Forwarder{stop: func() error { return nil }}, nil
}

// startBridge makes the kernel's bridge flood what the source sends, because no port has that MAC.
// The receivers answer to the source's MAC, which the bridge knows.
func startBridge(s Setting) (*Forwarder, error) {
	const bridge = "flood0"
	commands := [][]string{{"ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0"}}
	for _, p := range s.Lab.PortNames() {
		commands = append(commands,
			[]string{"ip", "link", "set", p, "master", bridge},
			[]string{"bridge", "link", "set", "dev", p, "learning", "off"})
	}
	return kernelForwarder(s, append(commands,
		[]string{"bridge", "fdb", "add", mac(s.HostMACs[0]), "dev", s.Lab.Ports[0].Name, "master", "static"},
		[]string{"ip", "link", "set", bridge, "mtu", strconv.Itoa(s.Lab.MTU), "up"}))
}

// startMirred copies each frame of the source to all receivers' ports except the last one, which
// gets the frame itself. It redirects each frame of a receiver to the source's port.
func startMirred(s Setting) (*Forwarder, error) {
	ports := s.Lab.PortNames()
	last := len(ports) - 1
	commands := mirred(ports[0], ports[1:last], ports[last])
	for _, p := range ports[1:] {
		commands = append(commands, mirred(p, nil, ports[0])...)
	}
	return kernelForwarder(s, commands)
}

// mirred copies what arrives at a port to other ports, and redirects it to one more.
func mirred(from string, copyTo []string, redirectTo string) [][]string {
	filter := []string{"tc", "filter", "add", "dev", from, "ingress", "protocol", "all", "u32", "match", "u32", "0", "0"}
	for _, to := range copyTo {
		filter = append(filter, "action", "mirred", "egress", "mirror", "dev", to)
	}
	filter = append(filter, "action", "mirred", "egress", "redirect", "dev", redirectTo)
	return [][]string{{"tc", "qdisc", "add", "dev", from, "clsact"}, filter}
}

func mirredCannot(s Setting) string {
	const maxActions = 32 // TCA_ACT_MAX_PRIO
	if s.Receivers > maxActions {
		return fmt.Sprintf("a tc filter takes at most %d actions", maxActions)
	}
	return oneWorker(s)
}
