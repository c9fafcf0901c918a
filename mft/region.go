package mft

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rocast/rocast/roce"
)

// MaxRanges bounds the virtual memory of one group.
const MaxRanges = 1 << 20

// VirtualRegion is memory as the source addresses it in a RETH.
type VirtualRegion struct {
	VA     uint64
	Length uint64 // bytes
	RKey   uint32
}

// Region is where one receiver keeps a virtual region.
type Region struct {
	VA     uint64
	Length uint64 // bytes
	RKey   uint32
}

// Memory is the virtual memory of a group: ranges that do not overlap under one R_Key. Each
// receiver has Regions for it. A Memory is immutable, and so are the chunks that it shares with the
// Memory that it was made from: a change copies the chunks that it touches and the list of chunks.
// The nil Memory, like that of a group without memory, has no ranges.
type Memory struct {
	chunks []chunk
	length int
}

// chunk is a run of ranges in the order of compareRanges. It has at least one.
type chunk struct {
	va     uint64 // of the first range, here for the search among the chunks
	rkey   uint32
	ranges []VirtualRegion
}

const (
	chunkBits   = 9
	chunkRanges = 1 << chunkBits // the most ranges of a chunk
)

// NewMemory returns the memory with these ranges, in any order.
func NewMemory(ranges ...VirtualRegion) (*Memory, error) { return new(Memory).Change(nil, ranges) }

// MustMemory is NewMemory for ranges that are known to be right. It panics otherwise.
func MustMemory(ranges ...VirtualRegion) *Memory {
	m, err := NewMemory(ranges...)
	if err != nil {
		panic(err)
	}
	return m
}

// Len is the number of ranges.
func (m *Memory) Len() int {
	if m == nil {
		return 0
	}
	return m.length
}

// All calls yield for every range with its index, as Find returns it, until yield returns false.
func (m *Memory) All(yield func(int, VirtualRegion) bool) {
	for c, chunk := range m.list() {
		for i, r := range chunk.ranges {
			if !yield(c<<chunkBits|i, r) {
				return
			}
		}
	}
}

// Range returns a range by its index.
func (m *Memory) Range(index int) VirtualRegion {
	return m.chunks[index>>chunkBits].ranges[index&(chunkRanges-1)]
}

// Find returns the index of the range that contains all of [va, va+length) under rkey, or -1. A
// memory of up to 256 ranges has the indexes from 0 on. A receiver's NIC would answer a request
// outside its memory with a remote access error (IBTA vol 1, 9.7.4.1).
func (m *Memory) Find(va uint64, rkey uint32, length uint32) int {
	if m == nil {
		return -1
	}
	lo, hi := 0, len(m.chunks)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c := &m.chunks[mid]; c.rkey < rkey || c.rkey == rkey && c.va <= va {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return -1
	}
	at := lo - 1
	ranges := m.chunks[at].ranges
	lo, hi = 0, len(ranges)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if r := &ranges[mid]; r.RKey < rkey || r.RKey == rkey && r.VA <= va {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	r := &ranges[lo-1] // the chunk's first range is not behind va
	if r.RKey != rkey || va-r.VA > r.Length || uint64(length) > r.Length-(va-r.VA) {
		return -1
	}
	return at<<chunkBits | (lo - 1)
}

// Become returns the memory with exactly these ranges, in any order. It shares the chunks that do
// not change, and is m itself if nothing changes.
func (m *Memory) Become(ranges []VirtualRegion) (*Memory, error) {
	if m == nil {
		m = new(Memory)
	}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, compareRanges)
	var remove, add []VirtualRegion
	for _, was := range m.All {
		for len(sorted) > 0 && compareRanges(sorted[0], was) < 0 {
			add, sorted = append(add, sorted[0]), sorted[1:]
		}
		if len(sorted) > 0 && sorted[0] == was {
			sorted = sorted[1:]
		} else {
			remove = append(remove, was)
		}
	}
	return m.Change(remove, append(add, sorted...))
}

