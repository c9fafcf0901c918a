// Package matrix declares what a group can be: its dimensions, the values of each, and which values
// do not go together. One value of each dimension is a cell. The package also chooses the cells to
// try: as few as it can, so that each pair of values is in one of them, and each three values of
// which one is an event.
//
// verify/sim runs cells in simulation, test/matrix runs them on the real daemon in namespaces. The
// package knows neither of them, and not what a group is.
package matrix

// Runners is a set of what runs cells.
type Runners uint8

const (
	Simulation Runners = 1 << iota // verify/sim
	Namespaces                     // test/matrix
	Everywhere = Simulation | Namespaces
)

// Value is one value of a dimension.
type Value struct {
	Name string
	Runs Runners
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
	{"addressing", append(everywhere("group-ip", "virtual-qpn"), Value{Name: "switch-ip", Runs: Namespaces},
		// hosts: programs on the hosts make the group, by the box's API for hosts.
		Value{Name: "hosts", Runs: Namespaces},
		// cm: programs connect to the group's IP by RDMA-CM.
		Value{Name: "cm", Runs: Namespaces},
		// perftest: a client of perftest runs against the servers of the receivers.
		Value{Name: "perftest", Runs: Namespaces})},
	{"family", everywhere("ipv4", "ipv6")},
	// Real tags need a kernel with 8021q: test/softroce/vlan_test.go.
	{"tag", append(everywhere("none"), Value{Name: "vlan", Runs: Simulation})},
	{"mtu", everywhere("1024", "256", "4096")},
	{"engine", everywhere("auto", "afxdp")},
	{"repair", everywhere("local", "off")},
	// In a tree all boxes merge. With a quorum and one source only the root does, and others relay.
	{"ack", everywhere("all", "quorum")},
	{"nak", everywhere("hold", "lower")},
	{"on-fatal", everywhere("fail", "evict")},
	{"evict", everywhere("no", "yes")},
	// With guard and force all members have role both, and another one becomes the source midway.
	{"source-switch", everywhere("none", "guard", "force")},
	{"regions", everywhere("one", "none", "many", "table")},
	// shared: all receivers are behind one port and share a leg. Their edges die and come back.
	{"edge", everywhere("none", "shared")},
	{"shape", append(everywhere("one-box", "tree"),
		Value{Name: "two-workers", Runs: Namespaces}, Value{Name: "stick", Runs: Namespaces},
		// standby: two boxes on a switch, of which one has the address and the MAC; etcd: one box
		// whose groups are in etcd.
		Value{Name: "standby", Runs: Namespaces}, Value{Name: "etcd", Runs: Namespaces},
		// racks: a tree where boxes behind one port of another box share a leg, and map it. Real
		// ones are in test/branches.
		Value{Name: "racks", Runs: Simulation})},
	// legs: what the receivers get; uplink: what the source sends; answers: what both ends answer.
	{"loss", everywhere("none", "legs", "uplink", "answers")},
	// restart: the daemon is asked to end; switch: one more member becomes the source; cut: of a
	// receiver's cable, and back; refused: a receiver refuses a WRITE, because its memory is gone;
	// region: another region comes to the memory and leaves it; route-moved: the box gets another
	// MAC, and in simulated trees that merge receivers move to other boxes; upgrade: a restart with
	// what an older release has stored (a package is upgraded in test/softroce/system_test.go);
	// source-dies: its host says nothing any more, and another one connects.
	{EventDimension, append(everywhere(NoEvent, "restart", "kill", "switch", "join", "leave", "cut", "refused", "region"),
		Value{Name: "port-renamed", Runs: Namespaces}, Value{Name: "route-moved", Runs: Everywhere},
		Value{Name: "upgrade", Runs: Namespaces}, Value{Name: "source-dies", Runs: Namespaces})},
}

func everywhere(names ...string) (values []Value) {
	for _, n := range names {
		values = append(values, Value{Name: n, Runs: Everywhere})
	}
	return values
}

