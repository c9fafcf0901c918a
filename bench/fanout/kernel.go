package main

import "fmt"

// startBridge lets the kernel's bridge flood. No host has the MAC to which the frames are sent, so
// the bridge sends each frame to all other ports.
func startBridge(b *bed) (stop func() error, err error) {
	commands := [][]string{{"ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"}}
	for i := range b.ports {
		commands = append(commands, []string{"ip", "link", "set", fmt.Sprintf("p%d", i), "master", "br0"},
			[]string{"bridge", "link", "set", "dev", fmt.Sprintf("p%d", i), "learning", "off"})
	}
	commands = append(commands, []string{"ip", "link", "set", "br0", "mtu", fmt.Sprint(b.mtu), "up"},
		// The bridge would deliver frames to the port's own MAC to the box.
		[]string{"ip", "link", "set", "p0", "address", "02:00:00:00:00:99"})
	return nothing, b.exec(commands)
}

// startMirred lets the traffic control of the kernel copy each frame to the three ports.
func startMirred(b *bed) (stop func() error, err error) {
	return nothing, b.exec([][]string{
		{"tc", "qdisc", "add", "dev", "p0", "clsact"},
		{"tc", "filter", "add", "dev", "p0", "ingress", "protocol", "all", "u32", "match", "u32", "0", "0",
			"action", "mirred", "egress", "mirror", "dev", "p1",
			"action", "mirred", "egress", "mirror", "dev", "p2",
			"action", "mirred", "egress", "redirect", "dev", "p3"},
	})
}

func nothing() error { return nil }

func (b *bed) exec(commands [][]string) error {
	for _, c := range commands {
		if _, err := b.box.Exec(c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}
