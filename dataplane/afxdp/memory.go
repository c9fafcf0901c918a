package afxdp

import (
	"fmt"
	"math/bits"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/mft"
)

const (
	// queueDescs is the size of every ring except the fill ring, and the largest number of chunks
	// that a queue has to receive into. The kernel drops further frames (rx-ring-full).
	queueDescs = 2048
	// minQueueChunks is the smallest number of chunks that a queue has to receive into: enough for
	// the frames that arrive while the worker is busy with other queues.
	minQueueChunks = 256
	// receiveChunks bounds the chunks that all queues of one worker have to receive into: 256 MiB.
	// If there are more than 32 queues, each gets less than queueDescs.
	receiveChunks = 1 << 16
	// spareChunks are for frames that the worker works on, for its replies, and for copies that
	// zero-copy devices have not sent yet (spare in send.go).
	spareChunks = 4096
	// leastReserve and mostReserve bound the chunks of each worker for ports that are added while
	// it runs: 8 to 32 MiB.
	leastReserve, mostReserve = queueDescs, 8192
	// addedQueueChunks is the least number of chunks for a queue of such a port, if the reserve has
	// them: as many as a queue uses in copy mode after its first frames.
	addedQueueChunks = 512
)

// minRepairChunks and maxRepairChunks bound what a worker retains for repair. The largest UMEM has
// no room for more.
const (
	minRepairChunks = 256
	maxRepairChunks = xsk.MaxChunks - receiveChunks - spareChunks - mostReserve
)

// The core counts what it retains in buffers that are the chunks of the UMEM.
var _ = [1]struct{}{}[xsk.ChunkBytes-mft.BufferBytes]

// maxKernelRetained bounds the entries for packets that the kernel retains: 0.5 GiB, a quarter of
// what one map can have on any kernel.
const maxKernelRetained = 1 << 18

// repairShare returns how many chunks each worker may retain for repair, of bytes for all of them.
func repairShare(bytes uint64, workers int) (int, error) {
	chunks := bytes / xsk.ChunkBytes / uint64(workers)
	switch {
	case bytes == 0:
		return 0, nil
	case chunks < minRepairChunks || chunks > maxRepairChunks:
		const perMiB = 1 << 20 / xsk.ChunkBytes
		return 0, misfit{fmt.Errorf("repairMemory is %d KiB, and %d workers can share from %dMiB to %dMiB; write a size "+
			"between these, or 0", bytes>>10, workers, workers*minRepairChunks/perMiB, workers*(maxRepairChunks/perMiB))}
	}
	return int(chunks), nil
}

// checkEgress refuses bounds that no queue reaches: a device never has more descriptors than the TX
// ring of its socket.
func checkEgress(ports []string, bounds []dataplane.Egress) error {
	const most = queueDescs * xsk.ChunkBytes
	for i := range bounds {
		e := &bounds[i]
		for _, b := range []struct {
			name  string
			bytes int
		}{{"kmin", e.KminBytes}, {"kmax", e.KmaxBytes}, {"limit", e.LimitBytes}} {
			if b.bytes > most {
				return misfit{fmt.Errorf("egress of port %s: %s is %d KiB, and a device never has more than %dMiB; write at "+
					"most %dMiB", ports[i], b.name, b.bytes>>10, most>>20, most>>20)}
			}
		}
	}
	return nil
}

// kernelRetains returns how many entries the kernel has for packets that it retains of the groups
// that it carries: as many as fit into as much memory as the workers have for the same. It is at
// most maxKernelRetained.
func kernelRetains(bytes uint64) int {
	const entryBytes = 16 + bpf.RetainedBytes // as the map has them
	return int(min(bytes/uint64(entryBytes), maxKernelRetained)) / segmentEntries * segmentEntries
}

// queueShare returns how many chunks each of a worker's queues gets to receive into.
func queueShare(queues int) (int, error) {
	if queues*minQueueChunks > receiveChunks {
		return 0, misfit{fmt.Errorf("the ports have %d queues for each worker, and there is packet memory for %d; "+
			"reduce the queues with `ethtool -L PORT combined N`, or name fewer ports",
			queues, receiveChunks/minQueueChunks)}
	}
	return divide(receiveChunks, queues), nil
}

// divide returns the share of each queue. It is a power of two, as the size of a fill ring must be.
func divide(chunks, queues int) int {
	return min(queueDescs, 1<<(bits.Len(uint(chunks/max(queues, 1)))-1))
}

// perWorker returns the largest number of an interface's queues that one worker has.
func perWorker(queues, workers int) int { return (queues + workers - 1) / workers }

// setRooms gives each interface room for its queues. An interface that does not exist yet gets room
// for as many queues as the largest of the others has.
func setRooms(interfaces []*iface, workers int) error {
	most, sum := largest(interfaces, workers), 0
	queues := func(f *iface) int {
		if f.info.Queues == 0 {
			return most
		}
		return perWorker(f.info.Queues, workers)
	}
	for _, f := range interfaces {
		sum += queues(f)
	}
	share, err := queueShare(sum)
	if err != nil {
		return err
	}
	for _, f := range interfaces {
		f.room = queues(f) * share
	}
	return nil
}

// reserve returns how many chunks of each worker are for ports that are added later: enough for one
// more port like the largest.
func reserve(interfaces []*iface, workers int) int {
	return max(leastReserve, min(mostReserve, addedQueueChunks*largest(interfaces, workers)))
}

// largest returns the number of queues that one worker has of the port with the most queues.
func largest(interfaces []*iface, workers int) int {
	most := 1
	for _, f := range interfaces {
		most = max(most, perWorker(f.info.Queues, workers))
	}
	return most
}

// addedRoom returns the room for a port that is added, of which each worker has that many queues.
// It is half of the reserve, so that more ports can be added, unless the port needs more or less.
func addedRoom(reserve, queues int) (int, error) {
	if reserve < queues*minQueueChunks {
		return 0, misfit{fmt.Errorf("each forwarding thread has %d queues of it, and packet memory for %d queues of ports that are "+
			"added while rocastd runs; restart rocastd, or reduce the queues with ethtool -L", queues, reserve/minQueueChunks)}
	}
	return min(max(reserve/2, queues*addedQueueChunks), queues*queueDescs, reserve), nil
}

// fillChunks divides an interface's room among the queues that it has now. The room does not grow
// after the start, so more queues get less each.
func (f *iface) fillChunks(q, workers int) (uint32, error) {
	n := perWorker(q, workers)
	// A port that had few queues at the start has little room.
	if f.room < n*minQueueChunks {
		return 0, fmt.Errorf("it has %d queues, and when rocastd started it got packet memory for %d; restart "+
			"rocastd, or reduce the queues with `ethtool -L %s combined %d`",
			q, f.room/minQueueChunks*workers, f.info.Name, f.room/minQueueChunks*workers)
	}
	return uint32(divide(f.room, n)), nil
}
