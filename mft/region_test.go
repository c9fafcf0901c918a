package mft

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rocast/rocast/internal/testlab"
)

var twoRanges = MustMemory(VirtualRegion{VA: 0x1000, Length: 0x100, RKey: 1}, VirtualRegion{VA: math.MaxUint64 - 0xFF, Length: 0x100, RKey: 1})

// same is the place of a range at a receiver that knows the source's addresses.
func same(v VirtualRegion) Region { return Region(v) }

func TestRegions(t *testing.T) {
	for _, tt := range []struct {
		va     uint64
		rkey   uint32
		length uint32
		region int
	}{
		{0x1000, 1, 0x100, 0}, {0x10FF, 1, 1, 0}, {0x1100, 1, 0, 0},
		{0x10FF, 1, 2, -1}, {0xFFF, 1, 1, -1}, {0x1000, 2, 1, -1}, {0x1000, 0, 1, -1}, {0x1000, 1, ^uint32(0), -1},
		{^uint64(0), 1, 1, 1}, {^uint64(0), 1, 2, -1}, {0, 1, 1, -1},
	} {
		if got := twoRanges.Find(tt.va, tt.rkey, tt.length); got != tt.region {
			t.Errorf("VA %#x rkey %d length %#x: region %d, want %d", tt.va, tt.rkey, tt.length, got, tt.region)
		}
	}
	at := twoRanges.At(func(v VirtualRegion) Region { return Region{VA: v.VA>>60<<4 + 0x20, RKey: 12} })
	if to := at.Target(1); math.MaxUint64+to.DeltaVA != 0xF0+0x20+0xFF || to.RKey != 12 {
		t.Errorf("region 1 is at %#x, %d", math.MaxUint64+to.DeltaVA, to.RKey)
	}
	if got, want := at.Region(twoRanges, 1), (Region{VA: 0xF0 + 0x20, Length: 0x100, RKey: 12}); got != want {
		t.Errorf("region 1 is %+v, want %+v", got, want)
	}
	if at.Target(-1) != nil {
		t.Error("a packet without a range has a target")
	}
	var none *Memory
	if none.Find(0, 0, 0) >= 0 || new(Memory).Find(0, 0, 0) >= 0 || none.Len() != 0 {
		t.Error("no memory has a range")
	}
}

// Ranges that touch are two ranges: a WRITE across both is refused, because each may be elsewhere
// at the receivers.
func TestNoWriteCrossesRanges(t *testing.T) {
	m := MustMemory(VirtualRegion{VA: 100, Length: 50, RKey: 7}, VirtualRegion{VA: 150, Length: 50, RKey: 7},
		VirtualRegion{VA: 150, Length: 50, RKey: 8})
	for _, c := range []struct {
		va     uint64
		length uint32
		want   int
	}{{100, 50, 0}, {149, 1, 0}, {150, 50, 1}, {150, 0, 1}, {149, 2, -1}, {100, 100, -1}, {200, 0, 1}, {200, 1, -1}} {
		if got := m.Find(c.va, 7, c.length); got != c.want {
			t.Errorf("%d bytes at %d are in range %d, want %d", c.length, c.va, got, c.want)
		}
	}
}

