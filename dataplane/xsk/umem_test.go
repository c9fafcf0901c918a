package xsk

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func newUMEM(t testing.TB, chunks int) *UMEM {
	t.Helper()
	u, err := NewUMEM(chunks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// mustPanic checks that fn panics with these words.
func mustPanic(t *testing.T, words string, fn func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if message := fmt.Sprint(recover()); !strings.Contains(message, words) {
			t.Errorf("panic %q, want %q in it", message, words)
		}
	}()
	fn()
}

func TestFreeListGivesEachChunkOnce(t *testing.T) {
	u := newUMEM(t, 8)
	addrs := make([]uint64, 10)
	if n := u.Alloc(addrs); n != 8 {
		t.Fatalf("allocated %d of 8 chunks", n)
	}
	seen := map[uint64]bool{}
	for _, addr := range addrs[:8] {
		if addr%ChunkBytes != 0 || seen[addr] {
			t.Errorf("bad or repeated address %#x", addr)
		}
		seen[addr] = true
	}
	if n := u.Alloc(addrs[8:]); n != 0 {
		t.Errorf("an empty free list gave %d chunks", n)
	}
	checkConserved(t, u, 8)
	u.Free(addrs[:8])
	checkConserved(t, u, 0)
}

func TestFreedChunkIsUsedFirst(t *testing.T) {
	u := newUMEM(t, 8)
	var addrs [3]uint64
	u.Alloc(addrs[:])
	u.Free(addrs[1:2])
	var again [1]uint64
	u.Alloc(again[:])
	if again[0] != addrs[1] {
		t.Errorf("got %#x, want the chunk still in the cache, %#x", again[0], addrs[1])
	}
	u.Free([]uint64{addrs[0], again[0], addrs[2]})
}

func TestFreeTakesAnyAddressInTheChunk(t *testing.T) {
	u := newUMEM(t, 2)
	var addrs [1]uint64
	u.Alloc(addrs[:])
	u.Free([]uint64{addrs[0] + HeadroomBytes + 7})
	checkConserved(t, u, 0)
}

func TestMisplacedChunksPanic(t *testing.T) {
	u := newUMEM(t, 2)
	var addrs [1]uint64
	u.Alloc(addrs[:])
	u.Free(addrs[:])
	mustPanic(t, "it is with the free list", func() { u.Free(addrs[:]) })
	mustPanic(t, "out of range [2] with length 2", func() { u.Free([]uint64{2 * ChunkBytes}) })
}

func TestBytesReachesInFrontOfAFrame(t *testing.T) {
	u := newUMEM(t, 2)
	frame := uint64(ChunkBytes + HeadroomBytes)
	copy(u.Bytes(frame-16, 16), "metadata, 16 by.")
	copy(u.Bytes(frame, 5), "frame")
	if got := string(u.Bytes(frame-16, 21)); got != "metadata, 16 by.frame" {
		t.Errorf("got %q", got)
	}
	if got := u.Bytes(frame, 5); cap(got) != 5 {
		t.Errorf("capacity %d lets append run into what follows", cap(got))
	}
}

func TestNewUMEMRefusesSizesTheKernelCannotTake(t *testing.T) {
	for _, chunks := range []int{-1, 0, MaxChunks + 1} {
		if u, err := NewUMEM(chunks); err == nil {
			t.Errorf("%d chunks: no error", chunks)
			u.Close()
		}
	}
}

func TestCloseUMEMTwice(t *testing.T) {
	u, err := NewUMEM(1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFreeListAllocatesNothing(t *testing.T) {
	u := newUMEM(t, 64)
	var addrs [64]uint64
	if allocs := testing.AllocsPerRun(100, func() { u.Free(addrs[:u.Alloc(addrs[:])]) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkFreeList measures taking 64 chunks and putting them back.
func BenchmarkFreeList(b *testing.B) {
	u := newUMEM(b, 4096)
	var addrs [64]uint64
	for b.Loop() {
		u.Free(addrs[:u.Alloc(addrs[:])])
	}
}

func TestAuditFindsLostAndDoubledChunks(t *testing.T) {
	for name, damage := range map[string]func(u *UMEM, s *Socket){
		"lost from the free list":      func(u *UMEM, s *Socket) { u.free = u.free[1:] },
		"doubled on the free list":     func(u *UMEM, s *Socket) { u.ledger[u.free[0]] = withWorker },
		"with a socket that is closed": func(u *UMEM, s *Socket) { u.ledger[u.free[0]] = receiveSide(7) },
		"lost by the receive side":     func(u *UMEM, s *Socket) { s.received++ },
		"lost by the transmit side":    func(u *UMEM, s *Socket) { s.given++ },
		"doubled on the fill ring":     func(u *UMEM, s *Socket) { s.fill.entries[1] = s.fill.entries[0] },
		"on the fill ring and free":    func(u *UMEM, s *Socket) { s.fill.entries[0] = uint64(u.free[0]) * ChunkBytes },
	} {
		t.Run(name, func(t *testing.T) {
			u := newUMEM(t, 16)
			s := &Socket{umem: u, bound: true, obtained: Obtained{Discipline: Give}}
			if err := u.takeSlot(s); err != nil {
				t.Fatal(err)
			}
			s.receiveSide, s.transmitSide = receiveSide(s.slot), transmitSide(s.slot)
			s.fill, _ = heapRing[uint64](8, 0)
			s.level = 8
			s.TopUp()
			if err := u.Audit(); err != nil {
				t.Fatal(err)
			}
			damage(u, s)
			if err := u.Audit(); err == nil {
				t.Error("not found")
			}
			s.bound = false
		})
	}
}

// The memory is allocated when NewUMEM returns, so that no frame waits for that. It is to be huge
// pages where the kernel has them, and core dumps do not contain it.
func TestTheMemoryOfFrames(t *testing.T) {
	flags := []string{"dd"} // as /proc/self/smaps calls what a mapping is to be
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err == nil {
		flags = append(flags, "hg")
	}
	const chunks = 4096
	u := newUMEM(t, chunks)
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	var from, to, resident uint64 // of the mapping that a line belongs to
	for line := range strings.Lines(string(maps)) {
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			continue
		}
		if at := address(u.memory); at < from || at >= to {
			continue
		}
		_, _ = fmt.Sscanf(line, "Rss: %d kB", &resident)
		if list, ok := strings.CutPrefix(line, "VmFlags:"); ok {
			has := strings.Fields(list)
			if slices.ContainsFunc(flags, func(f string) bool { return !slices.Contains(has, f) }) || resident < chunks*ChunkBytes>>10 {
				t.Errorf("%d KiB are allocated, flags %v, want %v among them", resident, has, flags)
			}
			return
		}
	}
	t.Error("/proc/self/smaps does not list the memory")
}
