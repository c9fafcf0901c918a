package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// blocker is a Waiter that only Wake ends.
type blocker struct {
	wake  chan struct{}
	waits chan struct{} // one for each Wait, as far as there is room
}

func newBlocker() blocker { return blocker{make(chan struct{}, 1), make(chan struct{}, 100)} }

func (b blocker) Wait(time.Duration) {
	select {
	case b.waits <- struct{}{}:
	default:
	}
	<-b.wake
}

func (b blocker) Nap(time.Duration) { b.Wait(0) }

func (b blocker) Yield() {}

func (b blocker) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// line is a port that tests use while workers run.
type line struct {
	mu  sync.Mutex
	in  [][]byte
	out chan []byte
	// table classifies what arrives.
	table func() *mft.Table
	pool  *porttest.Pool
	polls atomic.Int64
}

func (l *line) put(frames ...[]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in = append(l.in, frames...)
}

// waiting returns how many frames have not been received yet.
func (l *line) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.in)
}

func (l *line) Receive(frames []dataplane.Frame) int {
	l.polls.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.in), len(frames))
	for i, b := range l.in[:n] {
		f := &frames[i]
		l.pool.Load(f, b, nil)
		f.Group, f.Kind, _ = dataplane.Classify(l.table(), b)
	}
	l.in = l.in[n:]
	return n
}

func (l *line) Unsent() int { return 0 }

func (l *line) Send(out []dataplane.Outgoing) int {
	for i := range out {
		f := out[i].Frame
		l.out <- append([]byte(nil), f.Buf[out[i].Start:f.Start+len(f.Fragments[0])]...)
	}
	return len(out)
}

// running is a switch whose workers run, each with a line for each port.
type running struct {
	*dataplane.Switch
	lines  [][]*line // by worker, then port
	waits  []blocker
	cancel context.CancelFunc
	ended  chan struct{}
}

// newRunning runs a switch. The polls of a busy one are so far apart that another one sleeps after
// the first.
func newRunning(t *testing.T, workers int, busy bool) *running {
	t.Helper()
	return newRunningWith(t, workers, busy, nil)
}

// newRunningWith is newRunning with an engine in front of the workers.
func newRunningWith(t *testing.T, workers int, busy bool, fanOut dataplane.FanOut) *running {
	t.Helper()
	var now func() feedback.Tick
	if busy {
		var clock atomic.Int64
		now = func() feedback.Tick { return feedback.Tick(clock.Add(int64(dataplane.SpinSettled))) }
	}
	r := &running{ended: make(chan struct{})}
	var configs []dataplane.WorkerConfig
	for range workers {
		c := dataplane.WorkerConfig{Pool: &porttest.Pool{}}
		var lines []*line
		for range 4 {
			l := &line{out: make(chan []byte, 100), table: func() *mft.Table { return r.Table() }, pool: c.Pool.(*porttest.Pool)}
			lines, c.Ports = append(lines, l), append(c.Ports, l)
		}
		wait := newBlocker()
		c.Waiter = wait
		r.lines, r.waits, configs = append(r.lines, lines), append(r.waits, wait), append(configs, c)
	}
	r.Switch = dataplane.New(dataplane.Config{Workers: configs, Steering: noSteering{}, FanOut: fanOut, Busy: busy, Now: now})
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { defer close(r.ended); r.Run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
}

// within fails the test if the function does not return soon.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(2 * testlab.Patience):
		t.Fatalf("%s does not end", what)
	}
}

// sleeps waits until a worker has gone to sleep.
func (r *running) sleeps(t *testing.T, worker int) {
	t.Helper()
	select {
	case <-r.waits[worker].waits:
	case <-time.After(2 * testlab.Patience):
		t.Fatalf("worker %d does not sleep", worker)
	}
}

