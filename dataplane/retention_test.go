package dataplane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

// chunkPool has buffers that are only numbers, and knows which of them are lent.
type chunkPool struct {
	t    testing.TB
	lent map[uint64]bool
	next uint64
}

func (p *chunkPool) Get(*Frame) bool                  { return false }
func (p *chunkPool) Load(*Frame, []byte, []byte) bool { return false }

func (p *chunkPool) Put(f *Frame) {
	if f.Kept {
		f.Kept = false
		return
	}
	for _, c := range f.Chunks[:f.FragmentCount] {
		if !p.lent[c] {
			p.t.Fatalf("buffer %d was put back twice", c)
		}
		delete(p.lent, c)
	}
}

func (p *chunkPool) frame(psn roce.PSN, chunks int) *Frame {
	f := &Frame{FragmentCount: chunks, Original: roce.Original{PSN: psn}}
	for i := range chunks {
		p.next++
		f.Chunks[i] = p.next
		p.lent[p.next] = true
	}
	return f
}

// kept is a packet in the model: its group, its PSN, its first buffer.
type keptPacket struct {
	group   int
	psn     roce.PSN
	first   uint64
	chunks  int
	checked bool
	engine  bool // which has no buffer of the pool
}

// retentionModel is a list of the retained packets, the oldest first.
type retentionModel struct {
	t       *testing.T
	r       *retention
	pool    *chunkPool
	groups  [3]*state
	kept    []keptPacket
	pending int // released buffers that were not put back
}

const modelWindow = 8

func newRetentionModel(t *testing.T, room int, first roce.PSN) *retentionModel {
	m := &retentionModel{t: t, r: newRetention(room), pool: &chunkPool{t: t, lent: map[uint64]bool{}}}
	for i := range m.groups {
		h := newHeld(modelWindow, 1<<20)
		h.oldest, h.next = first, first
		m.groups[i] = &state{held: h}
	}
	return m
}

// drop removes what is to go from the model.
func (m *retentionModel) drop(goes func(k keptPacket) bool) {
	m.kept = slices.DeleteFunc(m.kept, func(k keptPacket) bool {
		if goes(k) {
			m.pending += k.chunks
		}
		return goes(k)
	})
}

func (m *retentionModel) keep(group, chunks int, checked bool, skip int32) {
	st := m.groups[group]
	f := m.pool.frame(st.held.next.Add(skip), chunks)
	for !m.r.fits(f) { // as the core does: the oldest packet of all groups goes
		oldest := m.kept[slices.IndexFunc(m.kept, func(k keptPacket) bool { return !k.engine })]
		s := &m.r.slots[m.r.oldest]
		if s.owner != m.groups[oldest.group] || s.frame.Original.PSN != oldest.psn {
			m.t.Fatalf("the oldest packet is %d of another group, want %+v", s.frame.Original.PSN, oldest)
		}
		m.r.releaseBelow(s.owner.held, oldest.psn.Next())
		m.drop(func(k keptPacket) bool { return k.group == oldest.group && !k.psn.After(oldest.psn) })
	}
	m.r.keep(st, f, checked)
	psn := f.Original.PSN
	m.drop(func(k keptPacket) bool { return k.group == group && (skip != 0 || psn.Sub(k.psn) >= modelWindow) })
	m.kept = append(m.kept, keptPacket{group, psn, f.Chunks[0], chunks, checked, false})
	m.pool.Put(f) // which does nothing, because the retention has the buffers
}

// replace is what the core does with a packet that comes again. Where the engine has it, it becomes
// the newest of all packets.
func (m *retentionModel) replace(i, chunks int) {
	k := m.kept[i]
	f := m.pool.frame(k.psn, chunks)
	if !m.r.fits(f) {
		m.pool.Put(f)
		return
	}
	m.r.replace(m.groups[k.group], f)
	m.pending += k.chunks
	is := keptPacket{k.group, k.psn, f.Chunks[0], chunks, true, false}
	if m.kept[i] = is; k.engine {
		m.kept = append(slices.Delete(m.kept, i, i+1), is)
	}
	m.pool.Put(f)
}

