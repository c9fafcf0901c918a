package feedback

import (
	"encoding/binary"
	"slices"

	"github.com/rocast/rocast/roce"
)

// What is here serves verify/model, which searches small worlds exhaustively: it
// copies groups and has to recognise one that it has met before. The data path
// uses none of it.

// CopyFrom makes g a copy of from that shares nothing with it. It allocates
// only while g is too small.
func (g *Group) CopyFrom(from *Group) {
	paths, ranked := g.paths, g.floor.ranked
	*g = *from
	g.paths = append(paths[:0], from.paths...)
	g.floor.ranked = slices.Grow(ranked[:0], len(from.paths))
}

// AppendState appends what decides how the group will act, except its paths
// (AppendPath) and its CNP counts, which nothing else depends on. Two groups of
// one Config with equal bytes act alike for ever. PSNs are told relative to
// first, times relative to now, and what no longer matters is left out: the
// same state reached on two ways has the same bytes.
func (g *Group) AppendState(b []byte, first roce.PSN, now Tick) []byte {
	f := &g.floor
	b = append(b, flags(g.started, f.known, g.told, g.inside),
		flags(g.awaiting, g.saidBack, g.refusing, g.end.told, g.speech.said),
		byte(g.refusal), byte(g.end.syndrome), byte(g.awayWas))
	for _, p := range []struct {
		psn   roce.PSN
		means bool
	}{
		{g.sent, g.started}, {g.pos, g.started}, {g.merged, g.started}, {g.toldUpTo, g.told}, {f.psn, true}, {g.counted, g.started},
		{g.goBack, g.awaiting || g.saidBack}, {g.refused, g.refusing}, {g.end.psn, g.end.syndrome != 0}, {g.speech.hole, g.speech.said},
	} {
		if p.means {
			b = binary.AppendVarint(b, int64(p.psn.Sub(first)))
		}
	}
	b = binary.AppendUvarint(b, uint64(g.messages))
	b = binary.AppendUvarint(b, uint64(f.msn))
	b = binary.AppendUvarint(b, uint64(g.toldMSN))
	b = append(b, flags(f.migReq))
	for _, n := range []int{f.above, f.need, g.sequenceNAKs, g.rnrNAKs} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	if g.policy.Ack != AckAll {
		b = append(b, flags(g.recopied.some))
		if g.recopied.some {
			b = binary.AppendVarint(b, int64(g.recopied.from.Sub(first)))
			b = binary.AppendVarint(b, int64(g.recopied.to.Sub(first)))
		}
		b = binary.AppendVarint(b, int64(min(now-g.agedAt, doubtPeriod)))
	}
	if g.policy.Speak != SpeakOff {
		b = binary.AppendVarint(b, int64(min(now-g.speech.quietSince, speakAfter)))
	}
	return b
}

// AppendPath appends path i's part of the state, which does not tell its index:
// paths in equal states are interchangeable.
func (g *Group) AppendPath(b []byte, i int, first roce.PSN, now Tick) []byte {
	p := &g.paths[i]
	b = append(b, byte(p.part), byte(p.pending), byte(p.credit), flags(p.migReq, p.silent, p.fresh))
	b = binary.AppendVarint(b, int64(p.acked.Sub(first)))
	b = binary.AppendUvarint(b, uint64(p.msn))
	if p.fresh {
		b = binary.AppendVarint(b, int64(p.from.Sub(first)))
	}
	if g.policy.Ack != AckAll {
		b = append(b, byte(p.ask), flags(p.follows), p.unheard)
	}
	if after := Tick(g.policy.SilentAfter); after > 0 {
		b = append(b, flags(g.resentAt > p.since))
		b = binary.AppendVarint(b, int64(min(now-p.since, after)))
	}
	return b
}

func flags(bits ...bool) (b byte) {
	for i, bit := range bits {
		if bit {
			b |= 1 << i
		}
	}
	return b
}
