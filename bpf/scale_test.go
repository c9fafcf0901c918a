package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

// loadSmall is load with room for a few entries, which grows to that for most.
func loadSmall(t testing.TB, entries, most uint32) *Classifier {
	t.Helper()
	spec, err := loadPrograms()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps[programsMapGroups].MaxEntries = most
	c, err := loadOf(spec, entries)
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_BPF and CAP_NET_ADMIN")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A full map refuses the next entry with a sentence that says what to do. Its entries go on
// working, and when one is deleted there is room for another. (For the group see
// TestFullClassifierChangesNothing in package dataplane.)
func TestFullMapRefuses(t *testing.T) {
	const room = 4
	c := loadSmall(t, room/2, room)
	for i := range room {
		put(t, c, key(i), uint32(i))
	}
	const want = "classify dst+qpn to 10.77.0.100 0x000005 as group 4: all 1048576 entries are taken, delete a group first: "
	largest := c.maps.Groups
	err := c.PutGroup(key(room), room)
	if c.maps.Groups != largest {
		t.Error("the largest map was made again")
	}
	if !errors.Is(err, unix.E2BIG) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want %s...", err, want)
	}
	put(t, c, key(0), 7) // the key is there already
	if err := c.DeleteGroup(key(1)); err != nil {
		t.Fatal(err)
	}
	put(t, c, key(room), room)
}

// key is the key of the i-th of some groups.
func key(i int) Key { return Key{Dst: groupIP, QPN: uint32(1 + i), Match: MatchDstQPN} }

// expectFound checks which of some groups the program of the ports finds: those up to last, but for
// one.
func expectFound(t *testing.T, c *Classifier, last, butFor int) {
	t.Helper()
	b := &bench{c, unattached(t, c, 0)}
	must(t, "set socket", b.p.SetSocket(0, openSocket(t, loopback).fd))
	for i := range last + 2 {
		got := b.run(t, frame(hostA, groupIP, roce.OpSendOnly, roce.QPN(1+i), 64))
		want := outcome{Verdict: RedirectData, Meta: got.Meta}
		if want.Meta.Group = uint32(i); i > last || i == butFor {
			want = outcome{Verdict: PassNoGroup}
		}
		if got != want {
			t.Errorf("a frame of group %d: %+v, want %+v", i, got, want)
		}
	}
}

// Groups outgrow the first map of the entries. All are found afterwards, also those that come and
// go later, at all ports, and also where fan-out is loaded or takes over meanwhile.
func TestGroupsOutgrowTheFirstMap(t *testing.T) {
	const room, most = 4, 8
	for name, steps := range map[string][3]string{
		"no fan-out":        {},
		"fan-out before":    {"load engage"},
		"fan-out meanwhile": {"load", "engage"},
		"fan-out later":     {"", "load engage"},
		"fan-out last":      {"", "load", "engage"},
	} {
		t.Run(name, func(t *testing.T) {
			enterNamespace(t)
			c := loadSmall(t, room, most)
			p := openPort(t, c, addVeth(t), ModeNative)
			defer func() { must(t, "close port", p.Close()) }()
			must(t, "close another port", openPort(t, c, loopback, ModeGeneric).Close())
			gone := openPort(t, c, loopback, ModeGeneric)
			must(t, "detach", gone.link.Detach()) // as where the interface has gone
			var f *FanOut
			do := func(steps string) {
				t.Helper()
				var err error
				if strings.Contains(steps, "load") {
					f, err = c.LoadFanOut(testTables(), 0)
					must(t, "load fan-out", err)
				}
				if strings.Contains(steps, "engage") {
					must(t, "engage fan-out", c.Engage(f, p))
				}
			}
			do(steps[0])
			for i := range room + 1 {
				put(t, c, key(i), uint32(i))
			}
			do(steps[1])
			must(t, "delete", c.DeleteGroup(key(1)))
			put(t, c, key(room+1), room+1)
			do(steps[2])
			runs(t, p, c.classify())
			must(t, "close the port that has gone", gone.Close())
			expectFound(t, c, room+1, 1)
		})
	}
}