// carry lets the engine carry some packets of a group, after which no more than some are needed.
func (m *retentionModel) carry(group int, packets, needed int32) {
	h := m.groups[group].held
	last := h.next.Add(packets - 1)
	for psn := h.next; !psn.After(last); psn = psn.Next() {
		m.kept = append(m.kept, keptPacket{group: group, psn: psn, engine: true})
	}
	m.r.carried(h, last.Add(1-needed), last)
	m.drop(func(k keptPacket) bool { return k.group == group && last.Sub(k.psn) >= needed })
}

// check compares the whole retention with the model.
func (m *retentionModel) check(step string) {
	m.t.Helper()
	chunks, buffered := 0, 0
	for _, k := range m.kept {
		chunks += k.chunks
		h := m.groups[k.group].held
		s, got, want := m.r.find(h, k.psn), "nothing", "nothing"
		if s != nil {
			got = fmt.Sprint(s.owner == m.groups[k.group], s.frame.Chunks[0], s.frame.FragmentCount, s.checked, s.frame.Kept)
		}
		if !k.engine {
			buffered++
			want = fmt.Sprint(true, k.first, k.chunks, k.checked, true)
		}
		if got != want || h.engineHas(k.psn) != k.engine {
			m.t.Fatalf("%s: packet %d of group %d: %s, want %s; in the engine %v", step, k.psn, k.group, got, want, h.engineHas(k.psn))
		}
	}
	for g, st := range m.groups {
		n, newest, some, used := 0, roce.PSN(0), false, 0
		h := st.held
		for _, k := range m.kept {
			if k.group == g {
				n++
				used += max(1, k.chunks) // a packet in the engine counts as one buffer
			}
			if k.group == g && k.engine && (!some || k.psn.After(newest)) {
				newest, some = k.psn, true
			}
		}
		if h.used != used {
			m.t.Fatalf("%s: group %d uses %d buffers, want %d", step, g, h.used, used)
		}
		if psn, any := h.newestInEngine(); any != some || some && psn != newest {
			m.t.Fatalf("%s: the newest packet of group %d in the engine is %d (%v), want %d", step, g, psn, any, newest)
		}
		if int(h.next.Sub(h.oldest)) != n || m.r.find(h, h.oldest.Prev()) != nil || m.r.find(h, h.next) != nil {
			m.t.Fatalf("%s: group %d has %d to %d, want %d packets", step, g, h.oldest, h.next, n)
		}
	}
	owned := 0
	for i := range m.r.slots { // a slot that is not in use must not keep a group alive that was removed
		if m.r.slots[i].owner != nil {
			owned++
		}
	}
	if owned != buffered || m.r.chunks != chunks || m.r.packets != buffered || chunks > m.r.room || len(m.pool.lent) != chunks+m.pending {
		m.t.Fatalf("%s: %d packets in %d buffers, want %d in %d; %d lent, of which %d wait to be put back",
			step, m.r.packets, m.r.chunks, buffered, chunks, len(m.pool.lent), m.pending)
	}
}

func (m *retentionModel) step(r *rand.Rand) string {
	group, chunks := r.IntN(len(m.groups)), 1+r.IntN(2)
	h := m.groups[group].held
	switch n := r.IntN(100); {
	case n < 60:
		m.keep(group, chunks, r.IntN(2) == 0, 0)
		return fmt.Sprint("keep in ", group)
	case n < 62:
		m.keep(group, chunks, true, int32(1+r.IntN(5)))
		return fmt.Sprint("skip in ", group)
	case n < 66:
		m.carry(group, int32(1+r.IntN(2*modelWindow)), int32(r.IntN(modelWindow+1)))
		return fmt.Sprint("carry in ", group)
	case n < 75 && len(m.kept) > 0:
		i := r.IntN(len(m.kept))
		m.replace(i, chunks)
		return fmt.Sprint("replace ", i)
	case n < 95:
		below := h.oldest.Add(int32(r.IntN(4)) - 1)
		m.r.releaseBelow(h, below)
		m.drop(func(k keptPacket) bool { return k.group == group && k.psn.Before(below) })
		return fmt.Sprint("release below ", below, " of ", group)
	default:
		m.r.releaseAll(h)
		m.drop(func(k keptPacket) bool { return k.group == group })
		return fmt.Sprint("release all of ", group)
	}
}