// What a memory cannot have is refused in one sentence without an R_Key, and the memory stays.
func TestBadRangesAreRefused(t *testing.T) {
	const secret = 0x5EC4E7
	r := func(va, length uint64) VirtualRegion { return VirtualRegion{va, length, secret} }
	m := MustMemory(r(1000, 100), r(2000, 100))
	for name, c := range map[string]struct {
		remove, add []VirtualRegion
		want        string
	}{
		"length 0":                   {nil, []VirtualRegion{r(1, 0)}, "the range of memory at VA 0x1 has length 0"},
		"wraps":                      {nil, []VirtualRegion{r(math.MaxUint64, 2)}, "the range of memory at VA 0xffffffffffffffff ends beyond 2^64"},
		"ends in another":            {nil, []VirtualRegion{r(999, 2)}, "the range of memory at VA 0x3e8 " + ErrOverlap.Error()},
		"begins in another":          {nil, []VirtualRegion{r(1099, 2)}, "the range of memory at VA 0x44b " + ErrOverlap.Error()},
		"two new ones":               {nil, []VirtualRegion{r(1, 2), r(2, 2)}, "the range of memory at VA 0x2 " + ErrOverlap.Error()},
		"the same again":             {nil, []VirtualRegion{r(1000, 100)}, "the range of memory at VA 0x3e8 " + ErrOverlap.Error()},
		"not there":                  {[]VirtualRegion{r(1500, 100)}, nil, "the memory has no range at VA 0x5dc of 100 bytes under that R_Key"},
		"below all":                  {[]VirtualRegion{r(1, 100)}, nil, "the memory has no range at VA 0x1 of 100 bytes under that R_Key"},
		"above all":                  {[]VirtualRegion{r(3000, 100)}, nil, "the memory has no range at VA 0xbb8 of 100 bytes under that R_Key"},
		"another length":             {[]VirtualRegion{r(1000, 99)}, nil, "the memory has no range at VA 0x3e8 of 99 bytes under that R_Key"},
		"the same removed two times": {[]VirtualRegion{r(1000, 100), r(1000, 100)}, nil, "the memory has no range at VA 0x3e8 of 100 bytes under that R_Key"},
	} {
		next, err := m.Change(c.remove, c.add)
		if next != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, %v, want %s", name, next, err, c.want)
		}
	}
	if _, err := m.Change(nil, []VirtualRegion{r(1100, 900), r(1, 999)}); err != nil {
		t.Errorf("ranges that fill the gaps: %v", err)
	}
	if m, err := (&Memory{length: MaxRanges - 1}).Change(nil, []VirtualRegion{r(1, 1)}); err != nil || m.Len() != MaxRanges {
		t.Errorf("as many ranges as a group can have: %v", err)
	}
	full := &Memory{length: MaxRanges}
	if _, err := full.Change(nil, []VirtualRegion{r(1, 1)}); err == nil ||
		err.Error() != "1048577 ranges of memory are more than the 1048576 that a group can have" {
		t.Error(err)
	}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, ErrOverlap) {
			t.Errorf("MustMemory took ranges that overlap: %v", err)
		}
	}()
	MustMemory(r(1, 2), r(2, 2))
}

// Ranges in neighbouring chunks are compared too.
func TestOverlapBetweenChunks(t *testing.T) {
	var ranges []VirtualRegion
	for i := range 2 * chunkRanges {
		ranges = append(ranges, VirtualRegion{VA: uint64(i) * 100, Length: 10, RKey: 1})
	}
	m := MustMemory(ranges...)
	if len(m.chunks) != 2 {
		t.Fatalf("%d chunks", len(m.chunks))
	}
	first := m.chunks[1].va
	for _, va := range []uint64{first - 1, first - 50} {
		if _, err := m.Change(nil, []VirtualRegion{{VA: va, Length: 5, RKey: 1}}); (err != nil) != (va == first-1) {
			t.Errorf("a range at %d before the one at %d: %v", va, first, err)
		}
	}
	last := m.chunks[0].ranges[len(m.chunks[0].ranges)-1]
	if _, err := m.Change([]VirtualRegion{last}, []VirtualRegion{{VA: last.VA, Length: 101, RKey: 1}}); !errors.Is(err, ErrOverlap) {
		t.Errorf("a range into the next chunk: %v", err)
	}
}

// Ranges are compared also where a change joins two chunks.
func TestOverlapWhereChunksJoin(t *testing.T) {
	var ranges []VirtualRegion
	for i := range 2 * chunkRanges {
		ranges = append(ranges, VirtualRegion{VA: uint64(i) * 100, Length: 10, RKey: 1})
	}
	m := MustMemory(ranges...)
	at := len(m.chunks[0].ranges)
	first := m.chunks[1].ranges[0]
	remove := append(ranges[50:at:at], ranges[at+50:]...)
	next, err := m.Change(remove, []VirtualRegion{{VA: first.VA - 1, Length: 2, RKey: 1}})
	if !errors.Is(err, ErrOverlap) {
		t.Errorf("a range into one that joins its chunk: %d ranges, %v", next.Len(), err)
	}
}

