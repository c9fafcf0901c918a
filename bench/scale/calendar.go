package scale

import (
	"container/heap"
	"math/bits"
)

// Time is a number of picoseconds.
type Time int64

// Units of Time.
const (
	Nanosecond  Time = 1000
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

type eventKind uint8

const (
	arrive eventKind = iota // a packet comes to the end of a link
	pump                    // the link of host index is idle, so its next packet may go out
	expire                  // a deadline of connection index, which may have moved since
	tick                    // a timer of box index, of the group of the packet
	begin                   // flow index begins
)

// event is something that happens at a time. Events of equal times happen in the order of
// scheduling.
type event struct {
	at       Time
	sequence uint64
	packet   packet
	index    int32 // a link, a host, a connection, a box or a flow
	next     int32 // in its slot of the calendar
	kind     eventKind
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.sequence < f.sequence
}

// The calendar has slots of about 4 ns, and reaches 268 us ahead.
const (
	slotShift = 12
	slots     = 1 << 16
	nobody    = -1
)

// calendar has the future events. Those of the near future are lists, one for each slot of time, so
// that an event costs the same among a hundred others and among a million. Those behind are a heap.
type calendar struct {
	slot     [slots]int32
	occupied [slots / 64]uint64
	pool     []event
	free     int32
	near     int   // events in slots
	number   int64 // the slot that is being emptied, counted from time 0

	now      []int32 // the events of that slot, in order
	taken    int     // of these
	far      far
	sequence uint64
}

func newCalendar() *calendar {
	c := &calendar{free: nobody}
	for i := range c.slot {
		c.slot[i] = nobody
	}
	return c
}

// add schedules an event. Its time is not in the past.
func (c *calendar) add(e event) {
	e.sequence = c.sequence
	c.sequence++
	number := int64(e.at) >> slotShift
	switch {
	case number-c.number >= slots:
		heap.Push(&c.far, e)
	case number <= c.number:
		c.insert(c.store(&e))
	default:
		c.link(number, c.store(&e))
	}
}

func (c *calendar) store(e *event) int32 {
	i := c.free
	if i == nobody {
		i = int32(len(c.pool))
		c.pool = append(c.pool, *e)
		return i
	}
	c.free = c.pool[i].next
	c.pool[i] = *e
	return i
}

func (c *calendar) link(number int64, i int32) {
	s := number & (slots - 1)
	c.pool[i].next, c.slot[s] = c.slot[s], i
	c.occupied[s>>6] |= 1 << (s & 63)
	c.near++
}

// insert puts an event among those of the present slot.
func (c *calendar) insert(i int32) {
	c.now = append(c.now, i)
	k := len(c.now) - 1
	for ; k > c.taken && c.pool[i].before(&c.pool[c.now[k-1]]); k-- {
		c.now[k] = c.now[k-1]
	}
	c.now[k] = i
}

// next takes the earliest event.
func (c *calendar) next() (e event, ok bool) {
	if c.taken == len(c.now) && !c.advance() {
		return e, false
	}
	i := c.now[c.taken]
	c.taken++
	e = c.pool[i]
	c.pool[i].next, c.free = c.free, i
	return e, true
}

// putBack undoes next.
func (c *calendar) putBack(e *event) {
	c.taken--
	c.now[c.taken] = c.store(e)
}

// advance goes on to the next slot that has an event. No far event is in an earlier slot: it was
// beyond the reach of an earlier slot, and all events of the slots were not.
func (c *calendar) advance() bool {
	c.now, c.taken = c.now[:0], 0
	if c.near == 0 {
		if len(c.far) == 0 {
			return false
		}
		c.number = int64(c.far[0].at) >> slotShift
	} else {
		c.number = c.occupiedAfter(c.number)
	}
	for len(c.far) > 0 && int64(c.far[0].at)>>slotShift-c.number < slots {
		e := heap.Pop(&c.far).(event)
		c.link(int64(e.at)>>slotShift, c.store(&e))
	}
	s := c.number & (slots - 1)
	first := c.slot[s]
	c.slot[s] = nobody
	c.occupied[s>>6] &^= 1 << (s & 63)
	for i := first; i != nobody; i = c.pool[i].next {
		c.now = append(c.now, i)
		c.near--
	}
	c.order()
	return true
}

// occupiedAfter returns the first slot behind the one with a number that has events.
func (c *calendar) occupiedAfter(number int64) int64 {
	for t := number + 1; ; {
		s := t & (slots - 1)
		if w := c.occupied[s>>6] >> (s & 63); w != 0 {
			return t + int64(bits.TrailingZeros64(w))
		}
		t += 64 - s&63
	}
}

// order sorts the events of the present slot. They come in the reverse order of scheduling, so most
// of the work is to turn them round.
func (c *calendar) order() {
	for i, k := 0, len(c.now)-1; i < k; i, k = i+1, k-1 {
		c.now[i], c.now[k] = c.now[k], c.now[i]
	}
	for k := 1; k < len(c.now); k++ {
		i, m := c.now[k], k
		for ; m > 0 && c.pool[i].before(&c.pool[c.now[m-1]]); m-- {
			c.now[m] = c.now[m-1]
		}
		c.now[m] = i
	}
}

// far is a heap of events.
type far []event

func (f far) Len() int           { return len(f) }
func (f far) Less(i, k int) bool { return f[i].before(&f[k]) }
func (f far) Swap(i, k int)      { f[i], f[k] = f[k], f[i] }

// Push is part of heap.Interface.
func (f *far) Push(e any) { *f = append(*f, e.(event)) }

// Pop is part of heap.Interface.
func (f *far) Pop() any {
	last := len(*f) - 1
	e := (*f)[last]
	*f = (*f)[:last]
	return e
}