// Rule says why some values do not go together, and at which places.
type Rule struct {
	Of    string // values of several dimensions, written as a cell is: addressing=virtual-qpn shape=tree
	Where Runners
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
	{"addressing=virtual-qpn shape=stick", Namespaces, // the sentence names addresses and the port
		"so the source's packets would not come by this box; write the ip of a receiver behind another port, or use addressing: group-ip"},
	{"addressing=virtual-qpn shape=standby", Namespaces,
		"so the source's packets would not come by this box; write the ip of a receiver behind another port, or use addressing: group-ip"},
	{"regions=table shape=tree", Everywhere,
		"memory is a table and some members are behind other boxes, which learn of memory only by the group file; list the regions there"},
	{"ack=quorum source-switch=force shape=tree", Namespaces,
		"source-switch is force, ack is a quorum and some members are behind other boxes, which would leave receivers behind that the quorum counts; use source-switch: guard"},
	{"repair=off source-switch=force", Everywhere, "source-switch is force, which needs repair, and repair is off; use repair: local"},
	{"repair=off ack=quorum source-switch=guard", Everywhere,
		"ack is a quorum and several members may send, which needs repair, and repair is off; use repair: local"},
	{"regions=table shape=etcd", Namespaces, refusesTable},
	{"regions=table shape=standby", Namespaces, refusesTable},
}

const refusesTable = "memory is a table, which only this box would have, and with store: etcd all boxes share what they know of a group; " +
	"list the regions in the file"

const refusesBoth = "has role both, but with addressing virtual-qpn the group is found by the address of its only source; " +
	"use addressing: group-ip, or give it role: receiver"

// Void are combinations without a meaning: one value removes what the other is about.
var Void = []Rule{
	{"source-switch=none event=switch", Everywhere, "no member but the source may send"},
	{"addressing=hosts regions=table", Namespaces, "a program on a host says where its memory is when it joins"},
	{"addressing=group-ip shape=standby", Namespaces, "the address that moves from box to box is the box's own, which is switch-ip"},
	{"addressing=hosts shape=standby", Namespaces, "groups that hosts make have an address of their own, and the one that moves is the box's"},
	{"shape=standby event=route-moved", Namespaces, "the MAC of boxes that stand by is a virtual one, which goes with the address"},
	{"addressing=cm source-switch=guard", Namespaces, oneSource},
	{"addressing=cm source-switch=force", Namespaces, oneSource},
	{"addressing=cm event=join", Namespaces, "a source connects to all receivers at one time"},
	{"addressing=cm event=upgrade", Namespaces, "nothing is stored of connections, which end with the daemon"},
	{"addressing=cm regions=many", Namespaces, "the private data of a receiver names one region; more come to a table"},
	{"addressing=cm shape=standby", Namespaces, "connections have an address of their own, and the one that moves is the box's"},
	{"addressing=perftest ack=quorum", Namespaces, "a client waits for every server; ctl/perftest/config_test.go has the sentence that refuses a quorum"},
	{"addressing=perftest source-switch=guard", Namespaces, oneClient},
	{"addressing=perftest source-switch=force", Namespaces, oneClient},
	{"addressing=perftest event=join", Namespaces, "a client has connected to all servers before it sends"},
	{"addressing=perftest event=upgrade", Namespaces, "nothing is stored of runs, which end with the daemon"},
	{"addressing=perftest regions=many", Namespaces, oneKey},
	{"addressing=perftest regions=table", Namespaces, oneKey},
	{"addressing=perftest event=region", Namespaces, oneKey},
	{"addressing=perftest shape=standby", Namespaces, "runs have an address of their own, and the one that moves is the box's"},
	{"addressing=group-ip event=source-dies", Namespaces, staysForSource},
	{"addressing=virtual-qpn event=source-dies", Namespaces, staysForSource},
	{"addressing=switch-ip event=source-dies", Namespaces, staysForSource},
	{"addressing=hosts event=source-dies", Namespaces, "another source takes its turn, which is source-switch"},
	{"regions=none event=region", Everywhere, "a group without memory has no region that could come"},
	{"edge=shared repair=off", Everywhere, ownCopies},
	{"edge=shared regions=table", Everywhere, ownCopies},
	{"edge=shared shape=tree", Everywhere, ownCopies},
	{"edge=shared shape=racks", Simulation, "edges are at hosts, and in a tree only boxes share"},
	{"addressing=virtual-qpn shape=racks", Simulation, "some members are behind other boxes, where that address does not lead to the box"},
	{"repair=off shape=racks", Simulation, ownCopies},
	{"regions=table shape=racks", Simulation, ownCopies},
	{"ack=quorum shape=racks", Simulation, passesOn},
	{"source-switch=guard shape=racks", Simulation, passesOn},
	{"source-switch=force shape=racks", Simulation, passesOn},
}

