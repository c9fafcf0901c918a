package afxdp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/slow"
)

// onWorker runs f on the first worker's thread with n frames, which the worker holds until f
// returns.
func (w *world) onWorker(frames, frameBytes int, f func(worker *worker, out []dataplane.Outgoing)) {
	w.t.Helper()
	w.sw.Do(0, func() {
		worker := w.sw.workers[0]
		held := make([]dataplane.Frame, frames)
		var out []dataplane.Outgoing
		for i := range held {
			if !(pool{worker}).Load(&held[i], make([]byte, frameBytes), nil) {
				w.t.Error("no free chunk")
				return
			}
			out = append(out, dataplane.Outgoing{Frame: &held[i], Start: held[i].Start, Bytes: held[i].Len()})
		}
		f(worker, out)
		for i := range held {
			pool{worker}.Put(&held[i])
		}
	})
}

// hold makes the link behind port n keep the frames it gets, as a paused NIC does.
func (w *world) hold(n int) *slow.Link {
	w.t.Helper()
	l, err := slow.Attach(w.far[n], slow.Paused)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// smallBacklog opens sockets whose devices may keep only a few frames.
func smallBacklog(u *xsk.UMEM, ifIndex int, queue uint32, config xsk.SocketConfig) (*xsk.Socket, error) {
	s, err := xsk.Open(u, ifIndex, queue, config)
	if err == nil {
		err = unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 10_000)
	}
	return s, err
}

// A port that is stuck loses its frames and counts each batch. The other port loses none. The first
// batch that the port sends after that is sent completely.
func TestAStuckPortLosesItsFramesUntilItMoves(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.plug(2, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1", "p2"}, openSocket: smallBacklog})
	link := w.hold(2)
	const batches, frames = 10, 64
	w.onWorker(frames, 1100, func(worker *worker, out []dataplane.Outgoing) {
		for i := range batches {
			if sent := worker.ports[1].Send(out); sent == frames || i > 0 && sent > 0 {
				t.Errorf("batch %d: the stuck port sent %d frames", i, sent)
			}
			if sent := worker.ports[0].Send(out); sent != frames {
				t.Errorf("batch %d: the other port sent %d of %d frames", i, sent, frames)
			}
		}
	})
	if lost := w.losses(2); lost["tx-stalled"] != batches {
		t.Errorf("counted %v, want %d batches stalled", lost, batches)
	}
	if err := link.Drop(); err != nil {
		t.Fatal(err)
	}
	sent := 0
	w.eventually("the port sends", func() bool {
		w.onWorker(frames, 1100, func(worker *worker, out []dataplane.Outgoing) { sent = worker.ports[1].Send(out) })
		return sent > 0
	})
	if sent != frames {
		t.Errorf("the first batch that went out had %d of %d frames", sent, frames)
	}
}

// giving opens sockets in discipline Give, which veth would not need.
func giving(u *xsk.UMEM, ifIndex int, queue uint32, config xsk.SocketConfig) (*xsk.Socket, error) {
	config.Discipline = xsk.Give
	return xsk.Open(u, ifIndex, queue, config)
}

// On this kernel, too, a paused device keeps no more than its share, and its port takes the chunks
// back while it is idle.
func TestAPausedPortOfThisKernelKeepsItsShare(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.plug(2, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1", "p2"}, openSocket: giving})
	link := w.hold(2)
	given := func(port int) (n int) {
		w.sw.Do(0, func() { n = w.sw.workers[0].ports[port-1].out.Given() })
		return n
	}
	const frames = 64
	for range spareChunks / frames {
		w.onWorker(frames, 1100, func(worker *worker, out []dataplane.Outgoing) {
			worker.ports[1].Send(out)
			for i := range out {
				out[i].Last = true
			}
			if sent := worker.ports[0].Send(out); sent != frames {
				t.Errorf("the other port sent %d of %d frames", sent, frames)
			}
		})
		w.eventually("the other port's chunks are back", func() bool { return given(1) == 0 })
	}
	share := (spareChunks - reservedChunks) / 2
	if n := given(2); n < share/2 || n > share {
		t.Errorf("the paused port keeps %d chunks, its share is %d", n, share)
	}
	if lost := w.losses(2); lost["tx-backlog"] == 0 {
		t.Errorf("counted %v", lost)
	}
	if err := link.Drop(); err != nil {
		t.Fatal(err)
	}
	w.eventually("the paused port's chunks are back", func() bool { return given(2) == 0 })
	w.arrives(1)
}
