package mft

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

// FindRegion returns the index of the virtual region that contains all of [va, va+length) under
// rkey, or -1. A receiver's NIC would answer such a request with a remote access error (IBTA vol 1,
// 9.7.4.1).
func (g *Group) FindRegion(va uint64, rkey uint32, length uint32) int {
	return findRegion(g.Memory, va, rkey, length)
}

func findRegion(memory []VirtualRegion, va uint64, rkey uint32, length uint32) int {
	for i := range memory {
		m := &memory[i]
		if m.RKey == rkey && va >= m.VA && va-m.VA <= m.Length && uint64(length) <= m.Length-(va-m.VA) {
			return i
		}
	}
	return -1
}