const (
	ownCopies      = "each receiver gets copies of its own: edges map for four regions at most, and repair has to be on"
	passesOn       = "each box gets copies of its own: boxes pass a part of the group on, or a member behind another box may send"
	oneSource      = "a connection has one source, and other sources have connections of their own"
	oneClient      = "a run has one client, and other clients wait for their turn"
	oneKey         = "a server's key line names one region, and never another one"
	staysForSource = "the group's file names its source, and the group waits for it"
)

// Left are values that go together and are left out at a place, because what runs cells there
// cannot express them.
var Left = []Rule{
	{"addressing=hosts regions=none", Namespaces, "who names no memory is sent messages, and cells only WRITE"},
	{"addressing=cm regions=none", Namespaces, "without memory a source SENDs, and cells only WRITE"},
	{"addressing=cm shape=tree", Namespaces, "its boxes have no service there; ctl/rdmacm_test.go has receivers behind other boxes"},
	{"addressing=perftest regions=none", Namespaces, "a receiver without an R_Key is of ib_send_bw, and cells only WRITE"},
	{"addressing=perftest shape=tree", Namespaces, "its boxes take no lines of config; test/softroce/tree_test.go has servers behind other boxes"},
	{"addressing=hosts shape=tree", Namespaces, "the hosts of a second box reach only their own box there; test/softroce/host_test.go has hosts of several boxes"},
	{"regions=table event=join", Namespaces, "a member joins a group with a table only while that has no regions, which the refusal says"},
	{"shape=tree source-switch=guard", Simulation, firstSends},
	{"shape=tree source-switch=force", Simulation, firstSends},
	{"shape=tree event=switch", Simulation, firstSends},
	{"edge=shared event=region", Simulation, "there come more regions than edges map"},
	{"edge=shared shape=one-box", Namespaces, portEach},
	{"edge=shared shape=two-workers", Namespaces, portEach},
	{"edge=shared shape=etcd", Namespaces, portEach},
	{"edge=shared shape=standby", Namespaces, "edges ask one box, and no other one when the address moves"},
}

const firstSends = "in cells no other member of a simulated tree sends; verify/sim/treeturn_test.go has their turns"

const portEach = "the box has a port for each host there, so no two receivers are behind one; sticks have shared legs"

const onlyByCM = "only connections and runs outlive their source, and in cells they have memory and one box"

// Missing are values that go together, but not with every other value in one cell: each place can
// run only some of these combinations.
var Missing = []Rule{
	{"shape=tree tag=vlan", Everywhere, "members take turns only in trees of daemons, and the lab in namespaces has no tags"},
	{"regions=table event=join", Everywhere, "on a real box the member is refused while the group has regions, and the sentence says so"},
	{"addressing=hosts regions=none", Everywhere, "who names no memory is sent messages (test/softroce/host_test.go), and cells only WRITE"},
	{"addressing=cm regions=none", Everywhere, "without memory a source SENDs (test/softroce/rdmacm_test.go), and cells only WRITE"},
	{"addressing=cm shape=tree", Everywhere, "ctl/rdmacm_test.go has receivers behind other boxes"},
	{"addressing=perftest regions=none", Everywhere, "without an R_Key it is ib_send_bw (test/softroce/perftest_test.go), and cells only WRITE"},
	{"addressing=perftest shape=tree", Everywhere, "test/softroce/tree_test.go has servers behind other boxes"},
	{"event=source-dies regions=none", Everywhere, onlyByCM},
	{"event=source-dies shape=tree", Everywhere, onlyByCM},
	{"addressing=hosts shape=tree", Everywhere, "test/softroce/host_test.go has hosts of several boxes"},
	{"edge=shared shape=one-box", Everywhere, "some events and addressings are only real, and a real box has a port for each host, except for a stick"},
	{"edge=shared shape=two-workers", Everywhere, portEach},
	{"edge=shared shape=etcd", Everywhere, portEach},
	{"edge=shared shape=standby", Everywhere, "edges ask one box, and no other one when the address moves"},
	{"edge=shared tag=vlan event=region", Everywhere, "simulated memory changes by more regions than edges map, and the lab in namespaces has no tags"},
	{"edge=shared addressing=virtual-qpn", Everywhere, "with one port, as a stick has it, that addressing is refused, and some events are only real"},
}
