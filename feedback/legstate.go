package feedback

import (
	"encoding/binary"

	"github.com/rocast/rocast/roce"
)

// appendLeg appends what repair knows of path i, except its counts. Round trips mean nothing to a
// policy whose timer has only one length.
func (rp *repair) appendLeg(b []byte, i int, first roce.PSN, now Tick) []byte {
	l, acked := &rp.legs[i], rp.paths[i].acked
	measures := rp.policy.RepairTimerFloor < rp.policy.RepairTimerCap
	b = append(b, byte(l.state), l.attempts, flags(l.carried, l.calm(now))) // less time changes nothing soon
	if since := now - l.backsAt; l.backs > 0 && since < rp.backsWithin(l) {
		b = append(binary.AppendVarint(b, int64(since)), l.backs)
	}
	b = append(b, flags(l.running, l.sentAgain, l.barred, l.reported, measures && l.sampling))
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(l.window)), uint64(l.flight))
	for _, psn := range []roce.PSN{later(l.asked, acked), later(l.resent, acked), l.high} {
		b = binary.AppendVarint(b, int64(psn.Sub(first)))
	}
	if s := rp.sharesWith(i); s != nil {
		b = binary.AppendVarint(append(b, flags(s.on)), int64(later(s.upTo, l.high).Sub(first)))
	}
	if l.running {
		b = binary.AppendVarint(b, int64(max(l.due-now, 0)))
	}
	if l.state != legDirect {
		b = binary.AppendVarint(b, int64(l.cursor.Sub(first)))
		b = binary.AppendVarint(b, int64(min(now-l.since, repairLong)))
	}
	if measures {
		b = append(binary.AppendVarint(b, int64(l.srtt)), l.backoff)
		b = binary.AppendUvarint(b, uint64(l.varies))
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(l.rate)), uint64(l.quickest))
		if l.sampling {
			b = binary.AppendVarint(b, int64(l.sample.Sub(first)))
			b = binary.AppendVarint(b, int64(now-l.sampleAt))
			b = binary.AppendVarint(b, int64(l.from.Sub(first)))
			b = binary.AppendVarint(b, int64(now-l.fromAt))
		}
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
