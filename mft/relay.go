package mft

import (
	"fmt"

	"github.com/rocast/rocast/roce"
)

// Relay makes a group one whose frames its box passes on and does not merge. The Source is the box
// above, which has a path of its own for each receiver and merges the answers of all. What one of
// them says to the other is passed on with other addresses and another dest QPN, and else as it is.
// So this box knows nothing that a restart could lose.
//
// A new packet may come once for several receivers: the box above has a Share with this box's
// address. Then this box is what an edge is at a host: it maps the copy by constants.
type Relay struct {
	// Shared is the dest QPN of copies that are for all receivers that are Mapped; 0: there is
	// none. As with a Share it names a generation, in which no mapping changes.
	Shared roce.QPN
	// Ends has each receiver of the group once.
	Ends []RelayEnd

	// Set by Table.With.
	ends []RelayEnd         // parallel to Group.Paths
	of   map[roce.QPN]int32 // the path by the QPN of its end
	up   Path
}

// RelayEnd is one receiver as the box above knows it.
type RelayEnd struct {
	QP
	// QPN is the dest QPN of what the box above sends to the receiver alone, and of what this box
	// passes up from the receiver.
	QPN roce.QPN
	// AddPSN is what the PSNs of the receiver's QP are above those of shared copies, modulo 2^24.
	AddPSN uint32
	Mapped bool // shared copies are for the receiver too
}

// End returns the end of a path of a group with a Relay.
func (g *Group) End(path int) *RelayEnd { return &g.Relay.ends[path] }

// FindEnd returns the path of the receiver that the box above names so, or -1.
func (g *Group) FindEnd(qpn roce.QPN) int {
	if i, is := g.Relay.of[qpn]; is {
		return int(i)
	}
	return -1
}

// Up returns the leg to the box above as the path for which copies are made. It is no receiver's.
func (g *Group) Up() *Path { return &g.Relay.up }

// sealRelay checks the relay, and computes what the data path needs.
func (g *Group) sealRelay(ranks map[PortID]uint16) error {
	if g.Relay == nil {
		return nil
	}
	r := &Relay{Shared: g.Relay.Shared, Ends: g.Relay.Ends, ends: make([]RelayEnd, len(g.Paths)), of: map[roce.QPN]int32{}}
	for _, e := range r.Ends {
		i := g.FindPath(e.IP, e.RemoteQPN)
		_, taken := r.of[e.QPN]
		switch {
		case i < 0:
			return fmt.Errorf("frames of %v with QPN %d are to be passed on, and the group does not have it", e.IP, e.RemoteQPN)
		case e.QPN == 0 || e.QPN == r.Shared || taken || r.ends[i].QPN != 0:
			return fmt.Errorf("QPN %d of the link is not that of one receiver alone, or %v has two", e.QPN, e.IP)
		}
		r.ends[i], r.of[e.QPN] = e, int32(i)
	}
	for i := range r.ends {
		if r.ends[i].QPN == 0 {
			return fmt.Errorf("frames of %v are to be passed on, and the box above has no QPN for it", g.Paths[i].Dst)
		}
	}
	r.up = Path{Leg: g.Source.Leg, Rank: ranks[g.Source.Port]}
	ranks[g.Source.Port]++
	g.Relay = r
	return nil
}

// relayKeys returns the keys of what comes from the box above.
func (g *Group) relayKeys() (keys []Key) {
	for _, e := range g.Relay.Ends {
		keys = append(keys, Key{Dst: g.Source.Src, QPN: e.QPN, Match: MatchDstQPN})
	}
	if g.Relay.Shared != 0 {
		keys = append(keys, Key{Dst: g.Source.Src, QPN: g.Relay.Shared, Match: MatchDstQPN})
	}
	return keys
}

// RelayEdits are the edits of a group with a Relay. They are parallel to Group.Paths, except
// Shares.
type RelayEdits struct {
	Down   []roce.Edit // of what is for one receiver
	Up     []roce.Edit // of what a receiver sends
	Mapped []roce.Edit // of shared copies, for a receiver that is Mapped
	Shares []roce.Edit // of shared copies, by Group.Shares: they go on as such
}

// RelayEdits computes the edits. Those of a leg whose next hop is unknown must not be used.
func (g *Group) RelayEdits() RelayEdits {
	n := len(g.Paths)
	e := RelayEdits{Down: make([]roce.Edit, n), Up: make([]roce.Edit, n), Mapped: make([]roce.Edit, n)}
	above := func(qpn roce.QPN) roce.Flow { return roce.Flow{Src: g.Source.Dst, Dst: g.Source.Src, DestQPN: qpn} }
	for i := range g.Paths {
		if leg := &g.Paths[i].Leg; leg.Resolved() {
			e.Down[i] = g.edit(above(g.End(i).QPN), leg)
			e.Mapped[i] = g.edit(above(g.Relay.Shared), leg)
		}
		if g.Source.Resolved() {
			up := g.Source.Leg
			up.DestQPN = g.End(i).QPN
			e.Up[i] = g.edit(g.Flow(i), &up)
		}
	}
	for k := range g.Shares {
		e.Shares = append(e.Shares, g.edit(above(g.Relay.Shared), &g.Shares[k].Leg))
	}
	return e
}
