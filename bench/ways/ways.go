// Package ways brings messages from one host to several receivers: by a group, or by a connection
// to each receiver. Above it, a program sees the same for both: it writes, and waits until enough
// queue pairs have completed what it wrote.
//
// Hosts are those of a bed, with soft NICs. The package makes queue pairs and moves data. It does
// not know what the data is, and not how a group is created.
package ways

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// Calm is a timeout of a second. Messages that wait for a slow link may wait for longer than 67 ms;
// a queue pair that sends them again makes the queue longer.
const Calm = 18

// Target is the memory of the receivers. All have the same address and key, and so has a group.
type Target struct {
	VA    uint64
	RKey  uint32
	Bytes int
}

// Settings say between which hosts a way leads. The receivers have registered the target.
type Settings struct {
	Source    *bed.Host
	Receivers []*bed.Host
	Target    Target
	MTU       int      // path MTU, bytes
	First     roce.QPN // the first of 1 + len(Receivers) numbers that no queue pair of these hosts has
	Timeout   uint8    // the exponent of the local ACK timeout; 0: that of rnic.Defaults, 67 ms
	// Receives is how many empty receives each receiver posts, for WRITEs with immediate. The
	// program posts another one for each that is taken.
	Receives int
}

// Way is a way to all receivers.
type Way struct {
	// Receivers are the queue pairs at the receivers, in their order.
	Receivers []*endpoint.QP

	qps  []*endpoint.QP // of the source: one to a group, or one to each receiver
	need int
	to   Target
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	posted  uint64
	done    []uint64      // messages that each queue pair of the source has completed
	failed  []error       // of each queue pair
	changed chan struct{} // closed, and replaced, when one of these changes
	heard   func(complete uint64)
}

// Ended is the error of a queue pair whose work request did not succeed.
type Ended struct {
	Message uint64 // the number of the message, from 0
	Status  rnic.Status
}

func (e *Ended) Error() string { return fmt.Sprintf("message %d ended with %v", e.Message, e.Status) }

// New makes a way of queue pairs that are connected. A message is complete when need of them have
// completed it, and all messages before it. From now on the way takes their completions. If heard
// is not nil, it is called with the number of complete messages whenever that has grown; it must
// not call the way.
func New(need int, to Target, heard func(complete uint64), qps ...*endpoint.QP) *Way {
	ctx, stop := context.WithCancel(context.Background())
	w := &Way{qps: qps, need: need, to: to, stop: stop, heard: heard,
		done: make([]uint64, len(qps)), failed: make([]error, len(qps)), changed: make(chan struct{})}
	for i := range qps {
		w.all.Go(func() { w.take(ctx, i) })
	}
	return w
}

func (s *Settings) qp(qpn roce.QPN, psn roce.PSN) rnic.Config {
	c := bed.QP(qpn, psn, s.MTU)
	if s.Timeout != 0 {
		c.Timeout = s.Timeout
	}
	return c
}

// Each makes a way with a connection to each receiver.
func Each(ctx context.Context, s Settings, need int, heard func(uint64)) (*Way, error) {
	var here, there []*endpoint.QP
	for i, r := range s.Receivers {
		qpn := s.First + roce.QPN(i)
		from, err := s.Source.RNIC.NewQP(s.qp(qpn, 0))
		if err != nil {
			return nil, err
		}
		to, err := s.listen(r, qpn)
		if err != nil {
			return nil, err
		}
		if err := Connect(ctx, from, endpoint.Peer{IP: r.IP, QPN: qpn}, to, endpoint.Peer{IP: s.Source.IP, QPN: qpn}); err != nil {
			return nil, err
		}
		here, there = append(here, from), append(there, to)
	}
	w := New(need, s.Target, heard, here...)
	w.Receivers = there
	return w, nil
}

// Connect connects both ends: the first queue pair has the first peer.
func Connect(ctx context.Context, a *endpoint.QP, peerOfA endpoint.Peer, b *endpoint.QP, peerOfB endpoint.Peer) error {
	if err := b.Connect(ctx, peerOfB); err != nil {
		return err
	}
	return a.Connect(ctx, peerOfA)
}

// listen makes the queue pair of a receiver, with its receives posted.
func (s *Settings) listen(r *bed.Host, qpn roce.QPN) (*endpoint.QP, error) {
	qp, err := r.RNIC.NewQP(s.qp(qpn, 0))
	for range s.Receives {
		if err == nil {
			err = qp.PostRecv(0, nil)
		}
	}
	return qp, err
}