// On another CPU the program may still run when it has been replaced, and look in the map that the
// groups have outgrown. The one that follows does not go by what it finds there.
func TestAProgramStillRunsWhenItIsReplaced(t *testing.T) {
	const room = 4
	enterNamespace(t)
	c := loadSmall(t, room, 2*room)
	for i := range room {
		put(t, c, key(i), uint32(i))
	}
	b := &bench{c, unattached(t, c, 0)}
	must(t, "set socket", b.p.SetSocket(0, openSocket(t, loopback).fd))
	stayOnCPU(t)
	before, err := c.program.Clone()
	must(t, "keep the program", err)
	put(t, c, key(room), room)
	must(t, "delete", c.DeleteGroup(key(1)))
	expect := func(of *ebpf.Program, want Verdict) {
		t.Helper()
		now := c.program
		c.program = of
		defer func() { c.program = now }()
		if got := b.run(t, frame(hostA, groupIP, roce.OpSendOnly, 2, 64)); got.Verdict != want {
			t.Errorf("%v, want %v", got.Verdict, want)
		}
	}
	expect(before, RedirectData)
	expect(c.program, PassNoGroup)
	must(t, "close the program", before.Close())
}

// Where the kernel has no memory for a larger map, the next entry is refused, and all others stay.
func TestThereIsNoLargerMap(t *testing.T) {
	const room, tooMuch = 4, 1 << 31
	enterNamespace(t)
	c := loadSmall(t, room, tooMuch)
	for i := range room {
		put(t, c, key(i), uint32(i))
	}
	if err := c.PutGroup(key(room), room); err == nil || !strings.Contains(err.Error(), "make room for more than 4 entries") {
		t.Errorf("got %v", err)
	}
	must(t, "delete", c.DeleteGroup(key(1)))
	put(t, c, key(room), room)
	expectFound(t, c, room, 1)
}

// groupAt returns the IP of the i-th of many groups.
func groupAt(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 78 + byte(i>>16), byte(i >> 8), byte(i)})
}

// BenchmarkEntries reports how much memory of the kernel an entry takes, as the kernel accounts for
// it, and how long it takes to add one.
func BenchmarkEntries(b *testing.B) {
	const n = 200_000
	for b.Loop() {
		c := load(b)
		empty := kernelBytes(b, c)
		for i := range n {
			put(b, c, Key{Dst: groupAt(i), QPN: groupQPN, Match: MatchDstQPN}, uint32(i))
		}
		b.ReportMetric(float64(kernelBytes(b, c)-empty)/n, "B/entry")
		b.ReportMetric(float64(empty), "B/empty-map")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}

func kernelBytes(b *testing.B, c *Classifier) uint64 {
	info, err := c.maps.Groups.Info()
	if err != nil {
		b.Fatal(err)
	}
	bytes, ok := info.Memlock()
	if !ok {
		b.Skip("the kernel does not say what a map takes")
	}
	return bytes
}

// BenchmarkClassifyAmong classifies frames of groups among many: always the same group, or a random
// one. Each random frame needs a system call of its own, which leaves cold caches, so these results
// compare only with each other.
func BenchmarkClassifyAmong(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		bench := newBench(b, false)
		frames := make([][]byte, n)
		for i := range frames {
			frames[i] = frame(hostA, groupAt(i), roce.OpSendOnly, groupQPN, 64)
			put(b, bench.c, Key{Dst: groupAt(i), QPN: groupQPN, Match: MatchDstQPN}, uint32(i))
		}
		b.Run(fmt.Sprintf("hot/%d", n), func(b *testing.B) {
			_, perRun, err := bench.c.classify().Benchmark(frames[n/2], b.N, b.ResetTimer)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(perRun.Nanoseconds()), "ns/frame")
		})
		b.Run(fmt.Sprintf("random/%d", n), func(b *testing.B) {
			total := 0.0
			for i := range b.N {
				h := uint64(i) * 0x9E3779B97F4A7C15
				h = (h ^ h>>29) * 0xBF58476D1CE4E5B9
				_, perRun, err := bench.c.classify().Benchmark(frames[h>>40*uint64(n)>>24], 1, nil)
				if err != nil {
					b.Fatal(err)
				}
				total += float64(perRun.Nanoseconds())
			}
			b.ReportMetric(total/float64(b.N), "ns/frame")
		})
	}
}
