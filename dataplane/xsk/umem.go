package xsk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// UMEM is the memory frames live in, shared by all sockets of one worker. It lies outside the Go heap. It and its
// sockets belong to one thread.
type UMEM struct {
	memory []byte
	free   []uint32 // stack of chunk numbers: the chunk freed last is the one still in the cache
	ledger ledger
	slots  []*Socket // by socket number; nil where one was closed

	// Fixed for all sockets by the first one that binds (xp_assign_dev_shared).
	zeroCopy    bool
	multiBuffer bool
}

// maxChunks keeps a UMEM at 4 GiB, the most XDP_UMEM_REG takes.
const maxChunks = 1 << 20

// NewUMEM allocates memory for that many chunks of ChunkBytes, all on the free list.
func NewUMEM(chunks int) (*UMEM, error) {
	if chunks < 1 || chunks > maxChunks {
		return nil, fmt.Errorf("allocate UMEM: %d chunks, want 1 to %d", chunks, maxChunks)
	}
	memory, err := unix.Mmap(-1, 0, chunks*ChunkBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("allocate UMEM of %d chunks: %w", chunks, err)
	}
	// Frames carry other people's data and keys: no core dump shows them.
	if err := unix.Madvise(memory, unix.MADV_DONTDUMP); err != nil {
		return nil, errors.Join(fmt.Errorf("keep UMEM out of core dumps: %w", err), unix.Munmap(memory))
	}
	u := &UMEM{memory: memory, free: make([]uint32, chunks), ledger: make(ledger, chunks)}
	for i := range u.free {
		u.free[i] = uint32(chunks - 1 - i)
	}
	return u, nil
}

// Close releases the memory. Every socket must be closed before.
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

// Bytes is the memory at addr. It may begin before a received frame: metadata and headroom are there.
func (u *UMEM) Bytes(addr uint64, bytes uint32) []byte {
	end := addr + uint64(bytes)
	return u.memory[addr:end:end]
}

// Chunks is how many chunks there are, wherever they are.
func (u *UMEM) Chunks() int { return len(u.ledger) }

// FreeChunks is how many chunks are on the free list.
func (u *UMEM) FreeChunks() int { return len(u.free) }

// Alloc takes chunks from the free list, as many as there are, and returns how many. The caller holds them.
func (u *UMEM) Alloc(addrs []uint64) int {
	n := min(len(addrs), len(u.free))
	for i := range addrs[:n] {
		addrs[i] = u.pop(withWorker)
	}
	return n
}

// Free puts chunks the caller holds back on the free list. An address may point anywhere into its chunk.
func (u *UMEM) Free(addrs []uint64) {
	for _, addr := range addrs {
		u.push(addr, withWorker)
	}
}

func (u *UMEM) pop(to holder) (addr uint64) {
	last := len(u.free) - 1
	addr = uint64(u.free[last]) * ChunkBytes
	u.free = u.free[:last]
	u.ledger.move(addr, inFreeList, to)
	return addr
}

func (u *UMEM) push(addr uint64, from holder) {
	u.ledger.move(addr, from, inFreeList)
	u.free = append(u.free, uint32(addr/ChunkBytes)) // never grows: the ledger lets each chunk in once
}

// register tells the kernel about the memory, on the socket that is to bind first.
func (u *UMEM) register(fd int) error {
	reg := unix.XDPUmemReg{Addr: address(u.memory), Len: uint64(len(u.memory)), Size: ChunkBytes}
	err := setsockopt(fd, unix.XDP_UMEM_REG, &reg)
	if errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("register UMEM of %d bytes: needs CAP_IPC_LOCK or a higher RLIMIT_MEMLOCK: %w", len(u.memory), err)
	}
	if err != nil {
		return fmt.Errorf("register UMEM of %d bytes: %w", len(u.memory), err)
	}
	return nil
}

// boundSocket is any bound socket: the kernel finds the registered memory through one.
func (u *UMEM) boundSocket() *Socket {
	for _, s := range u.slots {
		if s != nil && s.bound {
			return s
		}
	}
	return nil
}

// takeSlot numbers a socket. The number of a closed one is used again once none of its chunks is stranded.
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

// reclaim frees every chunk a holder has; called when that holder can touch none of them any more.
func (u *UMEM) reclaim(h holder) {
	for chunk, is := range u.ledger {
		if is == h {
			u.push(uint64(chunk)*ChunkBytes, h)
		}
	}
}
