package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A busy source's packets come in batches, and nearly all of them need no decision: each is the
// next new packet of a group in which everything is as it should be. A train is such packets of one
// group in a row. The core decides about all of them at once, with one event of the merging, and
// one Copy stands for a path's copies of all of them. Every other packet goes through Core.decide.

// train handles f and the frames behind it as far as they are a train, and returns how many; 0: f
// is in none.
func (c *Core) train(now feedback.Tick, g *mft.Group, f *Frame, behind []Frame, out *Outputs) (n int) {
	st := c.stateOf(g.ID)
	if st == nil || st.group != g || st.fan.at.Armed || st.active == departed || st.claimant.held || st.merge.Plain() == 0 {
		return 0
	}
	limit := st.merge.Horizon()
	ev := feedback.Event{Kind: feedback.Train, PSN: st.merge.NextPSN().Prev()}
	payload := 0
	for at, before := f, (*Frame)(nil); ev.PSN != limit && st.isPlain(at, before, ev.PSN.Next()); at, before = &behind[n-1], at {
		ev.Add(at.Original.AckReq, at.View.Opcode.EndsMessage())
		payload += at.View.PayloadBytes
		if n++; n > len(behind) {
			break
		}
	}
	if n == 0 {
		return 0
	}
	copies := len(out.Copies)
	c.acts, _ = st.merge.Step(now, ev, c.acts[:0])
	if st.sharing != nil {
		c.acts = st.sharing.share(now, st, c.acts, out)
	}
	c.perform(st, nil, out)
	st.counts[feedback.Forwarded] += uint64(n)
	st.traffic.carried(int32(n), uint64(payload), len(out.Copies)-copies)
	if st.held != nil {
		c.retain(now, st, f, feedback.Forwarded, false, out)
		for i := range behind[:n-1] {
			c.retain(now, st, &behind[i], feedback.Forwarded, false, out)
		}
	}
	c.reconsider(now, st, Reason(feedback.Forwarded), n, out)
	c.conclude(now, st, out)
	return n
}

// isPlain reports whether the group, which is plain, expects this frame of its source next. Such a
// frame passes every check of Core.data, which need not check its ICRC and marks nothing new.
// before is the frame in front of it in the train, or nil. Fields that are equal in both are not
// checked again.
func (st *state) isPlain(f, before *Frame, psn roce.PSN) bool {
	v, head := &f.View, f.Head()
	if before != nil && len(st.group.Mappings) > 0 { // the first one has been mapped
		st.mapped.count(mapShare(st.group, f), f)
	}
	isLike := before != nil && f.Group == before.Group && f.Port == before.Port && f.Len() == before.Len() &&
		v.DecodeLike(&before.View, before.Head(), head)
	if !isLike && !st.isOfSource(f) || v.PSN(head) != psn {
		return false
	}
	f.Original.Read(v, f.Bytes())
	return admit(st.group, f) == 0
}

// isOfSource reports whether the frame is data of the group's source, of which only the PSN and the
// memory may be wrong.
func (st *state) isOfSource(f *Frame) bool {
	g, v, head := st.group, &f.View, f.Head()
	if f.Kind != KindData || f.Group != g.ID || f.Port != st.marks.port || v.Decode(head, f.Len()) != nil {
		return false
	}
	from, leg := &st.edits.From, st.sourceLeg()
	switch {
	case !v.Opcode.IsRC(), !v.Opcode.IsRequest():
	case v.DestQPN(head) != from.DestQPN, v.PKey(head) != st.marks.pkey:
	case v.SrcIP(head) != from.Src, v.DstIP(head) != from.Dst:
	case !g.Hears(leg, f.Port), mft.VLANsOf(head[:v.L3]) != leg.VLANs():
	case v.PCP(head) != st.marks.pcp:
	case v.TrafficClass(head)&^ecnMask != st.marks.trafficClass, v.HopLimit(head) <= 1, v.PayloadBytes > g.PathMTU:
	default:
		return true
	}
	return false
}
