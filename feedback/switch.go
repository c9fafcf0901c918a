package feedback

import (
	"slices"

	"github.com/rocast/rocast/roce"
)

// SourceSwitch makes another member the source (rule 12).
type SourceSwitch struct {
	PSN      roce.PSN // the first packet of the new source
	Messages roce.MSN // how many messages the new source has sent before
	OldPath  int      // the path of the old source, which takes part again; -1: it only sends
	NewPath  int      // the path of the new source, which is away while it sends; -1: it only sends
	Beside   int      // receivers behind NewPath that have what the new source hears an ACK of (vouch)
	// Asked says that the old source itself has asked what the receivers have. It sends nothing
	// then.
	Asked bool
	// Lacks says that NewPath lacks something, whatever it has acknowledged: it leads to a box that
	// cannot settle what its own receivers have.
	Lacks bool
	// Left says that the old source is the box above, which has gone on without this one: what it
	// has sent and receivers here lack, nobody sends again.
	Left bool
}

// claim is the wish of another member to become the source, while receivers lack something that the
// quorum went on without.
type claim struct {
	stands bool
	sent   roce.PSN // the newest packet of the source at that time
	since  Tick
}

// claimLife is longer than any requester waits before it tries again. A claim that is so much
// older was given up, and what the receivers did then says nothing about now.
const claimLife = 60 * second

// MaySwitch reports whether another member may become the source now: when everything that the old
// one sent is acknowledged, also by every path that gets data, or when the old source's QP has
// ended. A path that lacks something could not be told from one that lacks the new source's
// packets, whose PSNs map onto the same ones of its QP. Inside a message no member may become the
// source: the receivers' QPs would see a message begin inside another. Nor may one while it is in
// doubt what the old source has sent (asked.go).
//
// A path that lacks something is not waited for when its time since the Claim is over, if the
// policy can do without it, or at all if the old source has gone on without this group.
func (g *Group) MaySwitch(now Tick, s SourceSwitch) bool {
	force := g.policy.Switch == SwitchForce
	switch {
	case s.Left:
		return true
	case g.refusal.syndrome != 0 && !g.ended(now) || g.source.inside || g.doubted() || g.back.answering(g.source.pos):
		return false
	case force && !g.floor.known || !force && !g.turnOver() && !g.ended(now):
		return false
	case !g.lacking() && !s.lacks(g.paths):
		return true
	}
	return (force || g.late(now)) && !g.lacksNeeded() && (g.spares(s) || g.tooFew(s))
}

// lacks reports whether the next source's path is to be left behind although it has acknowledged
// everything.
func (s SourceSwitch) lacks(paths []path) bool { return s.Lacks && paths[s.NewPath].part.takesData() }

// Overdue reports whether a member waits to be the source for longer than a receiver has that may
// be behind from then on.
func (g *Group) Overdue(now Tick) bool {
	if a := &g.asking; a.begun && g.MayAsk() {
		return now-a.from >= onItsWay+g.policy.settleWithin()
	}
	return g.late(now)
}

// late reports whether the time is over for who lacks something since the Claim.
func (g *Group) late(now Tick) bool {
	return g.claimed(now) && now-g.claim.since >= g.policy.settleWithin()
}

// lacking reports whether some path lacks something of the source.
func (g *Group) lacking() bool { return slices.ContainsFunc(g.paths, g.source.lackedBy) }

// turnOver reports whether the source waits for nothing any more: every packet is acknowledged to
// it, or its QP has ended.
func (g *Group) turnOver() bool { return g.end.sent || g.Settled() && !g.gapStands() }

// Concluded reports whether everything of the source counts as acknowledged when its turn ends:
// once those are behind who lack something, as many have it as the policy needs. A switch by force
// does not wait for that. messages is how many messages the source has sent.
func (g *Group) Concluded() (messages roce.MSN, concluded bool) {
	messages = g.Messages()
	if g.Settled() {
		return g.fewest(messages), true
	}
	have := 0
	for i := range g.paths {
		switch p := &g.paths[i]; {
		case p.part == PartDead && g.policy.Ack == AckAll: // it is waited for
			return messages, false
		case p.part == PartActive && !p.fresh && !g.source.lackedBy(*p):
			have += g.weight(i)
			messages = p.msn // since a restart nobody may have seen all packets
		}
	}
	return messages, have >= g.least()
}

