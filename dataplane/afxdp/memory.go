package afxdp

import (
	"fmt"
	"math/bits"
)

const (
	// queueDescs is the size of every ring but the fill ring, and the most
	// chunks a queue keeps to receive into. The kernel drops what arrives
	// beyond it (rx-ring-full).
	queueDescs = 2048
	// minQueueChunks is the least a queue gets to receive into: some batches,
	// while the worker is busy with other queues.
	minQueueChunks = 256
	// receiveChunks bounds what one worker's queues keep to receive into, all
	// together: 256 MiB. More than 32 queues get smaller shares.
	receiveChunks = 1 << 16
	// spareChunks are for frames that the worker works on, for its replies, and
	// for copies that zero-copy devices have not sent yet (send.go: spare).
	spareChunks = 4096
)

// queueShare is how many chunks each of a worker's queues gets to receive into.
func queueShare(queues int) (int, error) {
	if queues*minQueueChunks > receiveChunks {
		return 0, misfit{fmt.Errorf("the ports have %d queues for each worker and there is packet memory for %d; give each port fewer with `ethtool -L PORT combined N`, or name fewer ports",
			queues, receiveChunks/minQueueChunks)}
	}
	return divide(receiveChunks, queues), nil
}

// divide is the share of each queue: fill rings have powers of two.
func divide(chunks, queues int) int {
	return min(queueDescs, 1<<(bits.Len(uint(chunks/max(queues, 1)))-1))
}

// perWorker is how many of an interface's queues one worker has, at most.
func perWorker(queues, workers int) int { return (queues + workers - 1) / workers }

// setRooms gives each interface room for the queues it has. One that is not
// there yet is taken to have as many as the largest of the others.
func setRooms(interfaces []*iface, workers int) error {
	largest, sum := 1, 0
	for _, f := range interfaces {
		largest = max(largest, perWorker(f.info.Queues, workers))
	}
	queues := func(f *iface) int {
		if f.info.Queues == 0 {
			return largest
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

// fillChunks divides an interface's room among the queues it has now. The memory
// itself is the start's: more queues get less each.
func (f *iface) fillChunks(q, workers int) (uint32, error) {
	n := perWorker(q, workers)
	// A port that began with few queues has little room to divide.
	if f.room < n*minQueueChunks {
		return 0, fmt.Errorf("it has %d queues, and since the start packet memory for %d; restart rocastd, or give it fewer with `ethtool -L %s combined %d`",
			q, f.room/minQueueChunks*workers, f.info.Name, f.room/minQueueChunks*workers)
	}
	return uint32(divide(f.room, n)), nil
}
