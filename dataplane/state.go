package dataplane

import (
	"net/netip"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// state is what changes while a group's traffic runs: its merging, and how the
// PSN and MSN spaces of its members lie to that of the active source.
type state struct {
	group  *mft.Group
	merge  *feedback.Group
	active int         // path of the active source; onlySends: the group's Source
	legs   []legState  // per path
	first  senderState // of a Source that only sends
	marks  sourceMarks
	counts [NumReasons]uint64
}

// onlySends stands for the path of a source that is no receiver.
const onlySends = -1

// legState is one path's place in the source's spaces.
type legState struct {
	deltaPSN int32 // the path's PSN minus the source's
	deltaMSN int32 // the source's MSN minus the path's
	// While the member is the source, what its path has received stands here.
	awayPSN roce.PSN // the next its QP expects
	awayMSN roce.MSN
	senderState
}

// senderState is where a member's own stream stands while others send.
type senderState struct {
	nextPSN  roce.PSN // what it sends next
	messages roce.MSN // what it has sent
}

// sourceMarks are taken from the source's packets, so that what it hears looks
// like an answer to them.
type sourceMarks struct {
	pkey         uint16
	trafficClass uint8
}

func newState(g *mft.Group) *state {
	st := &state{
		group: g, active: g.Source.Path, legs: make([]legState, len(g.Paths)),
		first: senderState{nextPSN: g.Source.FirstPSN}, marks: sourceMarks{pkey: roce.DefaultPKey},
	}
	st.merge = feedback.New(feedback.Config{
		Policy: g.Policy, Paths: len(g.Paths), FirstPSN: g.Source.FirstPSN, Restored: g.Restored,
	})
	for i := range st.legs {
		p := &g.Paths[i]
		st.legs[i] = legState{
			deltaPSN: g.DeltaPSN(i), awayPSN: p.FirstPSN, senderState: senderState{nextPSN: p.SendPSN},
		}
	}
	st.merge.Away(st.active)
	return st
}

// adopt takes over a new version of the group and says whether its members
// changed.
func (st *state) adopt(g *mft.Group) bool {
	old := st.group
	st.group = g
	from := make([]int, len(g.Paths))
	same := len(g.Paths) == len(old.Paths)
	for i := range g.Paths {
		from[i] = samePath(old, g, i)
		same = same && from[i] == i
	}
	if same {
		return false
	}
	legs := make([]legState, len(from))
	active := onlySends
	for i, k := range from {
		if k < 0 {
			legs[i] = legState{awayPSN: g.Paths[i].FirstPSN, senderState: senderState{nextPSN: g.Paths[i].SendPSN}}
			continue
		}
		legs[i] = st.legs[k]
		if k == st.active {
			active = i
		}
	}
	st.legs, st.active = legs, active
	st.merge.Rearrange(from)
	return true
}

// samePath finds path i of g among the paths of old: the same member, or the
// forwarded path of the same rank, since its port may have changed or be
// unknown.
func samePath(old, g *mft.Group, i int) int {
	p := &g.Paths[i]
	if p.Kind == mft.Connected {
		return old.FindPath(p.Dst, p.RemoteQPN)
	}
	fromEnd := len(g.Paths) - i
	if k := len(old.Paths) - fromEnd; k >= 0 && old.Paths[k].Kind == mft.Forwarded {
		return k
	}
	return -1
}

// sender returns the leg and path of the member at ip that may send data; no
// leg: nobody may.
func (st *state) sender(ip netip.Addr) (*mft.Leg, int) {
	g := st.group
	if ip == g.Source.Dst {
		return &g.Source.Leg, g.Source.Path
	}
	if i := g.FindSender(ip); i >= 0 {
		return &g.Paths[i].Leg, i
	}
	return nil, 0
}

// sourceLeg is where the active source is.
func (st *state) sourceLeg() *mft.Leg {
	if st.active == onlySends {
		return &st.group.Source.Leg
	}
	return &st.group.Paths[st.active].Leg
}

func (st *state) senderState(path int) *senderState {
	if path == onlySends {
		return &st.first
	}
	return &st.legs[path].senderState
}

// switchSource makes the member of path next the source, with psn (rule 12).
// The result is 0, or why it may not be.
func (c *Core) switchSource(st *state, next int, psn roce.PSN, out *Outputs) Reason {
	if !st.merge.MaySwitch() {
		return SourceBlocked
	}
	to := st.senderState(next)
	if psn != to.nextPSN {
		return SourceOutOfStep
	}
	from := st.senderState(st.active)
	from.nextPSN, from.messages = st.merge.NextPSN(), st.merge.Messages()
	for i := range st.legs {
		leg := &st.legs[i]
		if i != st.active { // whose own stream did not reach it
			leg.awayPSN, leg.awayMSN = from.nextPSN.Add(leg.deltaPSN), st.merge.MSN(i).Add(-leg.deltaMSN)
		}
		leg.deltaPSN, leg.deltaMSN = leg.awayPSN.Sub(psn), to.messages.Sub(leg.awayMSN)
	}
	c.acts = st.merge.SwitchSource(feedback.Handover{
		PSN: psn, Messages: to.messages, OldPath: st.active, NewPath: next,
	}, c.acts[:0])
	c.perform(st, nil, -1, out)
	st.active = next
	out.Notes = append(out.Notes, Note{
		Group: st.group.ID, Receiver: st.sourceLeg().Dst, RemoteQPN: st.group.QPN, What: feedback.NoteSource, PSN: psn,
	})
	return 0
}

// copyFor is the edit that path a.Path's member expects.
func (st *state) copyFor(a *feedback.Action, f *Frame, region int) Copy {
	g := st.group
	c := Copy{Path: &g.Paths[a.Path], PSN: a.PSN.Add(st.legs[a.Path].deltaPSN)}
	if f.View.Opcode.Headers().Has(roce.HasRETH) {
		reth := f.View.RETH(f.Head())
		c.VA, c.RKey = reth.VA, reth.RKey
		if region >= 0 && len(c.Path.Regions) > 0 {
			c.VA, c.RKey = g.Translate(a.Path, region, reth.VA)
		}
	}
	return c
}
