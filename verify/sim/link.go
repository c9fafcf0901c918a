package sim

import (
	"math"
	"time"
)

// link is one direction of the cable of a host during a run.
type link struct {
	*Link
	host     int
	toSwitch bool
	ends     eventKind // what happens at the other end

	idleAt  time.Duration // when the queue will be empty
	freeAt  time.Duration // when the host will have sent its frames into the queue
	cut     int           // faults that are going on; the same below
	burst   int
	slow    int
	crossed int
	lastAt  time.Duration // when the last frame will arrive, faults apart

	chances [Damage + 1]uint32 // rates, of 2^32
	longest time.Duration      // that a frame waited

	// Every frame that was offered, or doubled, is counted in one of the other three.
	offered, doubled, delivered, lost, flying uint64
}

const (
	burstLoss  = 3 << 30 // of 2^32
	slowFactor = 40
	// overtaken bounds how much later a reordered frame arrives, in times of sending such a frame.
	overtaken = 8
)

func (l *link) reset(c *Link, host int, toSwitch bool) {
	*l = link{Link: c, host: host, toSwitch: toSwitch, ends: atHost}
	if toSwitch {
		l.ends = atSwitch
	}
	for kind, rate := range [...]float64{Loss: c.Loss, Duplicate: c.Duplicate, Reorder: c.Reorder, Late: c.Late, Damage: c.Damage} {
		l.chances[kind] = chance(rate)
	}
}

// chance returns a rate from 0 to 1 in units of 2^-32.
func chance(rate float64) uint32 { return uint32(min(rate*(1<<32), math.MaxUint32)) }

// send sends frame i over a link. From then on the frame belongs to the link.
func (w *world) send(l *link, i int32) {
	f := w.pool.frames[i]
	l.offered++
	if l.cut > 0 {
		w.lose(l, i, Cut)
		return
	}
	perByte := l.PicosPerByte
	if l.slow > 0 {
		perByte *= slowFactor
	}
	waiting := max(l.idleAt-w.now, 0)
	if l.crossed > 0 {
		waiting = max(waiting, time.Duration(int64(l.CrossBytes)*perByte/1000))
	}
	if int64(waiting)*1000 > int64(l.QueueBytes)*perByte {
		w.lose(l, i, QueueFull)
		return
	}
	takes := time.Duration(int64(f.bytes)*perByte/1000) + 1
	l.idleAt = w.now + waiting + takes
	l.freeAt = max(l.freeAt, w.now) + takes
	l.longest = max(l.longest, waiting)
	w.mark(l, f, int(int64(waiting)*1000/perByte))
	switch {
	case l.burst > 0 && w.frameRNG.Uint32() < burstLoss:
		w.lose(l, i, Burst)
		return
	case w.befalls(l, Loss, i):
		w.lose(l, i, Loss)
		return
	}
	if w.befalls(l, Damage, i) {
		w.damage(f)
	}
	if w.befalls(l, Duplicate, i) {
		twin := w.pool.lend()
		t := w.pool.frames[twin]
		t.bytes = f.bytes
		copy(t.data(), f.data())
		t.inherit(f)
		l.doubled++
		w.fly(l, twin, takes)
	}
	w.fly(l, i, takes)
}

// befalls decides whether a fault that has a rate happens to frame i, and counts it.
func (w *world) befalls(l *link, kind Fault, i int32) bool {
	if l.chances[kind] == 0 || w.frameRNG.Uint32() >= l.chances[kind] {
		return false
	}
	w.hit(w.pool.frames[i], kind)
	if w.recorder != nil && kind != Loss {
		w.recorder.note(w.now, "%v: next frame %v", kind, l)
	}
	return true
}

func (w *world) hit(f *frame, kind Fault) {
	if f.stream != noStream {
		w.tally[kind].Data++
	} else {
		w.tally[kind].Feedback++
	}
}

// fly puts frame i on its way.
func (w *world) fly(l *link, i int32, takes time.Duration) {
	at := l.idleAt + l.Delay + w.pool.frames[i].late
	if at < l.lastAt && w.pool.frames[i].stream != noStream {
		w.hit(w.pool.frames[i], Reorder) // it overtakes a copy of the other engine
	}
	l.lastAt = max(l.lastAt, at)
	if w.befalls(l, Reorder, i) {
		at += time.Duration(w.frameRNG.Int64N(int64(overtaken * takes)))
	}
	if w.befalls(l, Late, i) {
		at += time.Duration(w.frameRNG.Int64N(int64(l.LateBy)))
	}
	l.flying++
	w.schedule.add(event{at: at, kind: l.ends, host: int32(l.host), index: i})
}

// arrive counts a frame that has come to the end of the link.
func (l *link) arrive() {
	l.flying--
	l.delivered++
}

// lose ends frame i.
func (w *world) lose(l *link, i int32, why Fault) {
	l.lost++
	if why != Loss { // befalls has counted that
		w.hit(w.pool.frames[i], why)
	}
	w.record(l, w.pool.frames[i], lostTo[why])
	w.pool.giveBack(i)
}

// headerBytes has the EtherType of every frame.
const headerBytes = 14 + tagBytes

// damage changes up to four bytes in a row, which every CRC-32 notices.
func (w *world) damage(f *frame) {
	b := f.data()
	at := w.frameRNG.IntN(len(b))
	whole := [headerBytes]byte{}
	copy(whole[:], b) // what a byte means depends on those in front of it
	for k := at; k < min(len(b), at+1+w.frameRNG.IntN(4)); k++ {
		f.damaged = f.damaged || icrcCovers(whole[:], k)
		b[k] ^= byte(1 + w.frameRNG.IntN(255))
	}
	f.touched = true
}

// icrcCovers reports whether a change of byte k makes the ICRC wrong. It does not cover what a
// router may change (IBTA vol 1, 7.8.1 and annex A17), nor Ethernet.
func icrcCovers(b []byte, k int) bool {
	l3 := 14
	if b[12] == 0x81 {
		l3 += tagBytes
	}
	ipv6 := b[l3-2] == 0x86
	udp := l3 + 20
	routers := [...]int{1, 8, 10, 11} // IPv4: type of service, TTL, checksum
	if ipv6 {
		udp = l3 + 40
		routers = [...]int{1, 2, 3, 7} // IPv6: class, flow label, hop limit
	}
	bth := udp + 8
	if k < l3 || k == udp+6 || k == udp+7 || k == bth+4 {
		return false
	}
	for _, r := range routers {
		if k == l3+r {
			return false
		}
	}
	return k != l3 || !ipv6 // the byte has the version, and half of the traffic class
}
