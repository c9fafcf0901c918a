package feedback

import "github.com/rocast/rocast/roce"

// Window is how far, in packets, a PSN of the source may lie from the highest
// one forwarded, and that one from what is acknowledged. Beyond it a packet is
// a forgery or a QP that was set up anew. It is a quarter of what 24-bit
// comparison can tell apart.
const Window = 1 << 21

// Config is what a group starts from.
type Config struct {
	Policy   Policy
	Paths    int
	FirstPSN roce.PSN // the first PSN the source sends
	// Restored: traffic ran before this state began, so nothing is known of
	// the source's place or of what a path has acknowledged (rule 13).
	Restored bool
}

// Group is the merging state of one group. Its owner is the one thread that
// calls Step.
type Group struct {
	policy Policy
	paths  []path

	started bool     // the source's place is known
	sent    roce.PSN // highest data PSN forwarded
	pos     roce.PSN // last data PSN seen: the source's place in this round
	merged  roce.PSN // what the source was last told, unless it resends from below

	// floor is the highest PSN that every counted path has acknowledged; it
	// means nothing until every path has spoken.
	floor   roce.PSN
	atFloor int // paths at the floor
	unknown int // paths that have not spoken

	// A NAK for goBack went out and the source has not come back to it.
	awaiting bool
	goBack   roce.PSN

	sequenceNAKs int // paths with a pending sequence NAK
	rnrNAKs      int // paths with a pending RNR NAK

	refusing bool     // the source asked for what no group can carry
	refused  roce.PSN // from here on nothing is forwarded
	end      end
}

// end is the fatal NAK with the lowest PSN, a receiver's or a refusal: what the
// source's QP will end with.
type end struct {
	syndrome roce.Syndrome // 0: none
	psn      roce.PSN
	told     bool // in this round of the source
}

// path is what is known of one receiver. A pending NAK is always for acked+1:
// it acknowledges everything below, and a later ACK clears it.
type path struct {
	acked   roce.PSN
	msn     roce.MSN
	pending roce.Syndrome // NAK or RNR NAK the source has not heard; 0: none
	known   bool
	migReq  bool
}

// New returns the state of a group at its start.
func New(c Config) *Group {
	g := &Group{policy: c.Policy, paths: make([]path, c.Paths)}
	before := c.FirstPSN.Prev()
	g.sent, g.pos, g.merged, g.floor = before, before, before, before
	g.started = !c.Restored
	for i := range g.paths {
		g.paths[i] = path{acked: before, known: !c.Restored}
	}
	if c.Restored {
		g.unknown = c.Paths
	}
	g.recount()
	return g
}

// Step folds one event into the group and appends what the caller must do to
// acts. It never grows acts by more than the number of paths plus three.
func (g *Group) Step(ev Event, acts []Action) ([]Action, Outcome) {
	switch ev.Kind {
	case Data:
		return g.data(ev.PSN, ev.AckReq, acts)
	case Refuse:
		return g.refuse(ev.PSN, ev.Syndrome, acts)
	default:
		return g.response(&ev, acts)
	}
}

// recount finds the floor and who stands on it.
func (g *Group) recount() {
	g.atFloor = 0
	for i := range g.paths {
		p := &g.paths[i]
		switch d := p.acked.Sub(g.floor); {
		case g.atFloor == 0 || d < 0:
			g.floor, g.atFloor = p.acked, 1
		case d == 0:
			g.atFloor++
		}
	}
}

// setPending replaces a path's pending NAK.
func (g *Group) setPending(p *path, s roce.Syndrome) {
	g.countPending(p.pending, -1)
	g.countPending(s, 1)
	p.pending = s
}

func (g *Group) countPending(s roce.Syndrome, n int) {
	switch {
	case s == roce.NAKSequence:
		g.sequenceNAKs += n
	case s.IsRNR():
		g.rnrNAKs += n
	}
}

// endAt notes a fatal NAK.
func (g *Group) endAt(psn roce.PSN, s roce.Syndrome) {
	if g.end.syndrome == 0 || psn.Before(g.end.psn) {
		g.end = end{syndrome: s, psn: psn}
	}
}

// dead says whether the path's QP is in error: it takes no data and will never
// acknowledge more.
func (p *path) dead() bool { return p.pending != 0 && p.pending.IsFatal() }
