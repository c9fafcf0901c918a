package refused

import (
	"fmt"
	"net/netip"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// Whose says whose trouble refused frames are.
type Whose uint8

const (
	// Nobody: such frames belong to merging, or tell nothing that is not told elsewhere.
	Nobody Whose = iota
	// Member: the member that sends them does not get on. If no member of the group sends them, a
	// stranger does.
	Member
	// Stranger: a host that is no member sends them, or it is not known who does. Only a note says
	// so: it must not make a group or the box look ill.
	Stranger
	// Box: this box is not set up for what comes.
	Box
)

// Row is what is known of the frames that are refused for one reason.
type Row struct {
	Whose Whose
	// Ends: the sender's QP ends with the NAK that it hears, so no further frame may come.
	Ends bool
	// Stands: the sender's QP ends when it has repeated what nobody answers, so the trouble stands
	// although no further frame may come.
	Stands bool
	// Says is a sentence that names the trouble and the mend.
	Says func(c *Case) string
}

// Case is one case of a Row: what the member's QP should have, and the last frame. Of frames that
// no member sent only the frame is known.
type Case struct {
	Group     string
	PeerIP    netip.Addr // the peer of the member's QP
	PeerQPN   roce.QPN
	PSN       roce.PSN // the first PSN of the group file that the frames do not fit: psn or sendPSN
	MTU       int
	Port      string // by which the frame came
	OfService bool   // the group is one of rocast cm or perftest, which has no group file
	Lacks     string // who lacks something of the source, for all that is known, and what; "": nobody
	Frame     dataplane.Refused
}

func says(text string) func(*Case) string { return func(*Case) string { return text } }

// Of returns the row of a reason of the data path.
func Of(r dataplane.Reason) Row { return reasons[r] }

var reasons = map[dataplane.Reason]Row{
	of(feedback.Duplicate):   {},
	of(feedback.Swallowed):   {},
	of(feedback.Held):        {},
	of(feedback.Absorbed):    {},
	of(feedback.Merged):      {},
	of(feedback.Forwarded):   {},
	of(feedback.Resent):      {},
	of(feedback.Filtered):    {},
	of(feedback.Evicted):     {},
	of(feedback.Behind):      {},
	of(feedback.CNPPassed):   {},
	of(feedback.CNPFiltered): {},
	of(feedback.Repaired):    {},
	of(feedback.Gap):         {},
	dataplane.Relayed:        {},

	of(feedback.OutsideWindow): {Whose: Member, Stands: true, Says: func(c *Case) string {
		return fmt.Sprintf("its packets have PSNs far from what the group has sent: its first PSN is not %d, as the group file says; create its QP and the group again", c.PSN)
	}},
	of(feedback.BeyondSent): {Whose: Member, Stands: true, Says: func(c *Case) string {
		return fmt.Sprintf("it answers packets that it was never sent: the PSN that its QP expects first is not %d, the psn in the group file; create its QP and the group again", c.PSN)
	}},
	of(feedback.Stale): {Whose: Member, Stands: true, Says: func(c *Case) string {
		return fmt.Sprintf("it answers only older packets than it is sent: the PSN that its QP expects first is below %d, the psn in the group file; create its QP and the group again", c.PSN)
	}},
	of(feedback.Refused): {Whose: Member, Ends: true, Says: says("it sent a READ, an atomic or another request that no group carries, and the NAK invalid " +
		"request has ended its QP; let its program WRITE or SEND, and create its QP and the group again")},
	dataplane.RefusedMemory: {Whose: Member, Ends: true, Says: says("its WRITE went to memory that the group does not have, and the NAK remote access has " +
		"ended its QP; compare its VA, length and R_Key with memory: in the group file, and create its QP and the group again")},

	// Those that take part are named with what has become of them.
	of(feedback.NotTakingPart): {},
	dataplane.SourceAsks:       {},
	dataplane.GroupGone:        {}, // for a moment behind the end of each group

	dataplane.WrongPort: {Whose: Member, Says: func(c *Case) string {
		return fmt.Sprintf("its frames come by %s, and the way to it is by another port; compare its cable with its route (rocast group show %s)", c.Port, c.Group)
	}},
	dataplane.WrongVLAN: {Whose: Member, Says: func(c *Case) string {
		return fmt.Sprintf("its frames come in another VLAN than the one in which frames to it leave, or without their tag; compare its VLAN with its route, "+
			"and let the port leave tags where they are: ethtool -K %s rxvlan off txvlan off", c.Port)
	}},
	dataplane.WrongQPN: {Whose: Member, Says: func(c *Case) string {
		return fmt.Sprintf("its frames are for QPN %d, and the peer of its QP is QPN %d; connect its QP to that one", c.Frame.QPN, c.PeerQPN)
	}},
	dataplane.WrongDestination: {Whose: Member, Says: func(c *Case) string {
		return fmt.Sprintf("its frames are for another address than %v, which is the peer of its QP; connect its QP to that one", c.PeerIP)
	}},
	dataplane.UnknownQPN: {Whose: Member, Says: func(c *Case) string {
		if c.Group == "" {
			return fmt.Sprintf("no group has QPN %d at %v; connect the QP to the ip and qpn that rocast group ls shows", c.Frame.QPN, c.Frame.To)
		}
		return fmt.Sprintf("its packets are for QPN %d, and the peer of its QP is QPN %d; connect its QP to that one", c.Frame.QPN, c.PeerQPN)
	}},
	dataplane.NotSource:     {Whose: Member, Stands: true, Says: notSource},
	dataplane.SourceBlocked: {Whose: Member, Says: waitsForItsTurn},
	dataplane.SourceWaits:   {Whose: Member, Says: waitsForItsTurn},
	dataplane.SourceOutOfStep: {Whose: Member, Stands: true, Says: func(c *Case) string {
		return fmt.Sprintf("its first packet as the source does not have the PSN that it sends next, which was %d at the start (sendPSN); create its QP and the group again", c.PSN)
	}},
	dataplane.OverMTU: {Whose: Member, Stands: true, Says: func(c *Case) string {
		return fmt.Sprintf("its packets have more payload than the group's path MTU %d; give its QP that path MTU, or write its own as mtu: into the group file", c.MTU)
	}},
	dataplane.HopLimitExceeded: {Whose: Member, Stands: true, Says: says("its packets come with a hop limit (TTL) of 1 or 0; give its QP a higher one, such as 64")},
	dataplane.BadICRC: {Whose: Member, Says: func(c *Case) string {
		return fmt.Sprintf("its packets arrive damaged; look at its cable and at the errors of ethtool -S %s", c.Port)
	}},
	dataplane.UnknownOpcode:        {Whose: Member, Says: says(notRC)},
	dataplane.WrongTransport:       {Whose: Member, Says: says(notRC)},
	dataplane.UnmergeableResponse:  {Whose: Member, Says: says("it answers READs or atomics, which no group asks for; its QP is another one's peer, so give it a QP of its own for the group")},
	dataplane.ConnectionManagement: {Whose: Member, Says: says("its program connects by RDMA-CM, and nothing answers that at a group IP of group files; use rocast cm up there")},

	dataplane.NotMember:   {Whose: Stranger, Says: says("it sends data to a group of which it is no member; add it to the group file, or stop its program")},
	dataplane.NotReceiver: {Whose: Stranger, Says: says("it answers a group of which it is no receiver; add it to the group file, or stop its program")},
	dataplane.Malformed:   {Whose: Stranger, Says: says("frames to groups are no valid RoCEv2 frames; rocast capture shows who sends them")},
	dataplane.HandoffFull: {Whose: Stranger, Says: says("a forwarding thread does not keep up with what another one receives for it; fewer workers, or more CPUs for them, may help")},
}

// of is an outcome of merging as a reason.
func of(o feedback.Outcome) dataplane.Reason { return dataplane.Reason(o) }

func notSource(c *Case) string {
	switch {
	case c.Frame.Read:
		return "it sends READ or atomic requests, and a receiver of a group only gets what the source sends; " +
			"let its program use another connection for them, straight to the other host"
	case c.OfService:
		return "it sends data, and a connection through rocast cm or perftest carries only what the host sends that connects; " +
			"let its program use another connection for its own data, straight to the other host"
	}
	return "it sends data, and its role does not let it; write role: both for it, and create the group again"
}

func waitsForItsTurn(c *Case) string {
	if c.Lacks != "" {
		return "it waits for its turn as the source until every receiver has what the source before it sent; " + c.Lacks
	}
	return "it waits for its turn as the source until the source before it has ended its last message, and until that is stored; the log says if it cannot be"
}

const notRC = "its packets are not those of an RC queue pair, which is all that a group carries; create its QP as RC"

// Answered says what mends it that a receiver has answered a packet with a fatal NAK.
func Answered(with roce.Syndrome) string {
	switch with {
	case roce.NAKRemoteAccess:
		return "compare its regions in the group file (va, length, rkey) with the memory that its program has registered for remote writing" + again
	case roce.NAKInvalidRequest:
		return "let its QP have the group's path MTU and remote write access, and post receive buffers as large as what is sent" + again
	case roce.NAKRemoteOperational:
		return "its QP cannot go on by itself: read the errors of its completions; their buffers may not be registered any more" + again
	}
	return "this is no answer of an RC queue pair: compare the type of its QP and its NIC's firmware" + again
}

const again = ", and create its QP and the group again"

// OfVerdict returns the row of a counter of the classifier.
func OfVerdict(counter string) (row Row, known bool) {
	row, known = verdicts[counter]
	return row, known
}

var verdicts = map[string]Row{
	"classifier-pass_truncated":    {},
	"classifier-pass_not_ip":       {},
	"classifier-pass_fragment":     {},
	"classifier-pass_ip_options":   {},
	"classifier-pass_not_udp":      {},
	"classifier-pass_not_roce":     {},
	"classifier-pass_no_group":     {},
	"classifier-drop_merged":       {},
	"classifier-redirect_data":     {},
	"classifier-redirect_feedback": {},
	"classifier-redirect_cnp":      {},
	"classifier-redirect_cm":       {},
	"classifier-redirect_fan_out":  {},
	"classifier-redirect_merged":   {},
	"classifier-pass_no_socket":    {Whose: Box, Says: says("frames of groups go to the kernel, because they arrive on a queue without a socket; ethtool -l PORT shows a port's queues; ethtool -L or ethtool -X restricts frames to the queues that rocast port ls counts")},
	"classifier-pass_meta_failed":  {Whose: Box, Says: says("frames of groups go to the kernel, because a port's driver leaves no room for metadata in front of them; set mode: generic in rocastd.yaml")},
	"classifier-drop_own_source":   {Whose: Stranger, Says: says("a host sends from an address that only this box sends from, such as a group's IP; give that host another address (rocast events names its MAC)")},
}
