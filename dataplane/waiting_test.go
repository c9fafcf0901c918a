package dataplane_test

import (
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// manyWaiting is a worker with groups under repair that all wait for an answer.
type manyWaiting struct {
	*porttest.Net
	core *dataplane.Core
	out  dataplane.Outputs
	now  feedback.Tick
}

// newManyWaiting returns n groups, of which the first few are served every 50 us and the others
// every second.
func newManyWaiting(t testing.TB, n, often int) *manyWaiting {
	t.Helper()
	w := &manyWaiting{}
	w.Net = porttest.NewRetaining(4, n, nil, func() feedback.Tick { return w.now })
	w.core = dataplane.CoreOf(w.Switch.Workers()[0])
	for i := range n {
		g := groupWithQPN(roce.QPN(1 + i))
		period := time.Second
		if i < often {
			period = time.Duration(feedback.RepairPeriod)
		}
		g.Policy = feedback.Policy{
			Repair: feedback.RepairLocal, RepairWindow: 1, RepairAttempts: 1e6, RepairTimerFloor: period, RepairTimerCap: period,
		}
		if _, err := w.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		w.Ports[0].Put(asking(firstPSN).to(g).frame(t))
		w.Poll()
		for _, p := range w.Ports {
			p.Take()
		}
	}
	return w
}

// groupWithQPN returns a group with this QPN.
func groupWithQPN(qpn roce.QPN) *mft.Group {
	g := group()
	g.QPN = qpn
	for i := range g.Paths {
		g.Paths[i].RemoteQPN = qpn
	}
	return g
}

// period serves the groups that are due after one more period, and returns how many repairs that
// causes.
func (w *manyWaiting) period() int {
	w.now += feedback.RepairPeriod
	w.out.Reset()
	for w.core.Tick(w.now, &w.out) {
	}
	return len(w.out.Repairs)
}

// Groups that are due are served in time, and without allocation, however many others wait.
func TestGroupsThatAreDueAmongMany(t *testing.T) {
	const n, often, receivers = 400, 10, 3
	w := newManyWaiting(t, n, often)
	for range 100 { // a tenth of a second passes, in which the lists grow and every group is looked at
		w.now += feedback.Tick(time.Millisecond)
		w.period()
	}
	if a := testing.AllocsPerRun(100, func() {
		if sent := w.period(); sent != often*receivers {
			t.Fatalf("%d packets are sent again in a period, want %d", sent, often*receivers)
		}
	}); a != 0 {
		t.Errorf("%v allocations in a period", a)
	}
}

// Events that come faster than timers are looked at do not put the timers off.
func TestEventsPutNoTimerOff(t *testing.T) {
	b := newRepairBench(t, 64)
	b.send(asking(1000))
	b.answer(0, 1000, roce.SyndromeUnlimited)
	b.take(1)
	for range 10 * time.Millisecond / (20 * time.Microsecond) {
		b.now += feedback.Tick(20 * time.Microsecond)
		b.answer(0, 1000, roce.SyndromeUnlimited)
	}
	if len(b.take(1)) == 0 {
		t.Error("a silent receiver is sent nothing again")
	}
}

// While the engine carries a group, a worker is not woken for timers that run out when the answer
// has usually come, nor for one that runs out soon. It is if another group waits for the worker.
func TestAWorkerSeldomLooksAtWhatTheEngineCarries(t *testing.T) {
	t.Run("merged", func(t *testing.T) { testAWorkerSeldomLooks(t, merged) })
	t.Run("not merged", func(t *testing.T) { testAWorkerSeldomLooks(t, notMerged) })
}

func testAWorkerSeldomLooks(t *testing.T, edit func(*mft.Group)) {
	b, psn := newCarriedBench(t, edit)
	b.wait(20 * time.Millisecond) // nothing of before waits any more
	sleeps := func() time.Duration {
		dataplane.Sleep(b.Switch.Workers()[0])
		return b.Waiters[0].Timeout
	}
	for range 200 {
		b.now += feedback.Tick(70 * time.Microsecond)
		b.send(asking(psn))
		b.expectEngine(true)
		b.settle(psn, 0)
		if d := sleeps(); d < time.Millisecond {
			t.Fatalf("the worker sleeps for %v", d)
		}
		psn = psn.Next()
	}
	b.wait(20 * time.Millisecond)
	b.wait(time.Duration(dataplane.LookPeriod - b.now%dataplane.LookPeriod)) // no look at the first group is due soon
	b.add(b.other())
	p := asking(firstPSN)
	p.bth.DestQPN = 2
	b.send(p)
	b.now += feedback.Tick(70 * time.Microsecond)
	b.send(asking(psn))
	for path := range 3 {
		b.answer(path, psn, roce.SyndromeUnlimited)
	}
	if d := sleeps(); d < 500*time.Microsecond {
		t.Errorf("while another group waits for longer, the worker sleeps for %v", d)
	}
	b.wait(900 * time.Microsecond)
	if d := sleeps(); d >= time.Millisecond/2 {
		t.Errorf("with a group of its own that waits, the worker sleeps for %v", d)
	}
}

// A worker never sleeps longer than it would with no group that waits, although a source that
// pauses for long inside a message is left alone for four times as long.
func TestAWaitingGroupMakesNoSleepLonger(t *testing.T) {
	b := newRepairBench(t, 64)
	p := quiet(1000)
	p.bth.Opcode = roce.OpWriteFirst
	b.send(p)
	b.now += feedback.Tick(10 * time.Second)
	p.bth.Opcode, p.bth.PSN, p.reth = roce.OpWriteMiddle, 1001, nil
	b.send(p)
	if d := b.sleeps(); d != 100*time.Millisecond {
		t.Errorf("the worker sleeps for %v", d)
	}
}

// BenchmarkWaiting measures what the timers of ten groups cost in a period of 50 us, while other
// groups wait as well.
func BenchmarkWaiting(b *testing.B) {
	for name, n := range map[string]int{"10": 10, "8000": 8000} {
		b.Run(name, func(b *testing.B) {
			w := newManyWaiting(b, n, 10)
			for b.Loop() {
				w.period()
			}
		})
	}
}

// BenchmarkSilentGroups measures what one look at 480 silent groups costs that the engine carries,
// which is as many as it has memory for with the default of repair.
func BenchmarkSilentGroups(b *testing.B) {
	const groups = 480
	w := &manyWaiting{}
	w.Net = porttest.NewRetaining(4, 64*groups, porttest.NewFanOut(), func() feedback.Tick { return w.now })
	w.core = dataplane.CoreOf(w.Switch.Workers()[0])
	for i := range groups {
		g := groupWithQPN(roce.QPN(1 + i))
		g.Policy = feedback.Policy{Repair: feedback.RepairLocal, RepairWindow: 64}
		if _, err := w.Switch.Add(g); err != nil {
			b.Fatal(err)
		}
		for n := range int32(20) {
			w.Ports[0].Put(asking(firstPSN + roce.PSN(n)).to(g).frame(b))
			w.Poll()
			for _, p := range g.Paths {
				w.Ports[p.Port].Put(ack(p.Dst, p.FirstPSN.Add(n), roce.SyndromeUnlimited).to(g).frame(b))
			}
			w.Poll()
		}
	}
	if fans := dataplane.Fans(w.core); fans.Armed-fans.Disarmed != groups {
		b.Fatalf("not all groups are carried: %+v", fans)
	}
	for range 2000 { // nothing waits for an answer any more
		w.now += feedback.Tick(time.Millisecond)
		w.Poll()
	}
	for b.Loop() {
		w.now += dataplane.SilentPeriod
		w.Poll()
		for w.core.Tick(w.now, &w.out) {
		}
	}
}