// Change returns the memory without the ranges of remove and with those of add, each in any order.
// If neither has any it returns m. The errors name no R_Key, which is a secret.
func (m *Memory) Change(remove, add []VirtualRegion) (*Memory, error) {
	if len(remove) == 0 && len(add) == 0 {
		return m, nil
	}
	for _, r := range add {
		if err := r.check(); err != nil {
			return nil, err
		}
	}
	next := &Memory{length: m.length - len(remove) + len(add)}
	if next.length > MaxRanges {
		return nil, fmt.Errorf("%d ranges of memory are more than the %d that a group can have", next.length, MaxRanges)
	}
	next.chunks = make([]chunk, 0, len(m.chunks)+len(add)/chunkRanges+1)
	remove, add = slices.SortedFunc(slices.Values(remove), compareRanges), slices.SortedFunc(slices.Values(add), compareRanges)
	for c := range max(1, len(m.chunks)) {
		was := chunk{}
		if c < len(m.chunks) {
			was = m.chunks[c]
		}
		r, a := m.before(c+1, remove), m.before(c+1, add)
		ranges, err := was.ranges, error(nil)
		if r+a > 0 {
			ranges, err = merge(was.ranges, remove[:r], add[:a])
		}
		if err == nil {
			err = next.checkBehind(ranges)
		}
		if err != nil {
			return nil, err
		}
		if r+a == 0 && !next.joins(ranges) {
			next.chunks = append(next.chunks, was)
		} else {
			next.put(ranges)
		}
		remove, add = remove[r:], add[a:]
	}
	return next, nil
}

// checkBehind compares the last range with the ranges that are about to be appended, and those with
// each other.
func (m *Memory) checkBehind(ranges []VirtualRegion) error {
	n := len(m.chunks)
	if n == 0 || len(ranges) == 0 {
		return nil
	}
	last := m.chunks[n-1].ranges
	return checkOverlap(last[len(last)-1], ranges[0])
}

func (r *VirtualRegion) check() error {
	switch {
	case r.Length == 0:
		return fmt.Errorf("the range of memory at VA %#x has length 0", r.VA)
	case r.Length-1 > math.MaxUint64-r.VA:
		return fmt.Errorf("the range of memory at VA %#x ends beyond 2^64", r.VA)
	}
	return nil
}

// before returns how many of the sorted ranges lie before chunk c.
func (m *Memory) before(c int, sorted []VirtualRegion) int {
	if c >= len(m.chunks) {
		return len(sorted)
	}
	n, _ := slices.BinarySearchFunc(sorted, m.chunks[c].ranges[0], compareRanges)
	return n
}