// The retention does what a plain list does, across the wrap of PSNs, and no buffer is ever lost or
// used twice.
func TestRetentionIsAListOfPackets(t *testing.T) {
	testlab.Long(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := newRetentionModel(t, 2+r.IntN(20), roce.PSN(0xFFFFF0))
		for i := range 300 {
			step := m.step(r)
			m.check(fmt.Sprintf("seed %d, step %d, %s", seed, i, step))
			if i%batchFrames == 0 || r.IntN(8) == 0 {
				m.r.putBack(m.pool)
				m.pending = 0
				m.check("put back")
				if unused := len(m.r.slots) - m.r.packets; m.r.unused != unused {
					t.Fatalf("seed %d, step %d: %d slots are unused, want %d", seed, i, m.r.unused, unused)
				}
			}
		}
		for _, st := range m.groups {
			m.r.releaseAll(st.held)
		}
		m.r.putBack(m.pool)
		if len(m.pool.lent) != 0 || m.r.oldest != noSlot || m.r.newest != noSlot {
			t.Fatalf("seed %d: %d buffers are lent at the end", seed, len(m.pool.lent))
		}
	}
}

// A whole batch may displace as many packets before their buffers are put back.
func TestABatchDisplacesAsManyPackets(t *testing.T) {
	m := newRetentionModel(t, 3, 0)
	for range 3 {
		m.keep(0, 1, true, 0)
	}
	for range 3 {
		m.r.putBack(m.pool)
		m.pending = 0
		for range batchFrames {
			m.keep(0, 1, true, 0)
			m.check("displaced")
		}
	}
}

// The ring of a group is as large as its window, also where that is no power of two.
func TestTheRingHasRoomForTheWindow(t *testing.T) {
	for packets, want := range map[int]int{1: 1, 2: 2, 3: 4, 1000: 1024, 1024: 1024, 1025: 2048} {
		if got := len(newHeld(packets, 1).at); got != want {
			t.Errorf("%d packets: %d, want %d", packets, got, want)
		}
	}
}

// A group at its bound has room for a packet in place of one that takes as much.
func TestAPacketMayReplaceOneOfItsSize(t *testing.T) {
	m := newRetentionModel(t, 20, 1000)
	st := m.groups[0]
	st.held.room = 4
	m.keep(0, 2, true, 0)
	m.carry(0, 1, modelWindow)
	m.keep(0, 1, true, 0)
	for _, c := range []struct {
		psn          roce.PSN
		chunks       int
		new, instead bool
	}{{1000, 1, false, true}, {1000, 2, false, true}, {1000, 3, false, false}, {1001, 1, false, true}, {1001, 2, false, false}, {1002, 1, false, true}, {1002, 2, false, false}} {
		f := m.pool.frame(c.psn, c.chunks)
		if st.held.hasRoom(f) != c.new || m.r.hasRoomInstead(st.held, f) != c.instead {
			t.Errorf("%+v", c)
		}
	}
	m.r.releaseBelow(st.held, 1001)
	if f := m.pool.frame(1003, 2); !st.held.hasRoom(f) {
		t.Error("no room for two buffers, of which two are free")
	}
}

// A packet that is not of this batch must leave slots for the batch.
func TestFetchedPacketsLeaveSlots(t *testing.T) {
	r, f := newRetention(3), &Frame{FragmentCount: 3}
	for unused, want := range map[int]bool{batchFrames: false, batchFrames + 1: true} {
		if r.unused = unused; r.fitsBeside(f) != want {
			t.Errorf("with %d unused slots it fits: %v", unused, !want)
		}
	}
	if f.FragmentCount = 4; r.fitsBeside(f) {
		t.Error("a packet fits that is larger than the room")
	}
}

func TestRepairCountsAddUp(t *testing.T) {
	c := RepairCounts{1, 2, 3, 4, 5, 6, 7, 12, [...]uint64{8, 9, 10}}
	if c.add(&RepairCounts{10, 20, 30, 40, 50, 60, 70, 120, [...]uint64{80, 90, 100}}); c != (RepairCounts{11, 22, 33, 44, 55, 66, 77, 132, [...]uint64{88, 99, 110}}) {
		t.Errorf("%+v", c)
	}
}
