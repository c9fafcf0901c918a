// Package matrix declares what a group can be: its dimensions, the values of each, and which values
// do not go together. One value of each dimension is a cell. The package also chooses the cells to
// try: as few as it can, so that each pair of values is in one of them, and each three values of
// which one is an event.
//
// verify/sim runs cells in simulation. The package does not know it, nor what a group is.
package matrix

// Place is where a cell can be run: a set.
type Place uint8

const (
	Simulation Place = 1 << iota // verify/sim
	Namespaces                   // the real daemon, in network namespaces
	Everywhere = Simulation | Namespaces
)

// Value is one value of a dimension.
type Value struct {
	Name string
	Runs Place
}

// Dimension is one choice. The first value is the default: a cell's line leaves it out.
type Dimension struct {
	Name   string
	Values []Value
}

// EventDimension is the name of the dimension whose values get all threes.
const EventDimension = "event"

// NoEvent is the value of that dimension with which nothing happens.
const NoEvent = "none"

// Dimensions is the declaration.
var Dimensions = []Dimension{
	{"addressing", []Value{
		{"group-ip", Everywhere}, {"virtual-qpn", Everywhere}, {"switch-ip", Namespaces},
		{"cm", Namespaces}, {"perftest", Namespaces}, {"hosts", Namespaces},
	}},
	{"family", []Value{{"ipv4", Everywhere}, {"ipv6", Everywhere}}},
	{"tag", []Value{{"none", Everywhere}, {"vlan", Everywhere}}},
	{"mtu", []Value{{"1024", Everywhere}, {"256", Everywhere}, {"4096", Everywhere}}},
	{"engine", []Value{{"auto", Everywhere}, {"afxdp", Everywhere}}},
	{"repair", []Value{{"local", Everywhere}, {"off", Everywhere}}},
	{"ack", []Value{{"all", Everywhere}, {"quorum", Everywhere}}},
	{"nak", []Value{{"hold", Everywhere}, {"lower", Everywhere}}},
	{"on-fatal", []Value{{"fail", Everywhere}, {"evict", Everywhere}}},
	{"evict", []Value{{"no", Everywhere}, {"yes", Everywhere}}},
	{"speak", []Value{{"off", Everywhere}, {"rnr", Everywhere}}},
	// With guard and force all members have role both, and another one becomes the source midway.
	{"source-switch", []Value{{"none", Everywhere}, {"guard", Everywhere}, {"force", Namespaces}}},
	{"regions", []Value{{"one", Everywhere}, {"none", Everywhere}, {"many", Everywhere}, {"table", Everywhere}}},
	{"shape", []Value{
		{"one-box", Everywhere}, {"two-workers", Namespaces}, {"stick", Namespaces}, {"tree", Everywhere},
		{"standby", Namespaces}, {"etcd", Namespaces},
	}},
	// legs: what the receivers get; uplink: what the source sends; answers: what both ends answer.
	{"loss", []Value{{"none", Everywhere}, {"legs", Everywhere}, {"uplink", Everywhere}, {"answers", Everywhere}}},
	{EventDimension, []Value{
		{NoEvent, Everywhere}, {"restart", Everywhere}, {"kill", Everywhere},
		{"switch", Everywhere},                                           // one more member becomes the source
		{"join", Everywhere}, {"leave", Everywhere}, {"cut", Everywhere}, // of a receiver's cable, and back
		{"refused", Everywhere}, // a receiver refuses a WRITE, because its memory is gone
		{"region", Everywhere},  // other regions come to the memory and leave it
		{"port-renamed", Namespaces}, {"route-moved", Everywhere}, {"upgrade", Namespaces},
	}},
}

// Rule says why some values do not meet, where they do not.
type Rule struct {
	Of    string // values of several dimensions, written as a cell is: addressing=virtual-qpn shape=tree
	Where Place
	Why   string
}

// Refused are the values of which creating a group, or a daemon's start, says in one sentence that
// they do not go together. Why is the sentence, without the part that names line and member.
// docs/reference.md lists them.
var Refused = []Rule{
	{"addressing=virtual-qpn source-switch=guard", Everywhere, refusesBoth},
	{"addressing=virtual-qpn source-switch=force", Everywhere, refusesBoth},
	{"addressing=virtual-qpn shape=tree", Everywhere,
		"addressing is virtual-qpn and some members are behind other boxes, where that address does not lead to the box; use addressing: group-ip"},
	{"regions=table shape=tree", Everywhere,
		"memory is a table and some members are behind other boxes, which learn of memory only by the group file; list the regions there"},
	{"regions=table shape=etcd", Everywhere,
		"memory is a table, which only this box would have, and with store: etcd all boxes share what they know of a group; list the regions in the file"},
}

const refusesBoth = "has role both, but with addressing virtual-qpn the group is found by the address of its only source; " +
	"use addressing: group-ip, or give it role: receiver"

// Void are values that name nothing: one of them takes away what the other is about.
var Void = []Rule{
	{"source-switch=none event=switch", Everywhere, "no member but the source may send"},
	{"regions=none event=region", Everywhere, "a group without memory has no region that could come"},
}

// Left are values that go together and are left out at a place, because what runs cells there
// cannot express them.
var Left = []Rule{
	{"source-switch=guard event=restart", Simulation, "the simulated switch does not store whose turn it was"},
	{"source-switch=guard event=kill", Simulation, "the simulated switch does not store whose turn it was"},
	{"shape=tree ack=quorum", Simulation, "simulated trees wait for all"},
	{"shape=tree evict=yes", Simulation, "the members of simulated trees stay the same"},
	{"shape=tree source-switch=guard", Simulation, "the members of simulated trees stay the same"},
	{"shape=tree event=join", Simulation, "the members of simulated trees stay the same"},
	{"shape=tree event=leave", Simulation, "the members of simulated trees stay the same"},
	{"shape=tree event=refused", Simulation, "the members of simulated trees stay the same"},
	{"shape=tree event=region", Simulation, "the members of simulated trees stay the same"},
	{"shape=tree event=switch", Simulation, "the members of simulated trees stay the same"},
}
