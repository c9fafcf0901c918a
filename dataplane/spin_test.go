package dataplane_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/roce"
)

const microsecond = feedback.Tick(time.Microsecond)

// spins returns for how long after the frames a worker spins before it waits. Each look at the
// clock takes a microsecond.
func spins(t *testing.T, frames func(net *porttest.Net)) feedback.Tick {
	t.Helper()
	var clock feedback.Tick
	net := porttest.NewFanOutAt(4, func() feedback.Tick { clock += microsecond; return clock })
	if _, err := net.Switch.Add(group()); err != nil {
		t.Fatal(err)
	}
	clock = 10 * feedback.Tick(time.Second) // idle since then
	frames(net)
	began := clock
	ctx, cancel := context.WithCancel(t.Context())
	var waited feedback.Tick
	net.Waiters[0].Waiting = func() { waited = clock; cancel() }
	net.Switch.Run(ctx)
	// A worker that spins yields its CPU after each poll without a frame.
	if yields, polls := net.Waiters[0].Yields, int((waited-began)/microsecond); yields < polls-5 || yields > polls {
		t.Errorf("the worker yields %d times in %d polls", yields, polls)
	}
	return waited - began
}

// carry makes an engine carry the group, and returns the last packet of the group.
func carry(t *testing.T, net *porttest.Net) (psn roce.PSN) {
	for i := range int32(20) {
		psn = roce.PSN(firstPSN).Add(i)
		net.Ports[0].Put(write(psn, []byte("data")).frame(t))
		net.Poll()
	}
	if n := counter(t, net.Switch, "fan-out-armed"); n != 1 {
		t.Fatalf("armed %d times", n)
	}
	return psn
}

// A worker spins longer while a group has data in flight, and not at all if no frame came or an
// engine carries the group: then only feedback wakes it.
func TestAWorkerSpinsByTime(t *testing.T) {
	data := func(net *porttest.Net) { net.Ports[0].Put(write(firstPSN, []byte("data")).frame(t)) }
	acks := func(net *porttest.Net) {
		for i, p := range group().Paths {
			net.Ports[i+1].Put(ack(p.Dst, p.FirstPSN, roce.SyndromeUnlimited).frame(t))
		}
	}
	acked := func(net *porttest.Net, psn roce.PSN, from ...netip.Addr) {
		for i, p := range group().Paths {
			if slices.Contains(from, p.Dst) {
				net.Ports[i+1].Put(ack(p.Dst, p.FirstPSN.Add(psn.Sub(firstPSN)), roce.SyndromeUnlimited).frame(t))
			}
		}
	}
	if dataplane.SpinSettled <= 0 || dataplane.SpinInFlight <= dataplane.SpinSettled {
		t.Errorf("it spins for %v, and for %v with data in flight", dataplane.SpinSettled, dataplane.SpinInFlight)
	}
	for _, c := range []struct {
		name   string
		frames func(net *porttest.Net)
		want   feedback.Tick // between this and some polls more
	}{
		{"no frame", func(*porttest.Net) {}, 0},
		{"data", data, dataplane.SpinInFlight},
		{"data and one ACK", func(net *porttest.Net) {
			data(net)
			net.Poll()
			net.Ports[1].Put(ack(ipB, group().Paths[0].FirstPSN, roce.SyndromeUnlimited).frame(t))
		}, dataplane.SpinInFlight},
		{"data and all ACKs", func(net *porttest.Net) { data(net); net.Poll(); acks(net) }, dataplane.SpinSettled},
		{"an engine carries the group, and one ACK came", func(net *porttest.Net) {
			acked(net, carry(t, net), ipB)
		}, 0},
		{"an engine carries the group, and all ACKs came", func(net *porttest.Net) {
			acked(net, carry(t, net), ipB, ipC, ipD)
		}, 0},
		{"the group was removed", func(net *porttest.Net) {
			data(net)
			net.Poll()
			for g := range net.Switch.Table().All {
				if err := net.Switch.Remove(g.ID); err != nil {
					t.Fatal(err)
				}
			}
		}, dataplane.SpinSettled},
	} {
		if got := spins(t, c.frames); got < c.want || got > c.want+10*microsecond {
			t.Errorf("%s: it spins for %v, want %v", c.name, time.Duration(got), time.Duration(c.want))
		}
	}
}

// While a source streams past the worker, its feedback is taken in batches. A source that waits for
// its feedback gets it at once.
func TestFeedbackOfAStreamIsTakenInBatches(t *testing.T) {
	const sent = 40
	for name, c := range map[string]struct{ ahead, naps int }{
		"the source streams": {dataplane.StreamPackets + 1, 1},
		"the source waits":   {dataplane.StreamPackets, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var clock feedback.Tick
			net := porttest.NewFanOutAt(4, func() feedback.Tick { clock += microsecond; return clock })
			g := group()
			g.Policy.Ack = 3 // with a quorum the engine leaves the answers to the worker
			if _, err := net.Switch.Add(g); err != nil {
				t.Fatal(err)
			}
			for i := range int32(sent) {
				net.Ports[0].Put(write(roce.PSN(firstPSN).Add(i), []byte("data")).frame(t))
				net.Poll()
			}
			first := group().Paths[0].FirstPSN
			net.Ports[1].Put(ack(ipB, first.Add(int32(sent-c.ahead)), roce.SyndromeUnlimited).frame(t))
			ctx, cancel := context.WithCancel(t.Context())
			net.Waiters[0].Waiting = cancel
			net.Switch.Run(ctx)
			if n := net.Waiters[0].Naps; n != c.naps {
				t.Errorf("the worker naps %d times, want %d", n, c.naps)
			}
			const least, atMost = 10 * time.Microsecond, 250 * time.Microsecond // a window of 128 packets takes 250 us
			if d := net.Waiters[0].Napped; c.naps > 0 && (d < least || d > atMost) {
				t.Errorf("the worker naps for %v", d)
			}
		})
	}
}

// A worker blocks for a bounded time, because a wake-up may be missed, and no longer than the
// period of the groups whose policy depends on time.
func TestAWorkerBlocksForABoundedTime(t *testing.T) {
	for _, c := range []struct {
		silentAfter   time.Duration
		least, atMost time.Duration
	}{
		{0, 10 * time.Millisecond, time.Second},
		{time.Second, time.Duration(feedback.RepairPeriod), time.Duration(feedback.TimerPeriod)},
	} {
		g := group()
		g.Policy.SilentAfter = c.silentAfter
		net := newNet(t, g)
		say(t, net, write(firstPSN, nil))
		ctx, cancel := context.WithCancel(t.Context())
		net.Waiters[0].Waiting = cancel
		net.Switch.Run(ctx)
		if d := net.Waiters[0].Timeout; d < c.least || d > c.atMost {
			t.Errorf("silent after %v: it blocks for %v", c.silentAfter, d)
		}
	}
}