// The ranges of a small memory are in one chunk, whichever chunk they were in: Block relies on it.
func TestFewRangesAreOneChunk(t *testing.T) {
	m, _ := million(2*chunkRanges, 0)
	few := []VirtualRegion{m.Range(0), m.Range(1), m.Range(chunkRanges), m.Range(chunkRanges + 1)}
	behind, err := m.Become(append(slices.Clone(m.chunks[0].ranges), few[2:]...))
	if err != nil || len(behind.chunks) != 2 {
		t.Fatalf("%d chunks, %v", len(behind.chunks), err)
	}
	if left, err := behind.Become(few); err != nil || len(left.chunks) != 1 || left.Len() != len(few) {
		t.Errorf("%d ranges in %d chunks, %v", left.Len(), len(left.chunks), err)
	}
}

// A range that begins where another one began is another range, if its length or its R_Key differs.
func TestARangeIsReplaced(t *testing.T) {
	m := MustMemory(VirtualRegion{VA: 8, Length: 10, RKey: 2})
	for _, v := range []VirtualRegion{{VA: 8, Length: 9, RKey: 2}, {VA: 8, Length: 11, RKey: 2}, {VA: 8, Length: 10, RKey: 1}, {VA: 8, Length: 10, RKey: 3}} {
		next, err := m.Become([]VirtualRegion{v})
		if err != nil || next.Len() != 1 || next.Range(0) != v {
			t.Fatalf("%+v: %+v, %v", v, next, err)
		}
		elsewhere := func(v VirtualRegion) Region { return Region{VA: 77, Length: v.Length, RKey: 78} }
		if at := m.At(same).Follow(m, next, elsewhere); at.Region(next, 0) != elsewhere(v) {
			t.Errorf("%+v is at %+v", v, at.Region(next, 0))
		}
	}
}

// A memory that changes again and again has the ranges that a list would have, each at its place
// at each receiver, and shares what it can. This is compared with a list.
func TestMemoryIsLikeAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []VirtualRegion
		taken := map[VirtualRegion]bool{}
		m := new(Memory)
		at := m.At(same)
		place := func(v VirtualRegion) Region { return Region{VA: v.VA*3 + uint64(v.RKey), RKey: ^v.RKey} }
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			var remove, add []VirtualRegion
			for range rapid.SampledFrom([]int{0, 1, 3, 700, 1500}).Draw(t, "add") {
				v := VirtualRegion{VA: random.Uint64N(1<<16) * 16, Length: 1 + random.Uint64N(16), RKey: random.Uint32N(3)}
				if start := (VirtualRegion{VA: v.VA, RKey: v.RKey}); !taken[start] {
					taken[start] = true
					add, list = append(add, v), append(list, v)
				}
			}
			for range min(rapid.SampledFrom([]int{0, 1, 600, 1400}).Draw(t, "remove"), len(list)-len(add)) {
				k := random.IntN(len(list) - len(add))
				remove = append(remove, list[k])
				delete(taken, VirtualRegion{VA: list[k].VA, RKey: list[k].RKey})
				list = slices.Delete(list, k, k+1)
			}
			next, err := m.Change(remove, add)
			if err != nil {
				t.Fatal(err)
			}
			was := at
			at = at.Follow(m, next, func(v VirtualRegion) Region {
				if !slices.Contains(add, v) && len(add) < 100 {
					t.Fatalf("the place of %+v was known", v)
				}
				return place(v)
			})
			checkShared(t, m, next, was, at, len(remove)+len(add))
			if become, err := m.Become(list); err != nil || become.Len() != len(list) || (len(remove)+len(add) == 0) != (become == m) {
				t.Fatalf("Become: %v, %v", become, err)
			}
			m = next
			checkMemory(t, m, list, at, place)
		}
	})
}

