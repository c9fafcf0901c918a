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

// startBridge makes the kernel's bridge flood: the source sends to a MAC that no port has.
func startBridge(s Setting) (*Forwarder, error) {
	const bridge = "flood0"
	commands := [][]string{{"ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0"}}
	for _, p := range s.Lab.PortNames() {
		commands = append(commands,
			[]string{"ip", "link", "set", p, "master", bridge},
			[]string{"bridge", "link", "set", "dev", p, "learning", "off"})
	}
	return kernelForwarder(s, append(commands,
		[]string{"ip", "link", "set", bridge, "mtu", strconv.Itoa(s.Lab.MTU), "up"}))
}

// startMirred copies each frame to all ports except the last one, which gets the frame itself.
func startMirred(s Setting) (*Forwarder, error) {
	ports := s.Lab.PortNames()
	filter := []string{"tc", "filter", "add", "dev", ports[0], "ingress", "protocol", "all", "u32", "match", "u32", "0", "0"}
	for i, p := range ports[1:] {
		how := "mirror"
		if i == len(ports)-2 {
			how = "redirect"
		}
		filter = append(filter, "action", "mirred", "egress", how, "dev", p)
	}
	return kernelForwarder(s, [][]string{{"tc", "qdisc", "add", "dev", ports[0], "clsact"}, filter})
}

func mirredCannot(s Setting) string {
	const maxActions = 32 // TCA_ACT_MAX_PRIO
	if s.Receivers > maxActions {
		return fmt.Sprintf("a tc filter takes at most %d actions", maxActions)
	}
	return oneWorker(s)
}
