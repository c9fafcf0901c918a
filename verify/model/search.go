package model

import "slices"

// Result is the result of a search.
type Result struct {
	States    int // different states visited
	Moves     int // moves made
	Ends      int // states without a next move
	Depth     int // moves in the longest run
	Violation *Violation
}

// Violation is the first violation that a search found.
type Violation struct {
	What  string
	moves []move // moves to the violation; for an endless round, followed by the moves of one round
	round int    // index in moves at which the round begins; -1: no round
}

const goesRound = "the world goes round for ever"

// frame is one state on the search stack.
type frame struct {
	state state
	print fingerprint
	moves []move
	tried int
}

// Search visits every state of w, depth first, until it finds a violation.
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
	stack  []*frame // frames above depth are kept to reuse their memory
	depth  int
	result Result
}

func (s *search) run() {
	s.push().copyFrom(s.start())
	s.enter()
	for s.depth > 0 && s.result.Violation == nil {
		f := s.stack[s.depth-1]
		if f.tried == len(f.moves) {
			s.met.unstack(f.print)
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

// push returns the state of a new frame on the stack.
func (s *search) push() *state {
	if s.depth == len(s.stack) {
		s.stack = append(s.stack, &frame{})
	}
	s.depth++
	return &s.stack[s.depth-1].state
}

// enter checks the state at the top of the stack. It removes the state if the state was visited
// before.
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

// standingOn returns the index on the stack of the state with the given fingerprint.
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
