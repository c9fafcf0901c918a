package edges

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Receiver is a receiver of a group that may share.
type Receiver struct {
	Path *mft.Path
	// AddPSN is what its QP's PSNs are above those of the source, modulo 2^24.
	AddPSN uint32
	Port   string // by which it is reached
	Box    string // the name of the box that it is; "": it is none
	// Idle is why it gets no data, and Unfit why it has copies of its own, whatever the edges say.
	// "": it may share.
	Idle, Unfit string
}

// Sharing says how the copies of a group leave. It does not change.
type Sharing struct {
	// Own is why all receivers have copies of their own; "": some may share.
	Own       string
	Turn      uint32 // for the packets of which turn that was decided
	Receivers map[mft.QP]Standing
}

// Standing says how the copies for one receiver leave.
type Standing struct {
	Own  string // why it does not share; "": it does
	Idle string // why it got no data when that was decided; "": it did
	Edge *Edge  // nil: no edge has asked for its host
	// Fails is why its edge cannot load the mapping; "": it can. Own says the same then.
	Fails string
}

// generation is a set of mappings that do not change.
type generation struct {
	way
	to       netip.Addr // the multicast address
	qpn      roce.QPN
	turn     uint32 // of which the packets are mapped
	mappings map[mft.QP]*api.EdgeMapping
}

// way is how the copies of a generation leave.
type way struct {
	port  string
	vlans mft.VLANs
	from  netip.Addr
}

func (r *Receiver) way() way { return way{r.Port, r.Path.VLANs(), r.Path.Src} }

// Share decides which receivers of a group share, and notes what their edges are to map. It is
// called for each version of the group before that is published, with all receivers that have a
// path. turn is the one in which they are as they say.
func (b *Book) Share(name string, memory *mft.Memory, turn uint32, receivers []Receiver) ([]mft.Share, Sharing) {
	g := b.groups[name]
	if g == nil {
		g = &group{}
		b.groups[name] = g
	}
	s := sharer{Book: b, group: g, name: name, memory: memory, sharing: Sharing{Turn: turn, Receivers: map[mft.QP]Standing{}}}
	s.choose(receivers)
	s.endGenerations(receivers)
	for _, w := range s.ways {
		s.share(w)
	}
	return s.shares, s.sharing
}

// Forget ends the generations of a group: it has ended, or has copies of its own.
func (b *Book) Forget(name string) {
	if g := b.groups[name]; g != nil {
		for _, gen := range g.generations {
			b.end(gen)
		}
		delete(b.groups, name)
	}
}

func (b *Book) end(gen *generation) {
	for qp := range gen.mappings {
		b.hosts[qp.IP].drop(gen.qpn)
	}
}

// sharer is one call of Share.
type sharer struct {
	*Book
	group   *group
	name    string
	memory  *mft.Memory
	ways    []way // of the candidates
	by      map[way][]*Receiver
	of      map[netip.Addr]mft.QP // the receiver of a host that may share
	shares  []mft.Share
	sharing Sharing
}

// choose finds the receivers that may share and have an edge. A host has one mapping in a
// generation, so of several receivers at one host one shares.
func (s *sharer) choose(receivers []Receiver) {
	s.group.receivers, s.by, s.of = nil, map[way][]*Receiver{}, map[netip.Addr]mft.QP{}
	for i := range receivers {
		r := &receivers[i]
		at := r.Path.Dst
		h := s.hosts[at]
		_, taken := s.of[at]
		own := cmp.Or(r.Idle, r.Unfit)
		switch {
		case own != "":
		case !r.Path.Resolved():
			own = "it is not reached"
		case taken:
			own = "another receiver of its host shares, and an edge maps a copy to one"
		default:
			s.of[at] = r.Path.QP()
			s.group.receivers = append(s.group.receivers, at)
			if h == nil {
				own = "no edge has asked for its host"
				if r.Path.Box != mft.NoBox {
					own = "its box has not asked for what several boxes share"
				}
				break
			}
			w := r.way()
			if s.by[w] == nil {
				s.ways = append(s.ways, w)
			}
			s.by[w] = append(s.by[w], r)
		}
		standing := Standing{Own: own, Idle: r.Idle}
		if h != nil {
			standing.Edge = &h.edge
		}
		s.sharing.Receivers[r.Path.QP()] = standing
	}
}

// endGenerations ends those of another turn, and those of which a member has left, or has another
// mapping or way now, or another receiver of its host is to share. A member that is not reached at
// present may come back.
func (s *sharer) endGenerations(receivers []Receiver) {
	s.group.generations = slices.DeleteFunc(s.group.generations, func(gen *generation) bool {
		if gen.turn != s.sharing.Turn {
			s.end(gen)
			return true
		}
		for qp, m := range gen.mappings {
			at := slices.IndexFunc(receivers, func(r Receiver) bool { return r.Path.QP() == qp })
			of, some := s.of[qp.IP]
			if at < 0 || some && of != qp || receivers[at].Idle != "" || receivers[at].Unfit != "" || !reflect.DeepEqual(s.mapping(gen, &receivers[at]), m) ||
				receivers[at].Path.Resolved() && receivers[at].way() != gen.way {
				s.end(gen)
				return true
			}
		}
		return false
	})
}

