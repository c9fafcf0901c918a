package feedback

import "github.com/rocast/rocast/roce"

// Window is how far, in packets, a PSN of the source may lie from the highest
// one forwarded, and that one from what is acknowledged. Beyond it a packet is
// a forgery or a QP that was set up anew. It is a quarter of what 24-bit
// comparison can tell apart.
const Window = 1 << 21

// Tick is a time in nanoseconds from any fixed start. Only differences count.
type Tick int64

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

	started  bool     // the source's place is known
	told     bool     // merged was told, or nothing came before it; false after a restart: it is a guess
	inside   bool     // the newest packet is not its message's last
	awayWas  Part     // what the path of the source itself was before it was away
	sent     roce.PSN // highest data PSN forwarded
	pos      roce.PSN // last data PSN seen: the source's place in this round
	merged   roce.PSN // what the source was last told, unless it resends from below
	toldUpTo roce.PSN // the highest PSN it told to be acknowledged
	toldMSN  roce.MSN // with it
	counted  roce.PSN // up to here every packet was seen, so that the messages they end are known
	messages roce.MSN // they end so many messages; counts says so even where the floor is further
	resentAt Tick     // when the source last resent something

	floor floor

	// A NAK for goBack went out and the source has not come back to it.
	awaiting bool
	saidBack bool // and no ACK went out since
	goBack   roce.PSN

	recopied span
	agedAt   Tick // when doubts were last counted

	sequenceNAKs int // paths with a pending sequence NAK
	rnrNAKs      int // paths with a pending RNR NAK

	refusing bool // the source asked for what no group can carry
	refusal  roce.Syndrome
	refused  roce.PSN // from here on nothing is forwarded
	end      end

	speech     speech
	congestion congestion
}

// end is the fatal NAK with the lowest PSN, a receiver's or a refusal: what the
// source's QP will end with.
type end struct {
	psn      roce.PSN
	syndrome roce.Syndrome // 0: none
	told     bool          // in this round of the source
}

// path is what is known of one receiver. A pending NAK is always for acked+1:
// it acknowledges everything below, and a later ACK clears it.
type path struct {
	since   Tick // when it last made progress, or began to lack something
	acked   roce.PSN
	msn     roce.MSN
	from    roce.PSN // where it joined, while fresh
	cnps    uint16
	pending roce.Syndrome // NAK or RNR NAK the source has not heard; 0: none
	credit  roce.CreditCode
	part    Part
	migReq  bool
	silent  bool  // and it was said
	fresh   bool  // joined at from and has nothing below, of which the source was not told yet: a quorum does not count it
	ask     ask   // for acked+1
	follows bool  // the switch served its NAK in this round of the source
	unheard uint8 // while in doubt: packets it should have answered and did not
}

// Part is how a path takes part in its group.
type Part uint8

const (
	PartActive  Part = iota
	PartUnknown      // restored, and it has not spoken
	PartJoining      // gets data from the next message on
	PartDead         // its QP is in error: no data, and what it lacks stays lacking
	PartBehind       // it lacks what the source no longer has: no data, not waited for
	PartGone         // evicted, or the source itself: no data, not waited for
)

var partNames = [...]string{"active", "unknown", "joining", "dead", "behind", "gone"}

func (p Part) String() string { return partNames[p] }

// takesData says whether the path gets copies.
func (p Part) takesData() bool { return p == PartActive || p == PartUnknown }

// counts says whether the ack policy looks at the path.
func (p Part) counts() bool { return p != PartJoining && p != PartBehind && p != PartGone }

// counted says whether the ack policy looks at the path now.
func (p *path) counted() bool { return p.part.counts() && !p.fresh }

// New returns the state of a group at its start.
func New(c Config) *Group {
	g := &Group{policy: c.Policy, paths: make([]path, c.Paths)}
	g.floor.ranked = make([]int32, 0, c.Paths)
	g.begin(c.FirstPSN)
	if c.Restored {
		g.started, g.floor.known, g.told = false, false, false
		for i := range g.paths {
			g.paths[i].part = PartUnknown
		}
	}
	g.recount()
	return g
}

// begin makes psn the first the source sends, to paths that have nothing of it.
func (g *Group) begin(psn roce.PSN) {
	before := psn.Prev()
	g.started = true
	g.sent, g.pos, g.merged, g.toldUpTo, g.counted = before, before, before, before, before
	g.toldMSN, g.messages = 0, 0
	g.floor.psn, g.floor.known, g.floor.msn = before, true, 0
	g.told, g.inside, g.awaiting, g.saidBack, g.refusing, g.end = true, false, false, false, false, end{}
	g.sequenceNAKs, g.rnrNAKs = 0, 0
	g.recopied = span{}
	for i := range g.paths {
		p := &g.paths[i]
		p.acked, p.msn, p.pending, p.silent, p.fresh = before, 0, 0, false, false
		p.ask, p.follows, p.unheard = askNone, false, 0
	}
}

// Step folds one event into the group and appends what the caller must do to
// acts. It never grows acts by more than MaxActions.
func (g *Group) Step(now Tick, ev Event, acts []Action) ([]Action, Outcome) {
	switch ev.Kind {
	case Data:
		return g.data(now, &ev, acts)
	case Refuse:
		return g.refuse(now, &ev, acts)
	case Response:
		return g.response(now, &ev, acts)
	case CNP:
		return g.cnp(now, ev.Path, acts)
	default:
		return g.timer(now, acts), Absorbed
	}
}

// MaxActions is the most actions one event causes: each path may join, be noted
// and get a copy, and the source hears an ACK, a NAK and a fatal NAK at most.
func MaxActions(paths int) int { return 3*paths + 3 }

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

// leave takes path i out of what is waited for.
func (g *Group) leave(i int, part Part) {
	p := &g.paths[i]
	g.setPending(p, 0)
	p.part = part
	g.recount()
	g.endIfTooFew(-1)
}

// endIfTooFew ends the source's QP, behind what is acknowledged, if too few are
// left, without path but, to acknowledge the rest: it would wait for ever.
func (g *Group) endIfTooFew(but int) {
	if g.hopeful(but) >= max(1, int(g.policy.Ack)) {
		return
	}
	acked := g.merged
	if g.floor.known {
		acked = g.floor.psn
	}
	g.endAt(acked.Next(), roce.NAKRemoteOperational)
}

// living counts the receivers that can acknowledge what the source waits for.
func (g *Group) living() (n int) {
	for i := range g.paths {
		if p := &g.paths[i]; p.part.takesData() && !p.fresh {
			n++
		}
	}
	return n
}

// hopeful counts those and, between messages, those that join with the next one,
// without path but.
func (g *Group) hopeful(but int) (n int) {
	n = g.living()
	if but >= 0 && g.paths[but].part.takesData() {
		n--
	}
	if between := g.Settled() && !g.inside; between {
		for i := range g.paths {
			if i != but && g.paths[i].part == PartJoining {
				n++
			}
		}
	}
	return n
}
