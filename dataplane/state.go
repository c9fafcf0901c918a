package dataplane

import (
	"net/netip"
	"slices"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// state is what changes with a group's traffic: its merging, and the offsets of the members' PSN
// and MSN spaces from the active source's.
type state struct {
	group   *mft.Group
	merge   *feedback.Group
	active  int        // path of the active source, or onlySends or departed
	offsets []offset   // per path
	turns   []turn     // per path; nil: only the group's Source ever sends
	begun   uint32     // number of turns that have begun here
	first   mft.Sender // of a Source that only sends
	marks   sourceMarks
	// The priority of the VLAN tag of the receivers' newest answer that has a tag.
	answerPCP     uint8
	answersTagged bool
	counts        [NumReasons]uint64
	naks          nakCounts
	traffic       Traffic
	mapped        mapped
	refused       Refused  // data of members
	firstTurn     LastTurn // of a Source that only sends
	tallies       []tally  // per path
	fan           fanState
	held          *held           // what is retained for repair; nil: the policy says repair: off
	sharing       *sharing        // nil: no path shares a leg
	edits         mft.Edits       // for packets of the active source
	relays        *mft.RelayEdits // nil: the group has no Relay
	flight        flight          // counted in Core.flights
	claimant      claimant
	yield         yield
	requests      uint32 // the number of the newest request for a turn; 0: none since the start
}

const (
	// onlySends stands for the path of a source that is not a receiver.
	onlySends = -1
	// departed stands for the path of an active source that has left the group.
	departed = -2
)

// offset is how far one path's spaces are from the active source's.
type offset struct {
	deltaPSN int32 // the path's PSN minus the source's
	deltaMSN int32 // the source's MSN minus the path's
}

// turn is what is kept of a path for the next source switch. It is larger than offset, and few
// groups need it.
type turn struct {
	// While the member is the source, the place of its own path is kept here.
	awayPSN roce.PSN // what its QP expects next
	awayMSN roce.MSN
	mft.Sender
}

// sourceMarks are what is kept of the source's last packet. P_Key and traffic class are copied to
// its answers, so that these look like a NIC's. So is the priority of its VLAN tag, unless the
// receivers' answers have one.
type sourceMarks struct {
	port         mft.PortID // by which it came: the kernel engine expects the next one there
	pkey         uint16
	trafficClass uint8
	pcp          uint8
}

// ecnMask is the part of the traffic class that tells what happened to a packet on its way. Answers
// do not copy it.
const ecnMask = 3

func (st *state) mark(port mft.PortID, v *roce.View, head []byte) {
	st.marks = sourceMarks{port: port, pkey: v.PKey(head), trafficClass: v.TrafficClass(head) &^ ecnMask, pcp: v.PCP(head)}
}

// markAnswer notes the priority of the VLAN tag of a receiver's answer. Answers to the source have
// the priority of the receivers' newest one.
func (st *state) markAnswer(v *roce.View, head []byte) {
	if v.VLANs > 0 {
		st.answerPCP, st.answersTagged = v.PCP(head), true
	}
}

// pcp is the priority of answers to the source.
func (st *state) pcp() uint8 {
	if st.answersTagged {
		return st.answerPCP
	}
	return st.marks.pcp
}

func newState(g *mft.Group) *state {
	st := &state{
		group: g, active: g.Source.Path, offsets: make([]offset, len(g.Paths)),
		tallies: make([]tally, len(g.Paths)), marks: sourceMarks{port: mft.NoPort, pkey: roce.DefaultPKey},
	}
	for i := range st.offsets {
		st.offsets[i].deltaPSN = g.DeltaPSN(i)
	}
	if othersSend(g) {
		st.turns = newTurns(g)
	}
	begins := mft.Sender{NextPSN: g.Source.FirstPSN}
	if g.Turn != nil {
		begins = st.recall(g.Turn)
	}
	st.merge = feedback.New(feedback.Config{
		Policy: g.Policy, Paths: len(g.Paths), FirstPSN: begins.NextPSN, Restored: g.Restored, Parts: st.parts(), Joined: joined(g), Weights: weights(g),
		RepairRoom: g.Policy.RepairBytes / mft.PacketBytes(g.PathMTU),
	})
	st.needUpper()
	if g.Policy.Repair != feedback.RepairOff {
		st.held = heldFor(g)
		st.held.recent = newRecent(len(g.Paths))
	}
	st.merge.Away(st.active, st.beside(st.active))
	st.merge.Relay(isFromBox(st))
	if st.onlyJoin() { // after a clean stop (soFar): nobody has anything, and the source's place is known
		st.merge.SwitchSource(feedback.SourceSwitch{PSN: begins.NextPSN, Messages: begins.Messages, OldPath: onlySends, NewPath: onlySends}, nil)
	}
	st.edits, st.relays = g.Edits(st.active), newRelays(g)
	st.sharing = newSharing(st, nil, nil, nil)
	return st
}

// needUpper says which path leads to the box above, if one does.
func (st *state) needUpper() {
	if i := slices.IndexFunc(st.group.Paths, func(p mft.Path) bool { return p.Box == mft.BoxAbove }); i >= 0 {
		st.merge.Need(i)
	}
}

// parts returns how each path takes part if it is new, or nil if all do. The QP of a member whose
// turn has ended with a fatal NAK has ended as a receiver too. With on-fatal evict its path is
// gone, unless it is that of the box above, which is waited for whatever the policy says.
func (st *state) parts() (list []feedback.Part) {
	set := func(path int, part feedback.Part) {
		if list == nil {
			list = make([]feedback.Part, len(st.group.Paths))
		}
		list[path] = part
	}
	for _, p := range st.group.Parts {
		if i := st.group.FindPath(p.IP, p.RemoteQPN); i >= 0 {
			set(i, p.Part)
		}
	}
	for i := range st.turns {
		if st.turns[i].Ended && st.group.Policy.OnFatal == feedback.FatalEvict && st.group.Paths[i].Box != mft.BoxAbove {
			set(i, feedback.PartGone)
		}
	}
	return list
}

// joined returns which paths of a restored group have joined in its turn.
func joined(g *mft.Group) (list []feedback.Joined) {
	for _, j := range g.Joins {
		if i := g.FindPath(j.IP, j.RemoteQPN); i >= 0 {
			list = append(list, feedback.Joined{Path: i, PSN: j.PSN})
		}
	}
	return list
}

// othersSend reports whether another member may become the source.
func othersSend(g *mft.Group) bool {
	for i := range g.Paths {
		if g.Paths[i].Sends {
			return true
		}
	}
	return false
}

func newTurns(g *mft.Group) []turn {
	turns := make([]turn, len(g.Paths))
	for i := range turns {
		turns[i] = turn{awayPSN: g.Paths[i].FirstPSN, Sender: mft.Sender{NextPSN: g.Paths[i].SendPSN}}
	}
	return turns
}

// adopt makes g the version of the group, and reports whether its paths were rearranged.
func (st *state) adopt(g *mft.Group) bool {
	old := st.group
	st.group = g
	st.fan.heard = false // a receiver may be behind another port
	from := make([]int, len(g.Paths))
	same := len(g.Paths) == len(old.Paths) && (st.active != onlySends || sameSource(old, g))
	same = same && waitingIn(old) == waitingIn(g)
	for i := range g.Paths {
		from[i] = samePath(old, g, i)
		same = same && from[i] == i && g.Weight(i) == old.Weight(i)
	}
	if same {
		if st.turns == nil && othersSend(g) {
			st.turns = newTurns(g)
		}
		st.merge.Relay(isFromBox(st))
		st.sharing = newSharing(st, st.sharing, from, old)
		return false
	}
	offsets, tallies, turns := make([]offset, len(from)), make([]tally, len(from)), newTurns(g)
	active := departed
	if st.active == onlySends && sameSource(old, g) {
		active = onlySends
	} else if st.active == onlySends {
		st.first = mft.Sender{NextPSN: g.Source.FirstPSN}
	}
	for i, k := range from {
		if k < 0 {
			continue
		}
		offsets[i], tallies[i] = st.offsets[k], st.tallies[k]
		if st.turns != nil {
			turns[i] = st.turns[k]
		}
		if k == st.active {
			active = i
		}
	}
	if st.turns == nil && active != departed && !othersSend(g) {
		turns = nil // no other member may send
	}
	if i := g.Source.Path; active == onlySends && i >= 0 { // it only sent, and may receive now
		active, from[i] = i, feedback.OfSource
		offsets[i].deltaPSN, tallies[i].lastTurn = g.DeltaPSN(i), st.firstTurn
	}
	st.offsets, st.tallies, st.turns, st.active = offsets, tallies, turns, active
	st.moveClaimant(old, from)
	if st.held != nil {
		st.held.recent.rearrange(from)
	}
	st.merge.Rearrange(from, weights(g), st.parts())
	st.merge.Relay(isFromBox(st))
	st.needUpper()
	st.sharing = newSharing(st, st.sharing, from, old)
	return true
}

// moveClaimant lets the member that waits for its turn wait on in a version with other paths, if it
// is still a member that may send. Control may have stored its turn, and begins it then.
func (st *state) moveClaimant(old *mft.Group, from []int) {
	w := &st.claimant
	stays := sameSource(old, st.group)
	if w.path != onlySends {
		w.path = slices.Index(from, w.path)
		stays = w.path >= 0 && st.group.Paths[w.path].Sends
	}
	if !stays {
		*w = claimant{}
	}
	if !w.stands || st.active == departed {
		st.yield = yield{}
	}
}

// waitingIn returns how many paths join only when control says so.
func waitingIn(g *mft.Group) (n int) {
	for _, p := range g.Parts {
		if p.Part == feedback.PartWaiting {
			n++
		}
	}
	return n
}

// beside is how many receivers are behind a path beside its member, if that is the source: those
// that the quorum counts behind a box of this tree.
func (st *state) beside(path int) int {
	if path < 0 || st.group.Paths[path].Box != mft.BoxBelow {
		return 0
	}
	return st.group.Weight(path) - 1
}

// isBox reports whether a path leads to another box.
func (st *state) isBox(path int) bool { return path >= 0 && st.group.Paths[path].Box != mft.NoBox }

// isFromBox reports whether the source is known to be another box. One that shares copies between
// several boxes sends again by a shared copy what some of them lack, to this one too: that does not
// mean that it has gone back. It stays the same box when it shares no more, and what it was told
// then may be beyond its place.
func isFromBox(st *state) bool {
	if len(st.group.Mappings) > 0 {
		st.mapped.from = st.group.Source.Dst
	}
	return st.isBox(st.active) || st.mapped.from == st.group.Source.Dst
}

// weights is what feedback wants to know of the receivers behind each path.
func weights(g *mft.Group) []uint16 {
	w := make([]uint16, len(g.Paths))
	for i := range w {
		w[i] = uint16(g.Weight(i))
	}
	return w
}

func sameSource(old, g *mft.Group) bool {
	a, b := &old.Source, &g.Source
	return a.Dst == b.Dst && a.DestQPN == b.DestQPN && a.FirstPSN == b.FirstPSN
}

// newcomers reports whether g has a member that old lacks, or another source.
func newcomers(old, g *mft.Group) bool {
	for i := range g.Paths {
		if samePath(old, g, i) < 0 {
			return true
		}
	}
	return !sameSource(old, g)
}

// samePath returns the index of path i of g among the paths of old: the same QP of the same member,
// wherever its host is now. -1: the path is new.
func samePath(old, g *mft.Group, i int) int {
	p := &g.Paths[i]
	k := old.FindPath(p.Dst, p.RemoteQPN)
	if k >= 0 && (p.FirstPSN != old.Paths[k].FirstPSN || p.DestQPN != old.Paths[k].DestQPN) {
		return -1
	}
	return k
}

// sender returns the leg and the path of the member at ip that may send data, or no leg if there is
// none.
func (st *state) sender(ip netip.Addr) (*mft.Leg, int) {
	g := st.group
	if st.active >= 0 && ip == g.Paths[st.active].Dst {
		return &g.Paths[st.active].Leg, st.active
	}
	if ip == g.Source.Dst {
		return &g.Source.Leg, g.Source.Path
	}
	if i := g.FindSender(ip); i >= 0 {
		return &g.Paths[i].Leg, i
	}
	return nil, 0
}

// sourceLeg is the leg of the active source.
func (st *state) sourceLeg() *mft.Leg {
	if st.active < 0 {
		return &st.group.Source.Leg
	}
	return &st.group.Paths[st.active].Leg
}

// senderState is of a member that is in the group.
func (st *state) senderState(path int) *mft.Sender {
	if path == onlySends {
		return &st.first
	}
	return &st.turns[path].Sender
}

// noGrant is the syndrome of an ACK that grants a member nothing beyond its MSN where credits are
// merged: the first code for "unlimited" would end a NIC's credits for good.
func (st *state) noGrant() roce.Syndrome {
	if st.group.Policy.Credits == feedback.CreditsMerge {
		return roce.SyndromeACK(0)
	}
	return roce.SyndromeUnlimited
}

// reply returns an acknowledge packet to the member of leg.
func (st *state) reply(leg *mft.Leg, psn roce.PSN, aeth roce.AETH, migReq bool) Reply {
	return Reply{
		Leg: leg, Group: st.group.ID, PSN: psn, AETH: aeth, MigReq: migReq,
		Shared: leg.Dst == st.group.Source.Dst && st.mapped.has(psn, st.merge.NextPSN()),
		PKey:   st.marks.pkey, TrafficClass: st.marks.trafficClass, HopLimit: replyHopLimit,
		PCP: st.pcp(), Priority: st.group.Priority(leg),
	}
}

// question returns the packet by which merging asks a receiver what it has.
func (st *state) question(a *feedback.Action) Reply {
	return Reply{
		Leg: &st.group.Paths[a.Path].Leg, Group: st.group.ID, Question: true, PSN: a.PSN.Add(st.offsets[a.Path].deltaPSN),
		PKey: st.marks.pkey, TrafficClass: st.marks.trafficClass, HopLimit: replyHopLimit,
	}
}

// fillIn makes c the copy that the member of path a.Path expects.
func (st *state) fillIn(c *Copy, a *feedback.Action) {
	c.Path, c.Edit = &st.group.Paths[a.Path], &st.edits.Paths[a.Path]
	c.PSN = a.PSN.Add(st.offsets[a.Path].deltaPSN)
}