// Control changes and asks sleeping workers, frames pass, also from one worker to another one that
// sleeps. Everything ends when the context is done, and calls after that still return.
func TestRun(t *testing.T) {
	r := newRunning(t, 2, false)
	first, g := group(), group()
	first.QPN = 2
	for i := range first.Paths {
		first.Paths[i].RemoteQPN = 2
	}
	within(t, "Add", func() {
		for _, g := range []*mft.Group{first, g} {
			if _, err := r.Add(g); err != nil {
				t.Error(err)
			}
		}
	})
	dataplane.Claim(r.Switch, g.ID, 1)
	r.sleeps(t, 0)
	r.sleeps(t, 1)
	ran := 0
	within(t, "Do", func() {
		for i := range 2 {
			r.Do(i, func() { ran++ })
		}
	})
	if ran != 2 {
		t.Errorf("%d functions ran", ran)
	}
	r.sleeps(t, 1)
	r.lines[0][0].put(write(firstPSN, []byte("x")).frame(t)) // the second worker's group by the first one's queue
	r.waits[0].Wake()
	for i, path := range g.Paths {
		within(t, "a copy", func() {
			if d := decode(t, <-r.lines[1][i+1].out); d.PSN != path.FirstPSN || !d.ICRCValid {
				t.Errorf("%+v", d)
			}
		})
	}
	within(t, "the rest", func() {
		if s, ok := r.GroupState(g.ID); !ok || s.Sent != firstPSN {
			t.Errorf("%+v", s)
		}
		next := group()
		next.Paths = next.Paths[:2]
		if err := r.Replace(g.ID, next); err != nil {
			t.Error(err)
		}
		if err := r.Remove(first.ID); err != nil {
			t.Error(err)
		}
		r.stop()
		if s, ok := r.GroupState(g.ID); !ok || len(s.Paths) != 2 {
			t.Errorf("%+v", s)
		}
		r.Do(1, func() { ran++ })
	})
	if ran != 3 || moved(r.Switch)["forwarded"] != 1 {
		t.Errorf("%d functions ran; counters %v", ran, moved(r.Switch))
	}
}

// slow is an engine that carries nothing, and whose Disarm does not return before it may.
type slow struct {
	dataplane.FanOut
	armed, disarms, goOn chan struct{}
}

func (s *slow) Claim(id mft.GroupID) (mft.GroupID, bool) { return id, true }
func (s *slow) Wanted(mft.GroupID) dataplane.Want        { return dataplane.WantsNothing }

func (s *slow) Arm(_ mft.GroupID, _ *mft.Block, w dataplane.FanWord, _ roce.PSN) error {
	close(s.armed)
	return nil
}

func (s *slow) Merge(mft.GroupID, []feedback.Progress, feedback.Progress, int32) error {
	return errors.New("it does not merge")
}

func (s *slow) Disarm(mft.GroupID) dataplane.FanWord {
	close(s.disarms)
	<-s.goOn
	return dataplane.FanWord{PSN: firstPSN + 16}
}

