package model

// shortest returns the shortest run to a violation. v is the violation that Search has found.
func shortest(w *World, v *Violation) *Violation {
	b := &breadth{engine: engine{World: w}, parents: map[fingerprint]step{}}
	if v.round < 0 {
		if found := b.run(w.start(), func(fingerprint) bool { return b.broken != "" }); found != nil {
			return &Violation{What: b.broken, moves: found, round: -1}
		}
		return v
	}
	on := b.onRound(v)
	to := b.run(w.start(), func(f fingerprint) bool { return on[f] })
	if to == nil {
		return v
	}
	from := w.start()
	for _, m := range to {
		b.make(from, m)
	}
	home := b.fingerprint(w, from)
	b.parents = map[fingerprint]step{}
	around := b.run(from, func(f fingerprint) bool { return f == home })
	return &Violation{What: v.What, moves: append(to, around...), round: len(to)}
}

// breadth is a breadth-first search. It remembers the predecessor of every state.
type breadth struct {
	engine
	encoder
	parents map[fingerprint]step
}

type step struct {
	from fingerprint
	move move
}

// onRound returns the states of the round.
func (b *breadth) onRound(v *Violation) map[fingerprint]bool {
	on := map[fingerprint]bool{}
	s := b.start()
	for i, m := range v.moves {
		if b.make(s, m); i >= v.round {
			on[b.fingerprint(b.World, s)] = true
		}
	}
	return on
}

// run returns the moves from a state to the nearest other state that is wanted. It checks every
// state without a successor as an end.
func (b *breadth) run(from *state, wanted func(fingerprint) bool) []move {
	start := b.fingerprint(b.World, from)
	layer := []*state{from}
	for len(layer) > 0 {
		var next []*state
		for _, s := range layer {
			at := b.fingerprint(b.World, s)
			ms := b.moves(s, nil)
			if len(ms) == 0 {
				if b.checkEnd(s); b.broken != "" {
					return b.way(start, at)
				}
			}
			for _, m := range ms {
				t := &state{}
				t.copyFrom(s)
				b.make(t, m)
				f := b.fingerprint(b.World, t)
				if wanted(f) {
					return append(b.way(start, at), m)
				}
				if _, met := b.parents[f]; met || f == start {
					continue
				}
				b.parents[f] = step{at, m}
				next = append(next, t)
			}
		}
		layer = next
	}
	return nil
}

// way returns the moves from start to f.
func (b *breadth) way(start, f fingerprint) []move {
	var ms []move
	for f != start {
		p := b.parents[f]
		ms = append(ms, p.move)
		f = p.from
	}
	for i, k := 0, len(ms)-1; i < k; i, k = i+1, k-1 {
		ms[i], ms[k] = ms[k], ms[i]
	}
	return ms
}