// merge returns the sorted ranges of old without remove, and those of add. All are sorted.
func merge(old, remove, add []VirtualRegion) ([]VirtualRegion, error) {
	merged := make([]VirtualRegion, 0, len(old)+len(add))
	for _, r := range old {
		if len(remove) > 0 && remove[0] == r {
			remove = remove[1:]
			continue
		}
		for len(add) > 0 && compareRanges(add[0], r) < 0 {
			merged, add = append(merged, add[0]), add[1:]
		}
		merged = append(merged, r)
	}
	if len(remove) > 0 {
		return nil, fmt.Errorf("the memory has no range at VA %#x of %d bytes under that R_Key", remove[0].VA, remove[0].Length)
	}
	merged = append(merged, add...)
	for i := 1; i < len(merged); i++ {
		if err := checkOverlap(merged[i-1], merged[i]); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

// joins reports whether the ranges become one chunk with the last one. Two neighbours have more
// than half of what a chunk can have, so that the memory does not keep many small chunks after
// ranges have left, and the ranges of a small memory are in one chunk.
func (m *Memory) joins(ranges []VirtualRegion) bool {
	n := len(m.chunks)
	return n > 0 && len(m.chunks[n-1].ranges)+len(ranges) <= chunkRanges/2
}

// put appends ranges in chunks of equal size.
func (m *Memory) put(ranges []VirtualRegion) {
	if m.joins(ranges) {
		last := len(m.chunks) - 1
		ranges = slices.Concat(m.chunks[last].ranges, ranges)
		m.chunks = m.chunks[:last]
	}
	for pieces := (len(ranges) + chunkRanges - 1) / chunkRanges; pieces > 0; pieces-- {
		n := len(ranges) / pieces
		m.chunks = append(m.chunks, chunk{va: ranges[0].VA, rkey: ranges[0].RKey, ranges: slices.Clone(ranges[:n])})
		ranges = ranges[n:]
	}
}

// ErrOverlap is wrapped by the error for two ranges that one RETH could match.
var ErrOverlap = errors.New("overlaps another one under the same R_Key, so an address in both would be ambiguous")

// checkOverlap compares two ranges of which a comes first.
func checkOverlap(a, b VirtualRegion) error {
	if a.RKey == b.RKey && b.VA-a.VA < a.Length {
		return fmt.Errorf("the range of memory at VA %#x %w", b.VA, ErrOverlap)
	}
	return nil
}

func compareRanges(a, b VirtualRegion) int {
	return cmp.Or(cmp.Compare(a.RKey, b.RKey), cmp.Compare(a.VA, b.VA), cmp.Compare(a.Length, b.Length))
}

// Regions says where one receiver keeps the ranges of its group's Memory. Like a Memory, Regions
// are immutable and share the chunks that a change leaves.
type Regions struct {
	chunks [][]roce.Target // parallel to those of the Memory
}

// At returns the Regions of a receiver that keeps each range where to says.
func (m *Memory) At(to func(VirtualRegion) Region) Regions { return Regions{}.Follow(nil, m, to) }

// Follow returns the Regions for a new Memory, is. r are the Regions for the old one, was. For each
// range that only the new Memory has, Follow calls to.
func (r Regions) Follow(was, is *Memory, to func(VirtualRegion) Region) Regions {
	if was == is {
		return r
	}
	before, after := was.list(), is.list()
	next := Regions{chunks: make([][]roce.Target, len(after))}
	for c := range after {
		ranges := after[c].ranges
		for len(before) > 0 && compareRanges(before[0].ranges[0], ranges[0]) < 0 {
			before = before[1:]
		}
		if len(before) > 0 && &before[0].ranges[0] == &ranges[0] {
			next.chunks[c] = r.chunks[len(was.chunks)-len(before)]
			continue
		}
		targets := make([]roce.Target, len(ranges))
		for i, v := range ranges {
			if at := was.Find(v.VA, v.RKey, 0); at >= 0 && was.Range(at) == v {
				targets[i] = *r.Target(at)
			} else {
				region := to(v)
				targets[i] = roce.NewTarget(v.VA, v.RKey, region.VA, region.RKey)
			}
		}
		next.chunks[c] = targets
	}
	return next
}

func (m *Memory) list() []chunk {
	if m == nil {
		return nil
	}
	return m.chunks
}

// Target returns where a range is at the receiver, or nil for index -1, which means that the packet
// has no range.
func (r *Regions) Target(index int) *roce.Target {
	if index < 0 {
		return nil
	}
	return &r.chunks[index>>chunkBits][index&(chunkRanges-1)]
}

// first returns the targets of the ranges of the first chunk.
func (r *Regions) first() []roce.Target {
	if len(r.chunks) == 0 {
		return nil
	}
	return r.chunks[0]
}

// Region returns where the receiver keeps a range of m.
func (r *Regions) Region(m *Memory, index int) Region {
	v, t := m.Range(index), r.Target(index)
	return Region{VA: v.VA + t.DeltaVA, Length: v.Length, RKey: t.RKey}
}

// fit reports whether the receiver keeps exactly the ranges of m.
func (r *Regions) fit(m *Memory) bool {
	return slices.EqualFunc(r.chunks, m.list(), func(t []roce.Target, c chunk) bool { return len(t) == len(c.ranges) })
}