// fewest returns how many messages the source has sent: n, or fewer if an active path that has
// every packet has counted fewer. After a restart n may be too high. A receiver that is asked for
// an old packet answers with the number of all messages that it has, and the group then counts the
// messages behind that packet once more.
func (st *stream) fewest(n roce.MSN) roce.MSN {
	for i := range st.paths {
		if p := &st.paths[i]; p.acked == st.source.sent && p.part == PartActive {
			n = n.Add(min(0, p.msn.Sub(n)))
		}
	}
	return n
}

// claimed reports whether another member wants to become the source.
func (g *Group) claimed(now Tick) bool {
	c := &g.claim
	return c.stands && c.sent == g.source.sent && now-c.since <= g.policy.settleWithin()+claimLife
}

// Claim takes the next packet of a member that would become the source and may not. The old source
// is silent, so nothing else shows what the paths have that the quorum went on without: they are
// asked, and what can be repaired is.
func (g *Group) Claim(now Tick, acts []Action) []Action {
	if !g.turnOver() && !g.ended(now) {
		return acts
	}
	return g.ClaimOf(now, acts)
}

// ClaimOf is Claim where the source is the box above, which may have gone on without this one: then
// it is silent although not everything is acknowledged to it.
func (g *Group) ClaimOf(now Tick, acts []Action) []Action {
	if !g.claimed(now) {
		g.claim = claim{true, g.source.sent, now}
	}
	return g.askLacking(now, acts)
}

// spares reports whether the next source can do without the paths that lack something: the policy
// lets it, and it has as many receivers as it needs.
func (g *Group) spares(s SourceSwitch) bool {
	have, _ := g.left(s)
	whole := s.NewPath < 0 || !s.Lacks && g.paths[s.NewPath].part == PartActive && !g.source.lackedBy(g.paths[s.NewPath])
	return (g.policy.Ack != AckAll || g.policy.Evict || g.policy.Switch == SwitchForce) && have >= s.least(g.policy.Ack, whole)
}

// tooFew reports whether the next source has too few receivers even if all paths catch up that
// lack something. It need not wait for these: it hears that its QP has ended (rule 9).
func (g *Group) tooFew(s SourceSwitch) bool {
	have, more := g.left(s)
	return have+more < s.least(g.policy.Ack, true) && (!s.Lacks || g.policy.Ack != AckAll || g.policy.Evict)
}

// least is how many receivers the next source cannot do without. Those that are beside it count too
// if its path is whole: if it lacks nothing (vouch).
func (s SourceSwitch) least(ack AckPolicy, whole bool) int {
	switch {
	case ack == AckAll:
		return 1
	case whole:
		return max(0, int(ack)-s.Beside)
	}
	return int(ack)
}

// left counts the receivers of the next source that have everything of the old one, and those that
// may have it yet, or join.
func (g *Group) left(s SourceSwitch) (have, more int) {
	for i := range g.paths {
		switch p := &g.paths[i]; {
		case i == s.NewPath:
		case i == s.OldPath:
			if g.away.takesData() && !g.end.told {
				have += g.weight(i)
			}
		case p.part.IsToCome() || g.source.lackedBy(*p):
			more += g.weight(i)
		case p.part == PartActive:
			have += g.weight(i)
		}
	}
	return have, more
}

// SparesOld reports whether the next source can do without the old one, which has not answered for
// so long, as a receiver.
func (s SourceSwitch) SparesOld(g *Group, silent Tick) bool {
	s.OldPath = -1
	return silent >= g.policy.settleWithin() && !g.lacksNeeded() && g.spares(s)
}

