package feedback

import "github.com/rocast/rocast/roce"

// SourceSwitch makes another member the source (rule 12).
type SourceSwitch struct {
	PSN      roce.PSN // the first packet of the new source
	Messages roce.MSN // how many messages the new source has sent before
	OldPath  int      // the path of the old source, which takes part again; -1: it only sends
	NewPath  int      // the path of the new source, which is away while it sends; -1: it only sends
}

// MaySwitch says whether another member may become the source now: when everything that the old one
// sent is acknowledged, also by every path that gets data, or when the old source's QP has ended. A
// path that lacks something could not be told from one that lacks the new source's packets, whose
// PSNs map onto the same ones of its QP. Inside a message no member may become the source: the
// receivers' QPs would see a message begin inside another.
func (g *Group) MaySwitch() bool {
	if g.refusal.syndrome != 0 || g.source.inside {
		return false
	}
	if g.policy.Switch == SwitchForce {
		return g.floor.known
	}
	for i := range g.paths {
		p := &g.paths[i]
		if p.part == PartUnknown || p.part == PartActive && p.acked != g.source.sent {
			return false
		}
	}
	return g.Settled() && !g.gapStands() || g.end.sent
}

// SwitchSource performs a source switch. From here on everything is in the new source's PSN space,
// and every path stands right below its first packet. A path that lacks something of the old
// source, or that has not answered since a restart, is behind: the PSN that its QP expects is not
// the one that the new source's first packet maps to, so it could take new data for old and
// acknowledge it.
func (g *Group) SwitchSource(s SourceSwitch, acts []Action) []Action {
	for i := range g.paths {
		p := &g.paths[i]
		if p.part == PartUnknown || p.part == PartActive && p.acked != g.source.sent {
			p.part = PartBehind
			acts = append(acts, Action{Kind: Notice, Note: NoteBehind, Path: i, PSN: p.acked.Next()})
		}
	}
	if s.OldPath >= 0 {
		g.comeBack(&g.paths[s.OldPath])
	}
	g.begin(s.PSN, s.Messages)
	g.Away(s.NewPath)
	g.findEnd()
	return acts
}

// Round is where a source was in its round when its turn ended. A source that has missed the last
// ACK of its turn sends packets of that turn again.
type Round struct {
	pos, back roce.PSN
	awaited   bool // the source was called back to packet back, and had not come
}

// Round returns where the source is in its round.
func (g *Group) Round() Round { return Round{g.source.pos, g.back.psn, g.back.awaited} }

// Arrive notes that packet psn of a turn that has ended came again, and says whether it may be
// acknowledged: a source that was called back hears that before it hears the ACK, which would then
// be beyond its place (rule 1).
func (r *Round) Arrive(psn roce.PSN) bool {
	if psn == r.back || !psn.After(r.pos) && psn.After(r.back) { // as in Group.arrive
		r.awaited = false
	}
	r.pos = psn
	return !r.awaited || psn.Before(r.back)
}

// comeBack makes the path of a source take part again. A QP that ended as a source has ended as a
// receiver: with on-fatal evict its path stays gone.
func (g *Group) comeBack(p *path) {
	switch {
	case !g.end.sent:
		p.part = g.away
	case g.policy.OnFatal == FatalFail:
		p.part, p.pending = PartDead, g.end.syndrome
	}
}

// Away takes the path of the source itself out of the group while its member is the source. After a
// restart nothing is unknown about it: the QP has received nothing while it sent.
func (g *Group) Away(i int) {
	if i >= 0 {
		p := &g.paths[i]
		if g.away = p.part; g.away == PartUnknown {
			g.away = PartActive
		}
		p.part = PartGone
	}
	g.recount()
}
