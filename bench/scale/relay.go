package scale

import (
	"fmt"

	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/rnic"
)

// Relay is programs that bring a transfer to many hosts without multicast: each passes it on, in
// slices, over connections of its own.
type Relay struct {
	hosts   []int // host 0 is the source
	sizes   []int // of the slices
	next    [][]*conn
	has     []int // slices that each host has
	missing int   // hosts that do not have everything
	beganAt Time
	arrival
}

// slice is a slice that a program is to post.
type slice struct {
	over  *conn
	bytes int
}

// NewRelay makes programs bring bytes to receivers in the given shape, in slices of at most
// sliceBytes.
func (n *Net) NewRelay(source int, receivers []int, shape relaying.Shape, bytes int64, sliceBytes int) (*Relay, error) {
	if sliceBytes > n.MessageBytes || sliceBytes < 1 {
		return nil, fmt.Errorf("slices of %d bytes; messages have %d at most", sliceBytes, n.MessageBytes)
	}
	r := &Relay{
		hosts: append([]int{source}, receivers...), next: make([][]*conn, 1+len(receivers)), has: make([]int, 1+len(receivers)),
		missing: len(receivers),
	}
	for rest := bytes; rest > 0; rest -= int64(sliceBytes) {
		r.sizes = append(r.sizes, int(min(rest, int64(sliceBytes))))
	}
	for to := 1; to < len(r.hosts); to++ {
		from := shape(to)
		c, err := n.connect(r.hosts[from], r.hosts[to], len(r.sizes))
		if err != nil {
			return nil, err
		}
		c.relay, c.node, c.messages, c.bytes = r, to, len(r.sizes), bytes
		r.next[from] = append(r.next[from], c)
	}
	n.relays = append(n.relays, r)
	return r, nil
}

// Start makes the source send.
func (r *Relay) Start(n *Net) {
	r.beganAt = n.now
	for k := range r.sizes {
		r.passOn(n, 0, k)
	}
	n.pump(r.hosts[0])
}

// Began returns when the source began to send.
func (r *Relay) Began() Time { return r.beganAt }

// passOn lets a host send a slice to the hosts that get it from there, one after the other.
func (r *Relay) passOn(n *Net, node, number int) {
	h := &n.nics[r.hosts[node]]
	for _, c := range r.next[node] {
		h.todo = append(h.todo, slice{c, r.sizes[number]})
	}
}

// arrived notes that a host has the next slice.
func (r *Relay) arrived(n *Net, node int) {
	number := r.has[node]
	r.has[node]++
	r.passOn(n, node, number)
	if r.has[node] == len(r.sizes) {
		if r.missing--; r.missing == 0 {
			r.arrival.note(n)
		}
	}
	n.pump(r.hosts[node])
}

// Resent returns how many packets all hosts sent again.
func (r *Relay) Resent() uint64 { return r.count(rnic.FramesRetransmitted) }

// Timeouts returns how often a host lost patience.
func (r *Relay) Timeouts() uint64 { return r.count(rnic.Timeouts) }

func (r *Relay) count(c rnic.Counter) (sum uint64) {
	for _, conns := range r.next {
		for _, to := range conns {
			sum += to.qp.Counters().Get(c)
		}
	}
	return sum
}
