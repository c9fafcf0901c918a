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
	// Plain says that this is an Ethernet interface of its own, and not loopback, a bridge, a VLAN
	// device or another one above others. A glob matches only plain interfaces.
	Plain bool
	Lower []string // the lower devices of a bond, which stands for them
}

// ExpandPorts returns the names of the interfaces that match patterns, each once, in the order of
// patterns. A pattern without wildcards is a name: it is returned even if the interface does not
// exist yet. The name of a bond stands for its lower devices, if it has some. A glob that matches
// no interface is an error.
func ExpandPorts(patterns []string, interfaces []Interface) ([]string, error) {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, pattern := range patterns {
		found := false
		for _, i := range interfaces {
			match, _ := path.Match(pattern, i.Name) // the config refuses patterns that are not valid
			if i.Name != pattern && (!match || !i.Plain) {
				continue
			}
			found = true
			for _, lower := range i.Lower {
				add(lower)
			}
			if len(i.Lower) == 0 {
				add(i.Name)
			}
		}
		switch {
		case !found && IsGlob(pattern):
			return nil, fmt.Errorf("ports: no interface matches %s; change it (ip link lists the interfaces), "+
				"or write the name of an interface that is created later", pattern)
		case !found:
			add(pattern)
		}
	}
	return names, nil
}

// IsGlob reports whether a pattern of ports has wildcards. Else it is a name.
func IsGlob(pattern string) bool { return strings.ContainsAny(pattern, `*?[\`) }

// MatchesAny reports whether a name matches one of the patterns of ports.
func MatchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}