// mapping returns what the edge of a receiver maps in a generation.
func (s *sharer) mapping(gen *generation, r *Receiver) *api.EdgeMapping {
	m := &api.EdgeMapping{
		Group: s.name, From: gen.from, To: gen.to, LegQPN: uint32(gen.qpn),
		Host: r.Path.Dst, QPN: uint32(r.Path.DestQPN), AddPSN: r.AddPSN,
	}
	for i, v := range s.memory.All {
		t := r.Path.Regions.Target(i)
		m.Regions = append(m.Regions, api.EdgeRegion{
			VA: api.Hex(v.VA), Length: v.Length, RKey: api.Hex(v.RKey), AddVA: api.Hex(t.DeltaVA), ToRKey: api.Hex(t.RKey),
		})
	}
	return m
}

// share lets the candidates of one way share: those whose edges have loaded the mapping of their
// generation, if these are two or more.
func (s *sharer) share(w way) {
	candidates := s.by[w]
	gen, own := s.generation(w, candidates)
	var members []mft.QP
	for _, r := range candidates {
		if gen == nil {
			s.own(r, own)
			continue
		}
		h := s.hosts[r.Path.Dst]
		if gen.mappings[r.Path.QP()] == nil {
			m := s.mapping(gen, r)
			gen.mappings[r.Path.QP()] = m
			h.want(gen.qpn, m)
		}
		_, loaded := h.loaded[gen.qpn]
		switch why, failed := h.failed[gen.qpn]; {
		case loaded:
			members = append(members, r.Path.QP())
		case failed:
			s.fails(r, why)
		default:
			s.own(r, "its edge has not loaded the mapping yet")
		}
	}
	if len(members) < 2 {
		for _, qp := range members {
			s.own(candidateOf(candidates, qp), "no other edge behind "+w.port+" has loaded its mapping yet")
		}
		return
	}
	share := candidates[0].Path.Shared(gen.to, gen.qpn, members)
	share.Turn = gen.turn
	for qp := range gen.mappings {
		if !slices.Contains(members, qp) {
			share.Others = append(share.Others, qp)
		}
	}
	s.shares = append(s.shares, share)
}

func candidateOf(candidates []*Receiver, qp mft.QP) *Receiver {
	return candidates[slices.IndexFunc(candidates, func(r *Receiver) bool { return r.Path.QP() == qp })]
}

func (s *sharer) own(r *Receiver, why string) {
	standing := s.sharing.Receivers[r.Path.QP()]
	standing.Own = why
	s.sharing.Receivers[r.Path.QP()] = standing
}

// fails enters that the edge of a receiver, or the box, cannot load the mapping.
func (s *sharer) fails(r *Receiver, why string) {
	who := "its edge"
	if r.Box != "" {
		who = "box " + r.Box
	}
	why = who + " cannot map its copies: " + why
	s.own(r, why)
	standing := s.sharing.Receivers[r.Path.QP()]
	standing.Fails = why
	s.sharing.Receivers[r.Path.QP()] = standing
}

// generation returns the one of a way, or a new one, or why there is none.
func (s *sharer) generation(w way, candidates []*Receiver) (gen *generation, own string) {
	for _, gen := range s.group.generations {
		if gen.way == w {
			return gen, ""
		}
	}
	if len(candidates) < 2 {
		return nil, "no other receiver behind " + w.port + " has an edge"
	}
	var hosts []netip.Addr
	for _, r := range candidates {
		hosts = append(hosts, r.Path.Dst)
	}
	qpn, err := s.drawFree()
	if err != nil {
		return nil, err.Error()
	}
	gen = &generation{way: w, to: s.config.address(hosts), qpn: qpn, turn: s.sharing.Turn, mappings: map[mft.QP]*api.EdgeMapping{}}
	s.group.generations = append(s.group.generations, gen)
	return gen, ""
}

// drawFree draws a QPN that no generation has now: edges and the Book know a generation by it.
func (b *Book) drawFree() (roce.QPN, error) {
	for {
		if qpn, err := b.draw(); err != nil || !b.has(qpn) {
			return qpn, err
		}
	}
}

// has reports whether a generation has a QPN.
func (b *Book) has(qpn roce.QPN) bool {
	for _, g := range b.groups {
		if slices.ContainsFunc(g.generations, func(gen *generation) bool { return gen.qpn == qpn }) {
			return true
		}
	}
	return false
}
