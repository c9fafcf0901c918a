package dataplane_test

import (
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

// saturated is a source that always has a window of packets on their way, more than a worker takes
// in a batch. Its packets arrive at the first worker, and the last one owns the group. Receivers
// acknowledge every 64th packet, to the owner.
type saturated struct {
	*porttest.Net
	t           *testing.T
	window      int32
	base, next  roce.PSN
	first, last []roce.PSN // by receiver: of its first packet, and the newest that it has
}

func newSaturated(t *testing.T, repair feedback.RepairPolicy, workers int) *saturated {
	g := group()
	g.Policy.Repair = repair
	var clock feedback.Tick
	net := porttest.NewFanOutWorkers(4, workers, func() feedback.Tick { clock += 100 * microsecond; return clock })
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	if owner := dataplane.Claim(net.Switch, g.ID, workers-1); owner != workers-1 {
		t.Fatalf("worker %d owns the group", owner)
	}
	s := &saturated{Net: net, t: t, window: 250, base: firstPSN, next: firstPSN}
	for _, p := range g.Paths {
		s.first, s.last = append(s.first, p.FirstPSN), append(s.last, p.FirstPSN.Prev())
	}
	return s
}

// turn lets the source send what its window allows, the other workers hand all of it off, the owner
// take one batch of each port and of each other worker, and the hosts hear what comes of it.
func (s *saturated) turn() {
	s.t.Helper()
	for ; s.next.Sub(s.base) < s.window; s.next = s.next.Next() {
		p := write(s.next, []byte("data"))
		p.bth.AckReq = s.next%64 == 0
		s.Ports[0].PutPast(p.frame(s.t))
	}
	workers := s.Switch.Workers()
	owner := len(workers) - 1
	for _, w := range workers[:owner] {
		for w.Poll() > 0 {
		}
	}
	workers[owner].Poll()
	for i, host := range group().Paths {
		var acked bool
		for _, b := range s.sent(i + 1) {
			d := decode(s.t, b)
			if d.PSN != s.last[i].Next() {
				s.t.Fatalf("%v got packet %d behind %d", host.Dst, d.PSN, s.last[i])
			}
			s.last[i] = d.PSN
			acked = acked || roce.PSN(firstPSN).Add(d.PSN.Sub(s.first[i]))%64 == 0
		}
		if acked {
			s.Queues[owner][i+1].PutPast(ack(host.Dst, s.last[i], roce.SyndromeUnlimited).frame(s.t))
		}
	}
	for _, b := range s.sent(0) {
		if d := decode(s.t, b); d.Syndrome.IsACK() {
			s.base = d.PSN.Next()
		}
	}
}

// sent returns the frames that were sent by a port: first what the engine carried, because it
// carries nothing behind a packet that the workers get.
func (s *saturated) sent(port int) (frames [][]byte) {
	for _, ports := range s.Queues {
		frames = append(frames, ports[port].Take()...)
	}
	return frames
}

// The engine gets a group although packets of its source always wait for the worker: the worker
// takes them before the answers that would let the source send more. Frames that wait when the
// group is armed would end the engine's turn at once. It is the same for packets that another
// worker hands off.
func TestAnEngineGetsTheGroupOfABusySource(t *testing.T) {
	for _, workers := range []int{1, 2} {
		for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
			s := newSaturated(t, repair, workers)
			for range 100 {
				s.turn()
			}
			m := moved(s.Switch)
			if m["fan-out-carried"] < m["forwarded"]/2 {
				t.Errorf("%d workers, repair %v: the engine carried %d of %d packets: %v",
					workers, repair, m["fan-out-carried"], m["forwarded"], m)
			}
		}
	}
}

// Other ports do not wait for long while the worker takes what waits for a group that is to be
// armed.
func TestABusySourceDoesNotKeepTheWorker(t *testing.T) {
	for _, c := range []struct {
		batch   feedback.Tick // takes so long
		batches int
	}{{100 * microsecond, 8}, {1900 * microsecond, 3}, {2000 * microsecond, 2}, {50000 * microsecond, 1}} {
		var clock feedback.Tick
		net := porttest.NewFanOutAt(4, func() feedback.Tick { clock += c.batch; return clock })
		if _, err := net.Switch.Add(group()); err != nil {
			t.Fatal(err)
		}
		for psn := roce.PSN(firstPSN); psn.Sub(firstPSN) < 1000; psn = psn.Next() {
			net.Ports[0].Put(write(psn, nil).frame(t))
		}
		batches := 0
		net.Ports[0].Receiving = func() { batches++ }
		net.Switch.Workers()[0].Poll()
		if batches != c.batches {
			t.Errorf("a batch takes %d us: %d batches in a row, want %d", c.batch/microsecond, batches, c.batches)
		}
	}
}
