package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"sync"
)

// An entry of a log is one packet, so its number follows from the packet's PSN.
const (
	entryBytes = 64
	logEntries = 1 << 16
	logBytes   = entryBytes * logEntries
)

// entry is what a leader wants at one place of the log.
type entry struct {
	index uint64 // its place, from 0
	term  uint64 // of the leader that wrote it
	op    uint64 // what it does; here a number that counts all that was ever asked for. 0: nothing
	sum   uint64 // over this entry and all before: two logs that have it in common are the same up to here
}

var checksums = crc64.MakeTable(crc64.ECMA)

// after returns the entry that follows in a log.
func after(log []entry, term, op uint64) entry {
	e := entry{index: uint64(len(log)), term: term, op: op}
	before := uint64(0)
	if len(log) > 0 {
		before = log[len(log)-1].sum
	}
	e.sum = crc64.Update(before, checksums, e.bytes()[:entryBytes-8])
	return e
}

// bytes is the entry as it is in memory.
func (e entry) bytes() []byte {
	text := make([]byte, entryBytes)
	for i, v := range []uint64{e.index, e.term, e.op} {
		binary.BigEndian.PutUint64(text[8*i:], v)
	}
	binary.BigEndian.PutUint64(text[entryBytes-8:], e.sum)
	return text
}

// readLog returns the entries that memory begins with: up to the first one that is not whole, or
// does not follow from the one before. Entries that an earlier leader left behind do not follow.
func readLog(memory []byte) (log []entry) {
	before := uint64(0)
	for ; len(memory) >= entryBytes; memory = memory[entryBytes:] {
		number := func(i int) uint64 { return binary.BigEndian.Uint64(memory[8*i:]) }
		e := entry{index: number(0), term: number(1), op: number(2), sum: number(entryBytes/8 - 1)}
		before = crc64.Update(before, checksums, memory[:entryBytes-8])
		if e.index != uint64(len(log)) || e.term == 0 || e.sum != before {
			break
		}
		log = append(log, e)
	}
	return log
}

// newest returns the log that a new leader goes on with: of those whose last entry has the highest
// term, the longest. Of the replicas of any quorum, one has everything that is decided.
func newest(logs [][]entry) (best []entry) {
	last := func(l []entry) uint64 {
		if len(l) == 0 {
			return 0
		}
		return l[len(l)-1].term
	}
	for _, l := range logs {
		if last(l) > last(best) || last(l) == last(best) && len(l) > len(best) {
			best = l
		}
	}
	return best
}

// common is how many entries all logs begin with.
func common(logs [][]entry) int {
	for n := 0; ; n++ {
		for _, l := range logs {
			if n == len(l) || l[n] != logs[0][n] {
				return n
			}
		}
	}
}

// checker knows what was decided, and finds what a log has lost, changed or put in another order.
type checker struct {
	mu      sync.Mutex
	decided map[uint64]uint64 // op by index
	wrong   []error
}

// decide notes that a leader has told its client that op is decided.
func (c *checker) decide(e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, again := c.decided[e.index]; again && before != e.op {
		c.wrong = append(c.wrong, fmt.Errorf("entry %d was decided as %d, and again as %d", e.index, before, e.op))
	}
	c.decided[e.index] = e.op
}

// check looks at the log of a replica that has caught up.
func (c *checker) check(log []entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for index, op := range c.decided {
		if index >= uint64(len(log)) {
			return fmt.Errorf("entry %d, which was decided, is lost: the log has %d", index, len(log))
		}
		if got := log[index].op; got != op {
			return fmt.Errorf("entry %d is %d and was decided as %d", index, got, op)
		}
	}
	last := uint64(0)
	for i, e := range log {
		if e.op != 0 && e.op <= last {
			return fmt.Errorf("entry %d is %d, which was asked for before %d", i, e.op, last)
		}
		last = max(last, e.op)
	}
	if c.wrong != nil {
		return c.wrong[0]
	}
	return nil
}
