package xsk

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRandomWalkConservesChunks calls everything that a worker may call, in random order, while
// ports go down and come up, and audits the chunks again and again.
func TestRandomWalkConservesChunks(t *testing.T) {
	needMultiBuffer(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newWorld(t, 512)
	walk := &walk{world: w, random: rand.New(rand.NewPCG(seed, 0))}
	for i := range 3 {
		walk.ports = append(walk.ports, w.port(fmt.Sprint(i), portOptions{mtu: jumboMTU,
			SocketConfig: SocketConfig{RxDescs: 32, TxDescs: 32, FillDescs: 64, MultiBuffer: true}}))
	}
	walk.give = w.port("3", portOptions{mtu: jumboMTU,
		SocketConfig: SocketConfig{TxDescs: 16, CompletionDescs: 16, TxOnly: true, MultiBuffer: true, Discipline: Give}})
	steps := []func(){
		walk.hostSends, walk.hostSends, walk.receive, walk.receive, walk.receive, walk.lend, walk.lend,
		walk.giveCopies, walk.giveOriginals, walk.complete, walk.recycle, walk.recycle, walk.topUp, walk.toggle,
	}
	for step := range 2000 {
		steps[walk.random.IntN(len(steps))]()
		if step%100 == 0 {
			checkConserved(t, w.umem, w.held)
		}
	}
	checkConserved(t, w.umem, w.held)
	if walk.received == 0 || walk.sent == 0 || walk.given == 0 {
		t.Errorf("received %d, lent %d, given %d descriptors: the walk went nowhere", walk.received, walk.sent, walk.given)
	}
	w.free(walk.hand)
}

type walk struct {
	*world
	random                *rand.Rand
	ports                 []*port // lend
	give                  *port
	hand                  []Desc // whole frames the worker holds
	down                  *port
	received, sent, given int
}

func (w *walk) anyPort() *port { return w.ports[w.random.IntN(len(w.ports))] }

func (w *walk) hostSends() {
	host := w.anyPort().host
	for i := range w.random.IntN(20) {
		// The host of a port that is down cannot send.
		_, _ = unix.Write(host.fd, frame(i, 60+w.random.IntN(jumboMTU-60)))
	}
}

func (w *walk) receive() {
	if len(w.hand) > 200 {
		return
	}
	batch := make([]Desc, MaxFrameDescs+w.random.IntN(40))
	n := w.anyPort().Receive(batch)
	w.hand = append(w.hand, batch[:n]...)
	w.held += n
	w.received += n
}

// some returns a random number of whole frames from the hand.
func (w *walk) some() []Desc {
	n := 0
	for frames := w.random.IntN(8); frames > 0 && n < len(w.hand); frames-- {
		n += FrameDescs(w.hand[n:])
	}
	return w.hand[:n]
}

func (w *walk) lend() {
	out := w.anyPort()
	descs := w.some()
	w.sent += out.Transmit(descs)
	_, _ = out.Flush(0)
	for _, d := range descs {
		w.umem.Bytes(d.Addr, d.Len)[0]++
	}
}

func (w *walk) giveCopies() {
	var copies []Desc
	var addr [1]uint64
	for _, d := range w.some() {
		if w.umem.Alloc(addr[:]) == 0 {
			break
		}
		copies = append(copies, Desc{Addr: addr[0], Len: d.Len, Options: d.Options})
	}
	n := w.give.Transmit(copies)
	w.given += n
	for _, d := range copies[n:] {
		w.umem.Free([]uint64{d.Addr})
	}
	_, _ = w.give.Flush(0)
}

func (w *walk) giveOriginals() {
	n := w.give.Transmit(w.some())
	w.given += n
	w.hand = w.hand[n:]
	w.held -= n
}

func (w *walk) complete() {
	_ = w.give.Kick()
	addrs := make([]uint64, w.random.IntN(30))
	w.umem.Free(addrs[:w.give.Complete(addrs)])
}

func (w *walk) recycle() {
	descs := w.some()
	w.recycleUnseen(w.anyPort().Socket, descs) // also to a port they did not come from
	w.hand = w.hand[len(descs):]
}

func (w *walk) topUp() { w.anyPort().TopUp() }

func (w *walk) toggle() {
	if w.down != nil {
		w.setUp(w.down, true)
		w.down = nil
		return
	}
	if w.random.IntN(4) == 0 {
		w.down = w.anyPort()
		w.setUp(w.down, false)
	}
}