// A group gets its first frame while control replaces the group: the worker handles the frame in a
// batch for which it has loaded the table before. When Replace returns, the group's state is that
// of the new version.
func TestTheFirstFrameComesWhileTheGroupIsReplaced(t *testing.T) {
	engine := &slow{armed: make(chan struct{}), disarms: make(chan struct{}), goOn: make(chan struct{})}
	r := newRunningWith(t, 2, false, engine)
	other, g := numbered(0), group()
	for _, g := range []*mft.Group{other, g} {
		if _, err := r.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	dataplane.Claim(r.Switch, g.ID+1, 0) // so that worker 1 may have one more
	of := func(g *mft.Group, psn roce.PSN) []byte {
		return with(write(psn, nil), func(p *packet) { p.bth.DestQPN = g.QPN }).frame(t)
	}
	in := r.lines[1][0]
	for psn := roce.PSN(firstPSN); psn < firstPSN+16; psn++ {
		in.put(of(other, psn))
	}
	r.waits[1].Wake()
	within(t, "arming", func() { <-engine.armed })
	for _, l := range r.lines[1] {
		for len(l.out) > 0 {
			<-l.out
		}
	}
	in.put(of(other, firstPSN+16), of(g, firstPSN))
	r.waits[1].Wake()
	within(t, "the batch", func() { <-engine.disarms })
	next := group()
	next.Paths = next.Paths[:2]
	select {
	case <-r.waits[1].wake: // of the batch, which the worker may have found by itself
	default:
	}
	replaced := make(chan error, 1)
	go func() { replaced <- r.Replace(g.ID, next) }()
	var err error
	within(t, "Replace asks the worker", func() {
		select {
		case err = <-replaced:
			replaced = nil
		case <-r.waits[1].wake:
			r.waits[1].Wake()
		}
	})
	close(engine.goOn)
	within(t, "Replace", func() {
		if replaced != nil {
			err = <-replaced
		}
	})
	if s, ok := r.GroupState(g.ID); err != nil || !ok || dataplane.Owner(r.Switch, g.ID) != 1 || len(s.Paths) != 2 {
		t.Errorf("%v; worker %d owns the group, whose state has %d paths of 2", err, dataplane.Owner(r.Switch, g.ID), len(s.Paths))
	}
}

// Whoever asks while the workers end gets an answer, from the worker or in its place.
func TestAskingWhileItEnds(t *testing.T) {
	for range 20 {
		r := newRunning(t, 2, false)
		var asking sync.WaitGroup
		var answers [8]int
		for i := range answers {
			asking.Go(func() {
				for range 50 {
					r.Do(i%2, func() { answers[i]++ })
				}
			})
		}
		r.cancel()
		within(t, "asking", asking.Wait)
		<-r.ended
		for i, n := range answers {
			if n != 50 {
				t.Errorf("asker %d got %d of 50 answers", i, n)
			}
		}
	}
}

// A busy worker never sleeps, although it polls in vain for longer than another one would.
func TestABusyWorkerDoesNotSleep(t *testing.T) {
	r := newRunning(t, 1, true)
	polls := &r.lines[0][0].polls
	slept := func() bool { return len(r.waits[0].waits) > 0 }
	testlab.Eventually(t, testlab.Patience, "ten polls", func() bool { return slept() || polls.Load() > 10 }, nil)
	r.stop()
	if slept() {
		t.Error("it slept")
	}
}

// What changes nothing says so in one sentence.
func TestChangesThatAreRefused(t *testing.T) {
	g := group()
	net := newNet(t, g)
	second := group()
	second.Name, second.QPN = "second", 2
	second.Paths = second.Paths[:1]
	second.Paths[0].RemoteQPN = 2
	if _, err := net.Switch.Add(second); err != nil {
		t.Fatal(err)
	}
	edited := func(edit func(*mft.Group)) *mft.Group {
		g := group()
		g.Name = "next"
		edit(g)
		return g
	}
	add := func(g *mft.Group) error { _, err := net.Switch.Add(g); return err }
	replace := func(g *mft.Group) error { return net.Switch.Replace(0, g) }
	for want, err := range map[string]error{
		"group next: 10.77.0.3 is behind port 4, and there are only 4 ports": add(edited(func(g *mft.Group) { g.IP, g.Paths[1].Port = ipD.Next(), 4 })),
		"group next: 10.77.0.1 is behind port 9, and there are only 4 ports": replace(edited(func(g *mft.Group) { g.Source.Port = 9 })),
		"group next: a group needs at least one receiver":                    replace(edited(func(g *mft.Group) { g.Paths = nil })),
		"group next: 10.77.0.100 with QPN 2 is taken by another group":       replace(edited(func(g *mft.Group) { g.QPN = 2 })),
		"group next: 10.77.0.100 with QPN 1 is taken by another group":       add(edited(func(*mft.Group) {})),
		"group next is gone": net.Switch.Replace(7, edited(func(*mft.Group) {})),
		"group next: the policy of a running group cannot change; remove the group and create it again": replace(edited(func(g *mft.Group) { g.Policy.Evict = true })),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if net.Switch.Table().Len() != 2 || net.Switch.Table().Group(g.ID) != g {
		t.Error("the table changed")
	}
	unresolved := edited(func(g *mft.Group) { g.Paths[1].Port = mft.NoPort })
	if err := replace(unresolved); err != nil {
		t.Errorf("a member whose next hop is unknown: %v", err)
	}
	if err := errors.Join(net.Switch.Remove(g.ID), net.Switch.Remove(g.ID)); err != nil {
		t.Errorf("removing twice: %v", err)
	}
}

// A classifier that fails in the middle of a change gets back what it had, and the error names the
// first key.
func TestAChangeThatFailsIsUndone(t *testing.T) {
	g := group()
	net := newNet(t, g)
	entries := map[mft.Key]bool{}
	for _, k := range g.Keys() {
		entries[k] = true
	}
	before, fails := len(entries), true
	net.OnSteer = func(k mft.Key, there bool) error {
		if !there && fails {
			return fmt.Errorf("%v stays", k)
		}
		if entries[k] = there; !there {
			delete(entries, k)
		}
		return nil
	}
	next := group()
	next.Paths[0].RemoteQPN, next.Paths[1].RemoteQPN, next.Paths[2].RemoteQPN, next.QPN = 7, 8, 9, 1
	at(next, ipGroup.Next())
	err := net.Switch.Replace(g.ID, next)
	if err == nil || net.Switch.Table().Group(g.ID) != g {
		t.Fatalf("%v; table %+v", err, net.Switch.Table().Group(g.ID))
	}
	keys := g.Keys()
	if want := fmt.Sprintf("group g: %v stays", keys[len(keys)-1]); len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
		t.Errorf("%v, want %s first", err, want)
	}
	fails = false
	if err := net.Switch.Replace(g.ID, group()); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if !entries[k] {
			t.Errorf("%v is missing", k)
		}
	}
	if before != 3 {
		t.Errorf("%d keys", before)
	}
}