// checkShared checks that a change copied no more chunks than it touched, and their neighbours.
func checkShared(t *rapid.T, was, is *Memory, before, after Regions, changed int) {
	copied := 0
	for c := range is.chunks {
		k := slices.IndexFunc(was.chunks, func(w chunk) bool { return &w.ranges[0] == &is.chunks[c].ranges[0] })
		if k < 0 {
			copied++
		} else if &before.chunks[k][0] != &after.chunks[c][0] {
			t.Fatalf("chunk %d is shared and its targets are not", c)
		}
	}
	if pieces := changed/chunkRanges + 1; copied > 3*min(changed, len(was.chunks)+1)+pieces {
		t.Fatalf("%d changes copied %d chunks of %d", changed, copied, len(is.chunks))
	}
}

func checkMemory(t *rapid.T, m *Memory, list []VirtualRegion, at Regions, place func(VirtualRegion) Region) {
	slices.SortFunc(list, compareRanges)
	var got []VirtualRegion
	for i, v := range m.All {
		got = append(got, v)
		if m.Range(i) != v || m.Find(v.VA, v.RKey, uint32(v.Length)) != i || m.Find(v.VA, v.RKey, uint32(v.Length)+1) >= 0 {
			t.Fatalf("range %d is not found: %+v", i, v)
		}
		want := place(v)
		if want.Length = v.Length; at.Region(m, i) != want {
			t.Fatalf("range %d is at %+v, want %+v", i, at.Region(m, i), want)
		}
	}
	if !slices.Equal(got, list) || m.Len() != len(list) || !at.fit(m) {
		t.Fatalf("%d ranges, want %d", len(got), len(list))
	}
	for c := range m.chunks {
		switch n := len(m.chunks[c].ranges); {
		case n == 0, n > chunkRanges:
			t.Fatalf("chunk %d has %d ranges", c, n)
		case c > 0 && n+len(m.chunks[c-1].ranges) <= chunkRanges/2:
			t.Fatalf("chunk %d and the one before have %d ranges together", c, n+len(m.chunks[c-1].ranges))
		}
	}
}

// The receiver of a group that changes keeps the place of a range that stays, whatever to says.
func TestPlacesStay(t *testing.T) {
	m := twoRanges
	at := m.At(same)
	next, err := m.Become(append([]VirtualRegion{{VA: 5, Length: 1, RKey: 1}}, m.Range(0)))
	if err != nil {
		t.Fatal(err)
	}
	after := at.Follow(m, next, func(v VirtualRegion) Region { return Region{VA: 77, RKey: 78} })
	if a, b := after.Region(next, 0), after.Region(next, 1); a != (Region{77, 1, 78}) || b != Region(m.Range(0)) {
		t.Errorf("%+v %+v", a, b)
	}
	if got := after.Follow(next, nil, nil); !got.fit(nil) || got.fit(next) {
		t.Error("a group without memory has regions")
	}
}

// A change copies the chunks that it touches, for the memory and for each receiver, whether it is
// given as a change or as the ranges after it.
func TestAChangeCopiesLittle(t *testing.T) {
	m, at := million(1<<14, 1)
	one := VirtualRegion{VA: 0, Length: 1, RKey: 1} // in the middle
	after := []VirtualRegion{one}
	for _, v := range m.All {
		after = append(after, v)
	}
	changed, err := m.Change(nil, []VirtualRegion{one})
	if err != nil {
		t.Fatal(err)
	}
	become, err := m.Become(after)
	if err != nil {
		t.Fatal(err)
	}
	for name, next := range map[string]*Memory{"Change": changed, "Become": become} {
		places, copied := at[0].Follow(m, next, same), 0
		for c := range next.chunks {
			k := slices.IndexFunc(m.chunks, func(was chunk) bool { return &was.ranges[0] == &next.chunks[c].ranges[0] })
			if k < 0 || &places.chunks[c][0] != &at[0].chunks[k][0] {
				copied++
			}
		}
		if copied > 2 || next.Len() != m.Len()+1 {
			t.Errorf("%s copied %d chunks of %d", name, copied, len(m.chunks))
		}
	}
	if none, err := (*Memory)(nil).Become(after[:1]); err != nil || none.Len() != 1 {
		t.Errorf("a group without memory gets some: %v", err)
	}
}

