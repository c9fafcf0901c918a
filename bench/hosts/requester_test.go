package hosts

import (
	"testing"

	"github.com/rocast/rocast/bench/workload"
)

const (
	window   = Window
	ackEvery = Window / acksPerWindow
)

// drain takes all packets that the window lets go.
func drain(q *requester) (packets []workload.Packet) {
	for {
		p, ok := q.take()
		if !ok {
			return packets
		}
		packets = append(packets, p)
	}
}

func TestWindowClosesAndOpens(t *testing.T) {
	q := newRequester(1, false, 1, 3, window)
	if n := len(drain(q)); n != window {
		t.Fatalf("%d packets went out, the window is %d", n, window)
	}
	q.acknowledge(0, 0, ackEvery-1)
	q.acknowledge(2, 0, 2*ackEvery-1)
	if n := len(drain(q)); n != 0 {
		t.Fatalf("%d packets went out that receiver 1 has not made room for", n)
	}
	q.acknowledge(1, 0, ackEvery-2)
	if n := len(drain(q)); n != 0 {
		t.Fatalf("%d packets went out although receiver 1 lacks the packet that asked", n)
	}
	q.acknowledge(1, 0, 2*ackEvery-1)
	packets := drain(q)
	if len(packets) != ackEvery {
		t.Fatalf("%d packets went out; all have %d", len(packets), ackEvery)
	}
	if first := packets[0]; first.K != window || first.AckReq {
		t.Errorf("first new packet is %+v", first)
	}
	if last := packets[ackEvery-1]; !last.AckReq {
		t.Errorf("packet %+v does not ask", last)
	}
}

func TestGoesBackOnce(t *testing.T) {
	q := newRequester(1, false, 1, 1, window)
	drain(q)
	q.acknowledge(0, 0, ackEvery-1)
	q.goBack(false)
	again := drain(q)
	if len(again) != window || again[0].K != ackEvery || q.resent != window-ackEvery {
		t.Fatalf("went back to %+v with %d packets, %d of them again", again[0], len(again), q.resent)
	}
	q.goBack(false)
	if n := len(drain(q)); n != 0 {
		t.Errorf("a second NAK of the same loss sent %d packets again", n)
	}
	q.goBack(true)
	if n := len(drain(q)); n != window {
		t.Errorf("a timeout sent %d packets again", n)
	}
	q.acknowledge(0, 0, 2*ackEvery-1)
	q.goBack(false)
	if again := drain(q); again[0].K != 2*ackEvery {
		t.Errorf("a NAK after progress went back to %+v", again[0])
	}
	if q.backs != 3 {
		t.Errorf("counted %d times, want 3", q.backs)
	}
}

// What is acknowledged while it waits to be sent again is not sent again.
func TestAcknowledgedWhileGoingBack(t *testing.T) {
	q := newRequester(1, false, 1, 1, window)
	drain(q)
	q.goBack(false)
	q.take()
	q.acknowledge(0, 0, 4*ackEvery-1)
	if p, _ := q.take(); p.K != 4*ackEvery {
		t.Errorf("next is %+v", p)
	}
}

func TestAcknowledgesAcrossTheWrap(t *testing.T) {
	q := newRequester(1, false, 1, 1, window)
	q.following[0] = psnMask - 5
	drain(q)
	q.acknowledge(0, 0, (psnMask-5+ackEvery-1)&psnMask)
	if q.base != ackEvery {
		t.Errorf("base is %d", q.base)
	}
}

func TestGroupsAreNumberedEach(t *testing.T) {
	for _, hot := range []bool{false, true} {
		q := newRequester(1000, hot, 2, 1, window)
		next := map[int]uint32{}
		for range 100 {
			for _, p := range drain(q) {
				if p.K != next[p.Group] {
					t.Fatalf("hot %v: %+v, want K %d", hot, p, next[p.Group])
				}
				next[p.Group]++
				if p.AckReq {
					q.acknowledge(0, p.Group, p.K)
				}
			}
		}
		if want := 950; !hot && len(next) < want || hot && len(next) != hotGroups {
			t.Errorf("hot %v: %d groups had traffic", hot, len(next))
		}
	}
}

// A queue whose packets are acknowledged does not vouch for the packets of another queue.
func TestQueuesAreAcknowledgedEach(t *testing.T) {
	q := newRequester(2, true, 2, 1, window)
	drain(q)
	q.acknowledge(0, 0, window/2-1)
	if q.base != 1 {
		t.Errorf("base is %d, and packet 1 was on the other queue", q.base)
	}
	q.acknowledge(0, 1, window/2-1)
	if q.base != window {
		t.Errorf("base is %d with everything acknowledged", q.base)
	}
}

// What is acknowledged late does not take back what was acknowledged before it.
func TestAcknowledgedOutOfOrder(t *testing.T) {
	q := newRequester(3, true, 2, 1, window)
	for i, group := range []int{0, 1, 2, 1} { // groups 0 and 2 share a queue
		q.sent[i] = workload.Packet{Group: group, AckReq: true}
	}
	q.next = 4
	q.marks = []mark{{seq: 0, group: 0, missing: 1}, {seq: 2, group: 2, missing: 1}, {seq: 3, group: 1, k: 1, missing: 1}}
	for _, group := range []int{2, 0} {
		q.acknowledge(0, group, 0)
	}
	if q.base != 1 {
		t.Fatalf("base is %d, and packet 1 is not acknowledged", q.base)
	}
	q.acknowledge(0, 1, 1)
	if q.base != 4 {
		t.Errorf("base is %d with everything acknowledged", q.base)
	}
}

// A packet whose answers got lost is acknowledged by those to a later one, and forgotten.
func TestForgetsWhatALaterAnswerAcknowledged(t *testing.T) {
	q := newRequester(1000, false, 1, 2, window)
	packets := drain(q)
	first, later := packets[ackEvery-1], packets[2*ackEvery-1]
	q.acknowledge(0, first.Group, first.K)
	for party := range 2 {
		q.acknowledge(party, later.Group, later.K)
	}
	if q.base != 2*ackEvery {
		t.Fatalf("base is %d", q.base)
	}
	q.acknowledge(0, later.Group, later.K) // says nothing new
	if len(q.marks) != acksPerWindow-2 || q.marks[0].seq < q.base {
		t.Errorf("waits for answers to %+v, base is %d", q.marks, q.base)
	}
}
