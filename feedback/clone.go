package feedback

import (
	"encoding/binary"
	"slices"

	"github.com/rocast/rocast/roce"
)

// This file serves verify/model, which searches small worlds exhaustively: it copies groups and has
// to recognise one that it has met before. CopyFrom also serves traces (dataplane/trace.go). No
// packet that is forwarded needs any of it.

// CopyFrom makes g a copy of from that shares nothing with it. It allocates only while g is too
// small.
func (g *Group) CopyFrom(from *Group) {
	paths, quorum, legs, shared := g.paths, g.quorum, g.legs, g.shared
	*g = *from
	g.paths = append(paths[:0], from.paths...)
	g.quorum = quorum.copyOf(from.quorum)
	g.legs = append(legs[:0], from.legs...)
	g.shared = append(shared[:0], from.shared...)
}

// AppendState appends what decides how the group will act, except its paths (AppendPath) and its
// CNP counts, on which nothing else depends. Two groups of one Config with equal bytes act alike
// for ever. PSNs are relative to first, times relative to now, and what no longer matters is left
// out, so that a state has the same bytes for every way to reach it.
func (g *Group) AppendState(b []byte, first roce.PSN, now Tick) []byte {
	s, m, f := &g.source, &g.merged, &g.floor
	quorum, recopied, missed := g.policy.Ack != AckAll, &g.doubts.recopied, &g.doubts.missed
	b = append(b, flags(s.known, s.inside, s.told, s.unsure, m.known, f.known, f.migReq,
		g.asking.begun && g.MayAsk()),
		flags(g.back.awaited, g.back.newest, g.end.sent, quorum && recopied.some, quorum && missed.some,
			g.claimed(now), g.countsAgain(), g.back.awaited && g.back.asked),
		flags(g.relayed), byte(g.refusal.syndrome), byte(g.end.syndrome), byte(g.away), s.unanswered)
	for _, p := range []struct {
		psn   roce.PSN
		means bool
	}{
		{s.first, s.known && s.sent.Sub(s.first) < Window}, {s.sent, s.known}, {s.pos, s.known}, {m.psn, s.known}, {m.highest, m.known}, {f.psn, true}, {s.counted, s.known},
		{g.back.psn, g.back.awaited || g.back.newest}, {g.refusal.psn, g.refusal.syndrome != 0},
		{g.end.psn, g.end.syndrome != 0},
		{recopied.from, quorum && recopied.some}, {recopied.to, quorum && recopied.some},
		{missed.from, quorum && missed.some}, {missed.to, quorum && missed.some},
	} {
		if p.means {
			b = binary.AppendVarint(b, int64(p.psn.Sub(first)))
		}
	}
	for _, n := range []int{
		int(s.messages), int(f.msn), int(m.msn), f.above, f.need, g.pending.sequence, g.pending.rnr,
	} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	if g.countsAgain() {
		b = append(binary.AppendVarint(b, int64(g.again.psn.Sub(first))), byte(g.again.msn))
	}
	if quorum {
		d := &g.doubts
		if g.policy.repairs() {
			b = binary.AppendUvarint(b, uint64(g.ahead()))
		}
		b = binary.AppendUvarint(b, uint64(g.beside))
		b = binary.AppendVarint(b, int64(min(now-d.countedAt, doubtPeriod)))
		if s.known && (d.rounds == 0 || g.someoneBelow(d.lowest)) {
			b = binary.AppendVarint(append(b, d.rounds), int64(d.lowest.Sub(first)))
			if d.rounds <= doubtLimit {
				b = binary.AppendVarint(b, int64(d.began.Sub(first)))
			}
		}
	}
	if s.known && slices.ContainsFunc(g.paths, func(p path) bool { return p.isAsked() }) {
		b = binary.AppendVarint(b, int64(g.doubts.began.Sub(first)))
	}
	if g.claimed(now) {
		b = binary.AppendVarint(b, int64(now-g.claim.since))
	}
	if e := &g.end; e.told && !e.sent {
		b = binary.AppendVarint(b, int64(min(now-e.cameAt, max(AskPeriod, g.policy.settleWithin()))))
	}
	if call := &g.back; call.awaited && call.asked {
		b = append(b, flags(call.came))
		b = binary.AppendVarint(b, int64(min(now-call.askedAt, call.answersWithin())))
	}
	if a := &g.asking; a.begun && g.MayAsk() {
		b = append(b, a.calls)
		b = binary.AppendVarint(b, int64(min(now-a.from, onItsWay+g.policy.settleWithin())))
		b = binary.AppendVarint(b, int64(min(now-a.at, claimLife+1)))
	}
	if g.policy.repairs() {
		b = binary.AppendVarint(b, int64(g.retained.oldest.Sub(first)))
		guess := Tick(-1)
		if g.guess.stands {
			guess = max(g.guess.until-now, 0)
		}
		b = binary.AppendVarint(b, int64(guess))
		gap := &g.gap
		b = append(b, flags(gap.seen, gap.rests), gap.calls, byte(g.back.by))
		if gap.seen {
			b = binary.AppendVarint(b, int64(min(now-gap.since, gapAgain)))
		}
		q := &g.lull
		b = append(b, flags(g.unheard(), g.mute(), s.asks, g.back.oneACK, q.acked, q.asked, q.seen, q.spoke), q.times)
		if (g.unheard() || g.mute()) && q.seen {
			b = binary.AppendVarint(b, int64(min(now-q.since, max(slowAfter, g.patienceWithSource(false), g.patienceWithSource(true)))))
		}
		b = binary.AppendVarint(b, int64(g.pace.pause))
		if s.inside {
			b = binary.AppendVarint(b, int64(min(now-g.pace.seenAt, second)))
		}
	}
	return b
}

// AppendPath appends path i's part of the state. It does not contain the index: paths in equal
// states are interchangeable.
func (g *Group) AppendPath(b []byte, i int, first roce.PSN, now Tick) []byte {
	p := &g.paths[i]
	b = append(b, byte(p.part), byte(p.pending), byte(p.credit), byte(p.silent), flags(p.migReq, p.fresh, i == g.needed))
	if !g.source.known || g.policy.Credits == CreditsMerge {
		b = append(b, flags(p.told))
	}
	b = binary.AppendVarint(b, int64(p.acked.Sub(first)))
	b = binary.AppendUvarint(b, uint64(p.msn))
	if p.fresh {
		b = binary.AppendVarint(b, int64(p.from.Sub(first)))
	}
	if g.policy.Ack != AckAll {
		b = append(b, byte(p.lack), flags(p.follows, i == g.absent), p.unheard)
		if g.policy.OnSlow == SlowWait && g.policy.repairs() && g.letGo(p.acked.Next()) {
			b = binary.AppendVarint(b, int64(min(now-p.since, neverReadyAfter)))
		}
		b = binary.AppendUvarint(b, uint64(g.weight(i)))
	}
	if after := Tick(g.policy.SilentAfter); after != 0 {
		b = append(b, flags(g.source.resentAt > p.since))
		b = binary.AppendVarint(b, int64(min(now-p.since, after)))
	}
	if g.policy.repairs() {
		b = g.appendLeg(b, i, first, now)
	}
	return b
}