// Two chunks that have half of what a chunk can have become one; with one range more they do not.
func TestSmallChunksAreJoined(t *testing.T) {
	for _, left := range []int{chunkRanges / 2, chunkRanges/2 + 1} {
		m, _ := million(2*chunkRanges, 0)
		var remove []VirtualRegion
		for i, v := range m.All {
			if k := i & (chunkRanges - 1); k >= 128 && (k > 128 || i < chunkRanges || left == chunkRanges/2) {
				remove = append(remove, v)
			}
		}
		next, err := m.Change(remove, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := 1 + left - chunkRanges/2; next.Len() != left || len(next.chunks) != want {
			t.Errorf("%d ranges are in %d chunks, want %d", next.Len(), len(next.chunks), want)
		}
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	m, at := million(1<<12, 1)
	if n := testing.AllocsPerRun(100, func() { at[0].Target(m.Find(77<<20|5, 1, 64)) }); n != 0 {
		t.Errorf("%v allocations for each lookup", n)
	}
}

// million returns a memory of n ranges of 1 MiB, every second one under another R_Key, and where it
// is at some receivers.
func million(n, receivers int) (*Memory, []Regions) {
	ranges := make([]VirtualRegion, n)
	for i := range ranges {
		ranges[i] = VirtualRegion{VA: uint64(i) << 20, Length: 1 << 20, RKey: uint32(i % 2)}
	}
	m := MustMemory(ranges...)
	at := make([]Regions, receivers)
	for k := range at {
		at[k] = m.At(func(v VirtualRegion) Region { return Region{VA: v.VA ^ uint64(k+1)<<48, RKey: uint32(k)} })
	}
	return m, at
}

// BenchmarkFind measures how the range of a WRITE is found, and its place at three receivers.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 64, 1000, 1_000_000} {
		m, at := million(n, 3)
		for _, pick := range picks {
			b.Run(fmt.Sprintf("%s/%d", pick.name, n), func(b *testing.B) {
				b.ReportAllocs()
				var sum uint64
				for i := 0; b.Loop(); i++ {
					k := pick.next(i, n)
					r := m.Find(uint64(k)<<20|64, uint32(k%2), 1024)
					for p := range at {
						sum += at[p].Target(r).DeltaVA
					}
				}
				if sum == 0 {
					b.Fatal("no range was found")
				}
			})
		}
	}
}

// BenchmarkRanges measures what it takes to load ranges for three receivers, their memory, and what
// one more range takes that comes and goes.
func BenchmarkRanges(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("load/%d", n), func(b *testing.B) {
			for b.Loop() {
				before := testlab.HeapBytes()
				m, at := million(n, 3)
				b.ReportMetric(float64(testlab.HeapBytes()-before)/float64(n), "B/range")
				if m.Len() != n || len(at) != 3 {
					b.Fatal(m.Len())
				}
			}
		})
		b.Run(fmt.Sprintf("change/%d", n-1), func(b *testing.B) {
			m, at := million(n, 3)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := i * 7919 % n
				one := []VirtualRegion{m.Range(m.Find(uint64(k)<<20, uint32(k%2), 1))}
				for _, change := range [][2][]VirtualRegion{{one, nil}, {nil, one}} {
					next, err := m.Change(change[0], change[1])
					if err != nil {
						b.Fatal(err)
					}
					for p := range at {
						at[p] = at[p].Follow(m, next, same)
					}
					m = next
				}
			}
		})
	}
}
