package feedback

import (
	"cmp"

	"github.com/rocast/rocast/roce"
)

// Config is what a group starts from.
type Config struct {
	Policy Policy
	Paths  int
	// Weights is how many receivers a quorum counts for each path, all of them or none; nil: one
	// for each. A path to another switch stands for all receivers behind that switch.
	Weights  []uint16
	FirstPSN roce.PSN // the first PSN that the source sends
	// Restored says that traffic ran before this state began: neither the source's place nor what
	// a path has acknowledged is known (rule 13).
	Restored bool
	// RepairRoom is how many packets of full size the caller retains at least, where its memory is
	// less than repair-window of them takes. 0: it is not.
	RepairRoom int
	// Parts is how each path takes part at first: any part but PartUnknown and PartDead. nil: all
	// take part.
	Parts []Part
	// Joined are the paths of a restored group that have joined in this turn, and for whose first
	// packet the source may not have heard the ACK of all packets before. A quorum does not count
	// such a path for these (rule 9).
	Joined []Joined
}

// Joined says with which packet of the source a path has joined.
type Joined struct {
	Path int
	PSN  roce.PSN
}

// Group is the merging state of one group. It belongs to the one thread that calls Step.
type Group struct {
	replier
	away Part // the part of the source's own path when its member is not the source

	// What follows belongs to one source, as most of what it is built on does. A source switch
	// begins with zero values (see begin).

	claim      claim
	asking     asking
	congestion congestion
}

// New returns the state of a group at its start.
func New(c Config) *Group {
	g := new(Group)
	g.policy, g.paths, g.needed = c.Policy.WithDefaults(), make([]path, c.Paths), none
	g.absent = none
	if c.Policy.Ack != AckAll {
		g.quorum = new(quorum)
		g.quorum.weigh(c.Weights)
	}
	for i := range g.paths {
		g.paths[i].credit = creditNone
	}
	if g.policy.repairs() {
		g.legs = make([]leg, c.Paths)
		g.room = int32(min(g.policy.RepairWindow, cmp.Or(c.RepairRoom, g.policy.RepairWindow)))
	}
	for i, part := range c.Parts {
		g.paths[i].part = part
	}
	if c.Restored {
		for _, j := range c.Joined {
			p := &g.paths[j.Path]
			p.from, p.fresh = j.PSN, g.policy.Ack != AckAll
		}
		g.restart(asking{turn: c.FirstPSN})
		return g
	}
	g.begin(c.FirstPSN, 0)
	g.source.first = c.FirstPSN // nothing was sent before
	g.recount()
	return g
}

// begin starts a source whose next packet is psn and which has sent messages before. Every path
// stands right below psn. Only what does not depend on the source survives:
//
//   - the membership: policy, the paths and their parts, the part of the path that was away, which
//     path never leaves, and whether the source is a box;
//   - what a receiver's QP is by itself: the receives it has posted, whether it wants to migrate,
//     and the NAK that ended it, which ends the next source as well;
//   - which paths share a leg, which the caller knows;
//   - where a path has joined, because a restart is inside a turn (SwitchSource);
//   - how congested the links are, and how long they are. The next source has heard no CNP yet, so
//     its first one passes whatever pace the one before has had.
func (g *Group) begin(psn roce.PSN, messages roce.MSN) {
	before := psn.Prev()
	next := Group{away: g.away, congestion: congestion{halvedAt: g.congestion.halvedAt}}
	next.receivers, next.legs, next.shared, next.tally, next.room = g.receivers, g.legs, g.shared, g.tally, g.room
	next.source = source{known: true, first: before.Add(-Window), sent: before, pos: before, counted: before, messages: messages}
	next.merged = merged{known: true, psn: before, highest: before, msn: messages}
	next.floor = floor{known: true, psn: before, msn: messages, need: never}
	next.doubts = doubts{lowest: psn, rounds: 1}
	*g = next
	g.pending = pendingNAKs{}
	for i := range g.paths {
		p := &g.paths[i]
		survives := path{part: p.part, credit: p.credit, migReq: p.migReq, cnps: p.cnps, fresh: p.fresh, from: p.from}
		if p.part == PartDead {
			survives.pending = p.pending
		}
		survives.acked, survives.msn = before, messages
		*p = survives
	}
	g.beginLegs(before)
}

// Step folds one event into the group and appends to acts what the caller must do, in order. It
// appends at most [MaxActions].
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
	case Train:
		return g.train(now, &ev, acts), Forwarded
	case Carried:
		return g.carried(now, &ev, acts), Forwarded
	case Lost:
		return g.lost(ev.PSN, acts), Absorbed
	default:
		return g.timer(now, acts), Absorbed
	}
}

// MaxActions is the most actions that one event causes. Each path may join, be reported twice, get
// a copy and be asked what it has, but who joins is not asked. One path may be sent a burst of
// repairs. The source is sent an ACK twice, a NAK and a fatal NAK at most.
func MaxActions(paths int) int { return 4*paths + 4 + RepairBurst }