// SwitchSource performs a source switch. From here on everything is in the new source's PSN space,
// and every path stands right below its first packet. A path that lacks something of the old
// source, or that has not answered since a restart, is behind: the PSN that its QP expects is not
// the one that the new source's first packet maps to, so it could take new data for old and
// acknowledge it.
func (g *Group) SwitchSource(s SourceSwitch, acts []Action) []Action {
	acts = g.LeaveBehind(s, acts)
	if s.OldPath >= 0 {
		g.comeBack(s.OldPath)
	}
	for i := range g.paths {
		g.paths[i].fresh = false // it had joined before the new source's first packet
	}
	g.begin(s.PSN, s.Messages)
	g.Away(s.NewPath, s.Beside)
	g.findEnd()
	return acts
}

// Round is where a source was in its round when its turn ended. A source that has missed the last
// ACK of its turn sends packets of that turn again.
type Round struct {
	Pos, Back roce.PSN
	Awaited   bool // the source was called back to packet Back, and had not come
	// Sent says that the source had sent Back. It is not stored: what a source sends before it
	// hears that it is called back has arrived when a box is up again.
	Sent bool
}

// Strays reports whether the source sent packet psn before it heard that it is called back to one
// before, which it had sent: it sends psn again.
func (r *Round) Strays(psn roce.PSN) bool { return r.Awaited && r.Sent && psn.After(r.Back) }

// Arrive notes that packet psn of a turn that has ended came again, and reports whether it may be
// acknowledged: a source that was called back hears that before it hears the ACK, which would then
// be beyond its place (rule 1).
func (r *Round) Arrive(psn roce.PSN) bool {
	if psn == r.Back || !psn.After(r.Pos) && psn.After(r.Back) { // as in Group.arrive
		r.Awaited = false
	}
	r.Pos = psn
	return !r.Awaited || psn.Before(r.Back)
}

// LeaveBehind is what SwitchSource begins with: the paths that lack something of the source are
// behind from now on. If the source has gone on without this group, all are: nobody here knows what
// it has sent since, or whether its last message has ended.
func (g *Group) LeaveBehind(s SourceSwitch, acts []Action) []Action {
	for i := range g.paths {
		p := &g.paths[i]
		if g.source.lackedBy(*p) || s.Left && p.part.takesData() || i == s.NewPath && s.lacks(g.paths) {
			p.part = PartBehind
			acts = append(acts, Action{Kind: Notice, Note: NoteBehind, Path: i, PSN: p.acked.Next()})
		}
	}
	return acts
}

// GoOn lets the source go on whose turn was to end, without the paths that LeaveBehind has left
// behind.
func (g *Group) GoOn(acts []Action) []Action {
	for i := range g.paths {
		if g.paths[i].part == PartBehind {
			g.leave(i, PartBehind)
		}
	}
	return g.replies(acts)
}

// comeBack makes the path of a source take part again. A QP that ended as a source has ended as a
// receiver: with on-fatal evict its path stays gone, unless the group needs it. A path that took no
// part before the turn takes none after it.
func (g *Group) comeBack(i int) {
	p := &g.paths[i]
	switch {
	case !g.end.told || g.LeftOut():
		p.part = g.away
	case g.policy.OnFatal == FatalFail || i == g.needed:
		p.part, p.pending = PartDead, g.end.syndrome
	}
}

// Away takes the path of the source itself out of the group while its member is the source. After a
// restart nothing is unknown about it: the QP has received nothing while it sent. For beside see
// vouch.
func (g *Group) Away(i, beside int) {
	g.away = PartActive // a source without a path has left nothing behind of the one before
	if i >= 0 {
		p := &g.paths[i]
		if g.away = p.part; g.away == PartUnknown {
			g.away = PartActive
		}
		p.part = PartGone
	}
	g.vouch(i, beside)
	g.recount()
}

// LeftOut reports whether the source's own path is one that no longer takes part as a receiver.
func (g *Group) LeftOut() bool { return g.away == PartBehind || g.away == PartGone }
