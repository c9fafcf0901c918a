package dataplane

import (
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A group with a Relay is not merged on this box. The box above has a path for each receiver, and
// merges what all of them answer. Here a frame gets other addresses and another dest QPN, and
// nothing is kept of it. A shared copy of the box above is mapped for each receiver, as the edge of
// a host does.
//
// ICRCs are not checked, because no state depends on a frame: what came damaged leaves damaged, and
// who is to take it drops it.

// relay passes on a frame of a group with a Relay. The state counts it.
func relay(st *state, f *Frame, out *Outputs) Reason {
	g, v, head := st.group, &f.View, f.Head()
	if err := v.Decode(head, f.Len()); err != nil {
		if err == roce.ErrOpcode {
			return UnknownOpcode
		}
		return Malformed
	}
	if !v.Opcode.IsRC() && v.Opcode != roce.OpCNP {
		return WrongTransport
	}
	leg, path, r := relayed(g, v, head)
	switch {
	case r != 0:
		return r
	case !g.Hears(leg, f.Port):
		return WrongPort
	case mft.VLANsOf(head[:v.L3]) != leg.VLANs():
		return WrongVLAN
	case v.DstIP(head) != leg.Src:
		return WrongDestination
	case v.PayloadBytes > g.PathMTU:
		return OverMTU
	case v.HopLimit(head) <= 1:
		return HopLimitExceeded
	}
	f.Original.Read(v, f.Bytes())
	f.Region = -1
	psn, e, copies := f.Original.PSN, st.relays, len(out.Copies)
	switch {
	case leg != &g.Source.Leg:
		copyTo(out, g.Up(), &e.Up[path], psn)
		return Relayed
	case path >= 0:
		copyTo(out, &g.Paths[path], &e.Down[path], psn)
	default:
		if r := mapShared(g, e, f, out); r != 0 {
			return r
		}
	}
	if v.Opcode.IsRequest() {
		st.traffic.Packets++
		st.traffic.Bytes += uint64(v.PayloadBytes)
		st.traffic.copied(len(out.Copies)-copies, v.PayloadBytes)
	}
	return Relayed
}

// relayed returns the leg by which a frame has come, and the path of the receiver that it is from
// or for. Below 0: it is a shared copy of the box above.
func relayed(g *mft.Group, v *roce.View, head []byte) (leg *mft.Leg, path int, r Reason) {
	src, qpn := v.SrcIP(head), v.DestQPN(head)
	if src == g.Source.Dst && v.DstIP(head) == g.Source.Src {
		path = g.FindEnd(qpn)
		if path < 0 && qpn != g.Relay.Shared {
			return nil, 0, WrongQPN
		}
		return &g.Source.Leg, path, 0
	}
	switch path = g.FindPath(src, qpn); {
	case path >= 0:
		return &g.Paths[path].Leg, path, 0
	case g.FindMember(src) >= 0:
		return nil, 0, WrongQPN
	}
	return nil, 0, NotMember
}

// mapShared makes the copies of a shared copy: one for each receiver that is mapped and shares
// nothing further on, and one for each share.
func mapShared(g *mft.Group, e *mft.RelayEdits, f *Frame, out *Outputs) Reason {
	o := &f.Original
	if f.View.Opcode.Headers().Has(roce.HasRETH) && g.Memory != nil {
		if f.Region = g.Memory.Find(o.VA, o.RKey, o.DMABytes); f.Region < 0 && o.DMABytes > 0 {
			return RefusedMemory
		}
	}
	for k := range g.Shares {
		copyTo(out, g.SharePath(k), &e.Shares[k], o.PSN)
	}
	for i := range g.Paths {
		if end := g.End(i); end.Mapped && g.ShareOf(i) < 0 {
			copyTo(out, &g.Paths[i], &e.Mapped[i], o.PSN.Add(int32(end.AddPSN)))
		}
	}
	return 0
}

func copyTo(out *Outputs, p *mft.Path, e *roce.Edit, psn roce.PSN) {
	c := out.another()
	c.Path, c.Edit, c.PSN = p, e, psn
}

// relaysOn returns the state of another version of a group with a Relay: only what was counted of
// the group itself goes on.
func (st *state) relaysOn(g *mft.Group) *state {
	next := newState(g)
	next.counts, next.traffic, next.refused, next.flight = st.counts, st.traffic, st.refused, st.flight
	return next
}

// newRelays returns the edits of a group with a Relay, or nil.
func newRelays(g *mft.Group) *mft.RelayEdits {
	if g.Relay == nil {
		return nil
	}
	e := g.RelayEdits()
	return &e
}

// passOn handles a frame of a group with a Relay.
func passOn(c *Core, now feedback.Tick, g *mft.Group, f *Frame, out *Outputs) Reason {
	st, _ := c.adopt(now, g, out)
	r := relay(st, f, out)
	st.counts[r]++
	if r.Refuses() {
		c.astray.refuse(st, f, r)
	}
	return r
}
