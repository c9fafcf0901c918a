package model

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/rocast/rocast/feedback"
)

// fingerprint identifies a state, up to a permutation of its receivers. 0 means no state.
type fingerprint uint64

// encoder holds the buffers that encode uses.
type encoder struct {
	whole []byte
	parts [maxReceivers][]byte
}

func (c *encoder) fingerprint(w *World, s *state) fingerprint {
	return hash(c.encode(w, s))
}

// encode appends all the data of a state that can influence later moves or later checks.
func (c *encoder) encode(w *World, s *state) []byte {
	src, left := &s.src, &s.left
	b := append(c.whole[:0], src.unacked, src.next, src.sent, bit(src.idle)|bit(src.retried)<<1|bit(src.rnrWait)<<2|bit(src.deaf)<<3,
		byte(src.status), byte(src.end.syndrome), src.end.packet, byte(s.place), byte(s.told), byte(s.messages),
		left.losses, left.doubles, left.delays, left.early, left.notReady, left.fatals, left.deaths, left.crashes, left.stale, left.ticks,
		left.armed, left.forgets, left.takes, s.first, s.beside, bit(s.fan.armed)|bit(s.fan.taking)<<1|bit(s.few)<<2|bit(s.fan.merges)<<3, s.fan.next, s.fan.limit, src.retries, s.home.n)
	for _, m := range s.home.all() {
		b = append(b, byte(m.packet), byte(m.syndrome))
	}
	b = s.group.AppendState(b, w.First, s.now)
	b = w.append(b, s.fan.told)
	inBlock := 0
	for i := range s.receivers[:w.Receivers] {
		r := &s.receivers[i]
		c.parts[i] = s.group.AppendPath(r.append(c.parts[i][:0]), i, w.First, s.now)
		if s.fan.merges && r.inBlock {
			c.parts[i] = w.append(c.parts[i], s.fan.at[inBlock])
			inBlock++
		}
	}
	if w.symmetric() {
		slices.SortFunc(c.parts[:w.Receivers], bytes.Compare)
	}
	for _, p := range c.parts[:w.Receivers] {
		b = append(append(b, byte(len(p))), p...)
	}
	c.whole = b
	return b
}

func (w *World) append(b []byte, p feedback.Progress) []byte {
	return append(b, byte(w.packet(p.PSN)), byte(p.MSN.Sub(0)))
}

// symmetric reports whether the merging treats all its paths alike. The eviction of silent
// receivers does not: it takes the paths in order, and stops when too few receivers are left. Nor
// is one alike that is a source.
func (w *World) symmetric() bool { return w.Policy.SilentAfter == 0 && !w.Member && !w.Next }

func (r *receiver) append(b []byte) []byte {
	b = append(b, r.expected, r.from, bit(r.joining)|bit(r.stored)<<1,
		bit(r.naked)|bit(r.dead)<<1|bit(r.out)<<2|bit(r.gone)<<3|bit(r.heardNAK)<<4|bit(r.inBlock)<<5|bit(r.left)<<6|bit(r.away)<<7, r.down.n, r.aside.n)
	b = append(b, r.down.all()...)
	aside := len(b)
	for _, a := range r.aside.all() {
		b = append(b, byte(a.packet), a.msn, byte(a.syndrome))
	}
	if late := b[aside:]; r.aside.n == 2 && bytes.Compare(late[:3], late[3:]) > 0 { // the order of the two answers does not matter
		for k := range 3 {
			late[k], late[k+3] = late[k+3], late[k]
		}
	}
	return b
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// hash processes eight bytes at a time by a multiplication of 64 by 64 bits.
func hash(b []byte) fingerprint {
	const k0, k1 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
	h := uint64(len(b)) * k0
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h^binary.LittleEndian.Uint64(b), k1)
	}
	var rest [8]byte
	copy(rest[:], b)
	h = fold(fold(h^binary.LittleEndian.Uint64(rest[:]), k1)^k0, k0)
	return fingerprint(max(h>>1, 1))
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// visited is the set of the visited states. It uses open addressing, and grows before it is full.
// The low bit of an entry says that the state is on the search stack.
type visited struct {
	slots []uint64
	n     int
}

const firstSlots = 1 << 16

// find returns the index of f, or the index at which f belongs.
func (v *visited) find(f fingerprint) int {
	i := int(f) & (len(v.slots) - 1)
	for v.slots[i] != 0 && fingerprint(v.slots[i]>>1) != f {
		i = (i + 1) & (len(v.slots) - 1)
	}
	return i
}

// enter adds f, which is now on the search stack. It reports whether f was visited before, and
// whether f was already on the stack.
func (v *visited) enter(f fingerprint) (met, standing bool) {
	if 4*v.n >= 3*len(v.slots) {
		v.grow()
	}
	i := v.find(f)
	if v.slots[i] != 0 {
		return true, v.slots[i]&1 == 1
	}
	v.slots[i] = uint64(f)<<1 | 1
	v.n++
	return false, false
}

// unstack removes f from the search stack, but not from the visited states.
func (v *visited) unstack(f fingerprint) { v.slots[v.find(f)] &^= 1 }

func (v *visited) grow() {
	old := v.slots
	v.slots = make([]uint64, max(2*len(old), firstSlots))
	for _, slot := range old {
		if slot != 0 {
			v.slots[v.find(fingerprint(slot>>1))] = slot
		}
	}
}