// Answers to sources behind different ports, due in one batch, leave each by its source's port.
func TestAnswersLeaveByTheirPorts(t *testing.T) {
	g, other := group(), group()
	other.Name, other.QPN, other.Source = "other", 2, mft.Source{Leg: leg(3, ipD, 18), FirstPSN: firstPSN}
	g.Paths, other.Paths = g.Paths[:1], other.Paths[:1]
	other.Paths[0].RemoteQPN = other.QPN
	net := newNet(t, g)
	if _, err := net.Switch.Add(other); err != nil {
		t.Fatal(err)
	}
	toOther := func(p *packet) { p.bth.DestQPN = other.QPN }
	net.Ports[0].Put(write(firstPSN, nil).frame(t))
	net.Ports[3].Put(with(with(write(firstPSN, nil), toOther), func(p *packet) { p.src = ipD }).frame(t))
	net.Poll()
	a := ack(ipB, g.Paths[0].FirstPSN, roce.SyndromeUnlimited)
	net.Ports[1].Put(a.frame(t))
	net.Ports[1].Put(with(a, toOther).frame(t))
	net.Poll()
	for port, qpn := range map[int]roce.QPN{0: 17, 3: 18} {
		out := net.Ports[port].Take()
		if len(out) != 1 || decode(t, out[0]).QPN != qpn {
			t.Fatalf("%d answers left by port %d", len(out), port)
		}
		if c := net.Switch.PortCounters()[port]; c.TxFrames != 1 || c.TxBytes != uint64(len(out[0])) {
			t.Errorf("an answer of %d bytes left by port %d, and it counts %+v", len(out[0]), port, c)
		}
	}
}

// Ports are counted over all workers, and groups by reason.
func TestCounters(t *testing.T) {
	net, g := ofSecond(t)
	data := write(firstPSN, []byte("x")).frame(t)
	for range 2 {
		net.Ports[0].Put(data)
		net.Poll()
	}
	net.Queues[1][0].Put(data)
	net.Poll()
	net.Queues[1][2].Full = true
	net.Queues[1][0].Put(data)
	net.Poll()
	sum := net.Switch.PortCounters()
	n, copied := uint64(len(data)), uint64(len(net.Queues[1][1].Take()[0]))
	want := []dataplane.PortCounters{
		{RxFrames: 4, RxBytes: 4 * n}, {TxFrames: 4, TxBytes: 4 * copied}, {TxFrames: 3, TxBytes: 3 * copied, TxLost: 1},
		{TxFrames: 4, TxBytes: 4 * copied},
	}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	state, _ := net.Switch.GroupState(g.ID)
	counts := map[string]uint64{}
	for _, c := range state.Counters {
		counts[c.Name] = c.Value
	}
	all := int(dataplane.NumReasons) + int(feedback.NumCauses-feedback.CauseReceiver)
	if len(state.Counters) != all || counts["forwarded"] != 1 || counts["resent"] != 3 {
		t.Errorf("group %v", state.Counters)
	}
	if n := len(newNet(t, group()).Switch.PortCounters()); n != 4 {
		t.Errorf("a single worker counts %d ports", n)
	}
	if empty, _ := net.Switch.GroupState(0); len(empty.Counters) != all {
		t.Errorf("a group without traffic: %v", empty.Counters)
	}
}

func TestOpenPorts(t *testing.T) {
	for s, want := range map[dataplane.PortState]bool{
		dataplane.PortUp: true, dataplane.PortDown: true, dataplane.PortGone: false, dataplane.PortFailed: false,
	} {
		if s.Open() != want {
			t.Errorf("%s is open: %v", s, s.Open())
		}
	}
}

// A source's QP is one flow for ECMP, with a port of RoCEv2's range.
func TestReplyPortsAreInRange(t *testing.T) {
	for _, qpn := range []roce.QPN{1, 0x3FFF, 0x4000, 0xFFFFFF} {
		l := leg(0, ipA, qpn)
		r := dataplane.Reply{Leg: &l}
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := uint16(b[34])<<8|uint16(b[35]), 0xC000+uint16(qpn)%0x4000; got != want {
			t.Errorf("QPN %#x: port %#x, want %#x", uint32(qpn), got, want)
		}
	}
}
