package mft

import "github.com/rocast/rocast/roce"

// Tagged is the priority of the VLAN tags of all frames that leave in a VLAN by a port.
type Tagged struct {
	Port     PortID
	VLANs    VLANs
	Priority roce.TagPriority
}

// Priority returns the priority of the tags of frames on a leg of g.
func (g *Group) Priority(l *Leg) roce.TagPriority {
	if len(g.Tagged) == 0 { // most have none
		return 0
	}
	vlans := l.VLANs()
	for _, t := range g.Tagged {
		if t.Port == l.Port && t.VLANs == vlans {
			return t.Priority
		}
	}
	return 0
}
