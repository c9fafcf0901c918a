package xsk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// UMEM is the memory for frames, shared by all sockets of one worker. It lies outside the Go heap.
// One thread owns it and its sockets.
type UMEM struct {
	memory []byte
	free   []uint32 // a stack of chunk numbers: the last ones are probably in the cache
	ledger ledger
	slots  []*Socket // by socket number; nil: closed

	// The first socket that is bound decides these for all (xp_assign_dev_shared).
	zeroCopy    bool
	multiBuffer bool
}

// MaxChunks makes a UMEM of 4 GiB, the largest that XDP_UMEM_REG accepts.
const MaxChunks = 1 << 20

// NewUMEM allocates memory for that many chunks of ChunkBytes, all on the free list.
func NewUMEM(chunks int) (*UMEM, error) {
	if chunks < 1 || chunks > MaxChunks {
		return nil, fmt.Errorf("allocate UMEM: %d chunks, want 1 to %d", chunks, MaxChunks)
	}
	memory, err := unix.Mmap(-1, 0, chunks*ChunkBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("allocate UMEM of %d chunks: %w", chunks, err)
	}
	// Each chunk is a page. With huge pages a worker's address translation has to know a few of
	// them and not thousands. A kernel that has none to give, or refuses, gives small ones.
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE)
	for i := 0; i < len(memory); i += ChunkBytes {
		memory[i] = 0 // the page is allocated now, and not when the first frame comes
	}
	// Frames carry data and keys of users, which must not be in a core dump.
	if err := unix.Madvise(memory, unix.MADV_DONTDUMP); err != nil {
		return nil, errors.Join(fmt.Errorf("keep UMEM out of core dumps: %w", err), unix.Munmap(memory))
	}
	u := &UMEM{memory: memory, free: make([]uint32, chunks), ledger: make(ledger, chunks)}
	for i := range u.free {
		u.free[i] = uint32(i)
	}
	return u, nil
}

// Close releases the memory. It fails while a socket is open.
func (u *UMEM) Close() error {
	if open := u.boundSocket(); open != nil {
		return fmt.Errorf("close UMEM: %v is still open", open)
	}
	memory := u.memory
	u.memory, u.free, u.ledger = nil, nil, nil
	if memory == nil {
		return nil
	}
	return unix.Munmap(memory)
}

// Bytes returns the memory at addr. addr may lie before a received frame, where metadata and
// headroom are.
func (u *UMEM) Bytes(addr uint64, bytes uint32) []byte {
	end := addr + uint64(bytes)
	return u.memory[addr:end:end]
}

// Chunks returns the number of all chunks.
func (u *UMEM) Chunks() int { return len(u.ledger) }

// FreeChunks returns the number of chunks on the free list.
func (u *UMEM) FreeChunks() int { return len(u.free) }

// Alloc takes up to len(addrs) chunks from the free list and returns how many. The caller holds
// them.
func (u *UMEM) Alloc(addrs []uint64) int {
	n := min(len(addrs), len(u.free))
	for i, chunk := range u.pop(n) {
		addrs[i] = uint64(chunk) * ChunkBytes
		u.ledger.move(addrs[i], inFreeList, withWorker)
	}
	return n
}

// Free puts chunks that the caller holds back on the free list. An address may point anywhere into
// its chunk.
func (u *UMEM) Free(addrs []uint64) {
	for _, addr := range addrs {
		u.push(addr, withWorker)
	}
}

// pop takes the last n chunks off the stack, in the order in which they were pushed. The caller
// moves them in the ledger before it pushes others.
func (u *UMEM) pop(n int) (chunks []uint32) {
	rest := len(u.free) - n
	chunks, u.free = u.free[rest:], u.free[:rest]
	return chunks
}

func (u *UMEM) push(addr uint64, from holder) {
	u.ledger.move(addr, from, inFreeList)
	u.free = append(u.free, uint32(addr/ChunkBytes)) // never grows: a chunk is free once
}

// register tells the kernel about the memory, by the socket that will be bound first.
func (u *UMEM) register(fd int) error {
	reg := unix.XDPUmemReg{Addr: address(u.memory), Len: uint64(len(u.memory)), Size: ChunkBytes}
	err := setsockopt(fd, unix.XDP_UMEM_REG, &reg)
	if errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("register UMEM of %d bytes: needs CAP_IPC_LOCK or a higher RLIMIT_MEMLOCK: %w",
			len(u.memory), err)
	}
	if err != nil {
		return fmt.Errorf("register UMEM of %d bytes: %w", len(u.memory), err)
	}
	return nil
}

// boundSocket returns any bound socket, or nil. The kernel finds the registered memory by it.
func (u *UMEM) boundSocket() *Socket {
	for _, s := range u.slots {
		if s != nil && s.bound {
			return s
		}
	}
	return nil
}

// takeSlot numbers a socket. The number of a closed socket is used again, unless chunks of it are
// stranded.
func (u *UMEM) takeSlot(s *Socket) error {
	for i, taken := range u.slots {
		if taken == nil {
			s.slot, u.slots[i] = i, s
			return nil
		}
	}
	if len(u.slots) == maxSockets {
		return fmt.Errorf("UMEM has %d sockets already", maxSockets)
	}
	s.slot = len(u.slots)
	u.slots = append(u.slots, s)
	return nil
}

// reclaim frees every chunk of a holder that can no longer touch them.
func (u *UMEM) reclaim(h holder) {
	for chunk, is := range u.ledger {
		if is == h {
			u.push(uint64(chunk)*ChunkBytes, h)
		}
	}
}
