package model

import "slices"

// Result is what a search found.
type Result struct {
	States    int // met, different
	Moves     int // made
	Ends      int // states in which nothing can happen
	Depth     int // moves of the longest run looked at
	Violation *Violation
}

// Violation is the first thing a search found wrong.
type Violation struct {
	What  string
	moves []move // to it; then, if the world goes round for ever, once round
	round int    // where in moves the round begins; -1: it does not
}

const goesRound = "the world goes round for ever"

// frame is a state on the way to the one being looked at.
type frame struct {
	state state
	print fingerprint
	moves []move
	tried int
}

// Search looks at every state of w, depth first, until something is wrong.
func Search(w World) Result {
	w.prepare()
	s := &search{engine: engine{World: &w}}
	s.run()
	if s.result.Violation != nil {
		s.result.Violation = shortest(&w, s.result.Violation)
	}
	return s.result
}

type search struct {
	engine
	encoder
	met    visited
	stack  []*frame // frames above depth are kept for their memory
	depth  int
	result Result
}

func (s *search) run() {
	s.push().copyFrom(s.start())
	s.enter()
	for s.depth > 0 && s.result.Violation == nil {
		f := s.stack[s.depth-1]
		if f.tried == len(f.moves) {
			s.met.leave(f.print)
			s.depth--
			continue
		}
		m := f.moves[f.tried]
		f.tried++
		next := s.push()
		next.copyFrom(&f.state)
		s.make(next, m)
		s.result.Moves++
		s.enter()
	}
	s.result.States = s.met.n
}

// push makes room for one more state.
func (s *search) push() *state {
	if s.depth == len(s.stack) {
		s.stack = append(s.stack, &frame{})
	}
	s.depth++
	return &s.stack[s.depth-1].state
}

// enter looks at the state on top, and drops it if it was met before.
func (s *search) enter() {
	f := s.stack[s.depth-1]
	f.print, f.tried, f.moves = s.fingerprint(s.World, &f.state), 0, f.moves[:0]
	if s.broken != "" {
		s.violated(s.broken, -1)
		return
	}
	met, standing := s.met.enter(f.print)
	if standing {
		s.violated(goesRound, s.standingOn(f.print))
		return
	}
	if met {
		s.depth--
		return
	}
	s.result.Depth = max(s.result.Depth, s.depth-1)
	if f.moves = s.moves(&f.state, f.moves); len(f.moves) == 0 {
		s.result.Ends++
		if s.checkEnd(&f.state); s.broken != "" {
			s.violated(s.broken, -1)
		}
	}
}

// standingOn returns the place on the way of the state called print.
func (s *search) standingOn(print fingerprint) int {
	return slices.IndexFunc(s.stack[:s.depth], func(f *frame) bool { return f.print == print })
}

func (s *search) violated(what string, round int) {
	v := &Violation{What: what, round: round}
	for _, f := range s.stack[:s.depth-1] {
		v.moves = append(v.moves, f.moves[f.tried-1])
	}
	s.result.Violation = v
}