// Group makes a way by a group, whose name, IP and policy the caller chooses. create creates the
// group that a file describes.
func Group(ctx context.Context, s Settings, name string, ip netip.Addr, policy string,
	create func(context.Context, []byte) error, heard func(uint64)) (*Way, error) {
	const psn = 1000
	from, err := s.Source.RNIC.NewQP(s.qp(s.First, psn))
	if err != nil {
		return nil, err
	}
	var file strings.Builder
	fmt.Fprintf(&file, "name: %s\nip: %v\nqpn: %d\nmtu: %d\n%s\nmemory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n",
		name, ip, s.First, s.MTU, policy, s.Target.VA, s.Target.Bytes, s.Target.RKey)
	fmt.Fprintf(&file, "  - {ip: %v, qpn: %d, psn: %d, role: source}\n", s.Source.IP, s.First, psn)
	var there []*endpoint.QP
	for i, r := range s.Receivers {
		qpn := s.First + 1 + roce.QPN(i)
		to, err := s.listen(r, qpn)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&file, "  - {ip: %v, qpn: %d, psn: %d, regions: [{va: %#x, length: %d, rkey: %#x}]}\n",
			r.IP, qpn, firstPSN(i), s.Target.VA, s.Target.Bytes, s.Target.RKey)
		there = append(there, to)
	}
	if err := create(ctx, []byte(file.String())); err != nil { // from now on the group's IP is found
		return nil, err
	}
	for i, to := range there {
		if err := to.Connect(ctx, endpoint.Peer{IP: ip, QPN: s.First, PSN: firstPSN(i)}); err != nil {
			return nil, err
		}
	}
	if err := from.Connect(ctx, endpoint.Peer{IP: ip, QPN: s.First}); err != nil {
		return nil, err
	}
	w := New(1, s.Target, heard, from)
	w.Receivers = there
	return w, nil
}

// firstPSN is what receiver i expects first: another one at each, as in a real group.
func firstPSN(i int) roce.PSN { return roce.PSN(7 * (i + 1)) }

// take takes the completions of one queue pair.
func (w *Way) take(ctx context.Context, i int) {
	for {
		c, err := w.qps[i].Wait(ctx)
		if err != nil { // the way is closed, or the host is
			return
		}
		w.mu.Lock()
		if c.Status == rnic.Success {
			before := w.complete()
			w.done[i]++
			if now := w.complete(); now > before && w.heard != nil {
				w.heard(now)
			}
		} else if w.failed[i] == nil {
			w.failed[i] = &Ended{Message: w.done[i], Status: c.Status}
		}
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

// complete is how many messages are complete: as many as the need-th best queue pair has completed.
// The caller holds the mutex.
func (w *Way) complete() uint64 {
	best := slices.Sorted(slices.Values(w.done))
	return best[len(best)-w.need]
}

// Complete returns how many messages are complete.
func (w *Way) Complete() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.complete()
}

// Write posts a message that goes to the place at of the target, on all queue pairs, and returns
// its number, from 0. It waits while a queue pair holds as many messages as it may. The data
// belongs to the way until all queue pairs have completed it.
func (w *Way) Write(ctx context.Context, data []byte, at int) (uint64, error) {
	return w.write(ctx, func(qp *endpoint.QP, n uint64) error {
		return qp.PostWrite(n, data, rnic.Remote{VA: w.to.VA + uint64(at), RKey: w.to.RKey})
	})
}

// WriteImm is Write with an immediate, which takes a receive at each receiver.
func (w *Way) WriteImm(ctx context.Context, data []byte, at int, imm uint32) (uint64, error) {
	return w.write(ctx, func(qp *endpoint.QP, n uint64) error {
		return qp.PostWriteImm(n, data, rnic.Remote{VA: w.to.VA + uint64(at), RKey: w.to.RKey}, imm)
	})
}

// HasRoom reports whether the next message is posted at once.
func (w *Way) HasRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.room()
}

// room is what HasRoom reports. The caller holds the mutex.
func (w *Way) room() bool { return w.posted-slices.Min(w.done) < uint64(depth) }

func (w *Way) write(ctx context.Context, post func(qp *endpoint.QP, n uint64) error) (uint64, error) {
	if err := w.wait(ctx, w.room); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.posted
	w.posted++
	for _, qp := range w.qps {
		if err := post(qp, n); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// depth is how many work requests a queue pair holds.
var depth = rnic.Defaults().SendDepth

// WaitFor waits until so many messages are complete.
func (w *Way) WaitFor(ctx context.Context, messages uint64) error {
	return w.wait(ctx, func() bool { return w.complete() >= messages })
}

// Drain waits until all queue pairs have completed everything that was posted.
func (w *Way) Drain(ctx context.Context) error {
	return w.wait(ctx, func() bool { return slices.Min(w.done) == w.posted })
}

// wait waits until ready, which is called with the mutex held, says yes. A way whose queue pair has
// ended gets no further, so that is an error.
func (w *Way) wait(ctx context.Context, ready func() bool) error {
	for {
		w.mu.Lock()
		yes, err, changed := ready(), w.ended(), w.changed
		complete, posted := w.complete(), w.posted
		w.mu.Unlock()
		switch {
		case yes:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages are complete: %w", complete, posted, ctx.Err())
		}
	}
}

// ended is the error of a queue pair that has ended, or nil.
func (w *Way) ended() error {
	for _, err := range w.failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// Close destroys the queue pairs. What is posted is forgotten.
func (w *Way) Close() {
	for _, qp := range append(slices.Clone(w.qps), w.Receivers...) {
		qp.Destroy()
	}
	w.stop()
	w.all.Wait()
}
