package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Interface is what ExpandPorts has to know of one.
type Interface struct {
	Name string
	// Plain: Ethernet that leads to hosts by itself. A glob passes over what is not: loopback, bridges, VLAN devices.
	Plain bool
}

// ExpandPorts returns the names that patterns stand for among the interfaces there are, each once, in the order of patterns. A
// name stands for itself, whether there is such an interface yet or not. A glob that matches nothing names no port.
func ExpandPorts(patterns []string, interfaces []Interface) ([]string, error) {
	var names []string
	for _, pattern := range patterns {
		found := false
		for _, i := range interfaces {
			match, err := path.Match(pattern, i.Name)
			if err != nil {
				return nil, fmt.Errorf("ports: %q is no glob: %w", pattern, err)
			}
			if i.Name != pattern && (!match || !i.Plain) {
				continue
			}
			found = true
			if !slices.Contains(names, i.Name) {
				names = append(names, i.Name)
			}
		}
		switch isGlob := strings.ContainsAny(pattern, `*?[\`); {
		case !found && isGlob:
			return nil, fmt.Errorf("ports: no interface matches %s; ip link lists those there are, and one that comes later needs its name here", pattern)
		case !found && !slices.Contains(names, pattern):
			names = append(names, pattern)
		}
	}
	return names, nil
}
