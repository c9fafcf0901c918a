package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Interface is a network interface, as far as ExpandPorts needs to know it.
type Interface struct {
	Name string
	// Plain says that this is an Ethernet interface of its own, and not loopback, a bridge or a
	// VLAN device. A glob matches only plain interfaces.
	Plain bool
}

// ExpandPorts returns the names of the interfaces that match patterns, each once, in the order of
// patterns. A pattern without wildcards is a name: it is returned even if the interface does not
// exist yet. A glob that matches no interface is an error.
func ExpandPorts(patterns []string, interfaces []Interface) ([]string, error) {
	var names []string
	for _, pattern := range patterns {
		found := false
		for _, i := range interfaces {
			match, _ := path.Match(pattern, i.Name) // the config refuses patterns that are not valid
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
			return nil, fmt.Errorf("ports: no interface matches %s; change it (ip link lists the interfaces), "+
				"or write the name of an interface that is created later", pattern)
		case !found && !slices.Contains(names, pattern):
			names = append(names, pattern)
		}
	}
	return names, nil
}
