package cm

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// The box takes a receiver that disconnects out of the group, and says so if it cannot, unless the
// connection has ended meanwhile.
func TestTheServiceTakesAReceiverOut(t *testing.T) {
	l := newLab(t)
	s := l.service()
	s.mu.Lock()
	s.machine.config.Policy.Ack = 1
	s.mu.Unlock()
	rep, receivers := l.connect()
	l.box.refuses(errors.New("busy"))
	l.send(l.r[1], &wire.DREQ{Pair: wire.Pair{Local: 21, Remote: receivers[1].LocalCommID}, RemoteQPN: receivers[1].QPN})
	const warns = "a receiver that has disconnected is still in the group of its RDMA-CM connection"
	testlab.Eventually(t, testlab.Patience, "told", func() bool { return l.logs.FilterMessage(warns).Len() == 1 }, nil)
	l.box.mu.Lock()
	if len(l.box.left) != 1 || l.box.left[0] != hostIPs["c"] {
		t.Errorf("%v have left", l.box.left)
	}
	l.box.mu.Unlock()
	if c := l.connections()[0]; c.State != Established || c.Receivers != 1 || c.Reason != "it goes on although receiver 10.77.0.3 disconnected" {
		t.Errorf("%+v", c)
	}
	l.box.refuses(nil)
	l.send(l.a, &wire.DREQ{Pair: swap(rep.Pair), RemoteQPN: rep.QPN})
	testlab.Eventually(t, testlab.Patience, "ended", func() bool { return l.box.has() == 0 }, nil)
	l.box.refuses(errors.New("it is not there any more"))
	s.leave(Leave{1, "cm-gone", hostIPs["b"]})
	if n := l.logs.FilterMessage(warns).Len(); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func (l *lab) service() *service { return l.proxy.services.All()[0] }

// heapBytes is the size of what is reachable. What pools keep is gone after two collections.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Connections that come and go cost no memory. The runtime's own varies by some thousand bytes.
func TestManyConnectsLeaveNothing(t *testing.T) {
	l := newLab(t)
	s := l.service()
	s.mu.Lock()
	s.machine.limits.remember = time.Millisecond
	s.mu.Unlock()
	several := func(n int) uint64 {
		for range n {
			rep, _ := l.connect()
			l.disconnect(rep)
			testlab.Eventually(t, testlab.Patience, "forgotten", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.machine.conns) == 0
			}, nil)
		}
		l.logs.TakeAll()
		return heapBytes()
	}
	before := several(2 * MaxPast) // as many ended ones are remembered for the operator
	goroutines := runtime.NumGoroutine()
	const connects = 200
	after := several(connects)
	if after > before+100*connects {
		t.Errorf("%d bytes before, %d after %d connects", before, after, connects)
	}
	testlab.Eventually(t, testlab.Patience, "all tasks have ended", func() bool { return runtime.NumGoroutine() <= goroutines && l.box.has() == 0 }, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := l.box.held.Load(); held != 0 {
		t.Errorf("%d ways are held", held)
	}
}

// A service that is down is not kept by a timer.
func TestAServiceThatIsDownIsForgotten(t *testing.T) {
	l := newLab(t)
	service := weak.Make(l.service())
	if err := l.proxy.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	testlab.Eventually(t, testlab.Patience, "forgotten", func() bool {
		runtime.GC()
		return service.Value() == nil
	}, nil)
}

// Down does not wait longer than for the hosts' answers.
func TestDownWaitsForTheHosts(t *testing.T) {
	l := newLab(t)
	l.connect()
	s := l.service()
	s.limits.goodbye = testlab.Patience
	for _, host := range append(l.r, l.a) {
		host.raw.SetReadDeadline(time.Time{})
		go answer(host)
	}
	began := time.Now()
	if err := l.proxy.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= testlab.Patience {
		t.Errorf("took %v for hosts that answer", took)
	}
	if c := s.list().Connections[0]; c.State != Over || c.Reason != "taken down by the box's operator" {
		t.Errorf("%+v", c)
	}
}

// Down waits for a group that is being made, and removes it.
func TestDownWaitsForAGroup(t *testing.T) {
	l := newLab(t)
	made := make(chan struct{})
	l.box.mu.Lock()
	l.box.slow = made
	l.box.mu.Unlock()
	l.ask()
	testlab.Eventually(t, testlab.Patience, "making", func() bool { return l.connections()[0].State == Making }, nil)
	time.AfterFunc(2*l.service().limits.goodbye, func() { close(made) })
	if err := l.proxy.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-made:
	default:
		t.Error("did not wait for the group")
	}
	if l.box.has() != 0 {
		t.Errorf("groups %v are left", l.box.groups)
	}
}

// The alarm rings when something is due, and not before.
func TestTheAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(testConfig("b"), newWays(), inBand, testSeed, usual, time.Now())
		s := &service{machine: m, began: time.Now(), log: zap.NewNop(), changed: make(chan struct{}, 1)}
		rings := 0
		s.alarm = time.AfterFunc(time.Hour, func() {
			if rings++; rings < 10 {
				s.step(nil)
			}
		})
		defer s.alarm.Stop()
		after := func(d time.Duration) int {
			s.step(nil)
			time.Sleep(d)
			synctest.Wait()
			return rings
		}
		if n := after(time.Minute); n != 0 {
			t.Errorf("%d rings while nothing is due", n)
		}
		m.conns[1] = &connection{id: 1, source: &side{}, state: Over}
		m.now = time.Since(s.began)
		m.remember(m.conns[1], m.now+m.limits.remember)
		if n := after(10*time.Second - 1); n != 0 || len(m.conns) != 1 {
			t.Errorf("%d rings too early, %d connections", n, len(m.conns))
		}
		if n := after(1); n != 1 || len(m.conns) != 0 {
			t.Errorf("%d rings when one is due, %d connections", n, len(m.conns))
		}
		if n := after(time.Minute); n != 1 {
			t.Errorf("%d rings in all", n)
		}
	})
}

// What the kernel does not take is counted.
func TestWhatIsNotSentIsCounted(t *testing.T) {
	l := newLab(t)
	s := l.service()
	s.mu.Lock()
	c := &connection{id: 1, state: Over}
	s.machine.lines[lineKey{l.a.ip, 5}] = &side{conn: c, addr: l.a.ip, line: &line{}}
	s.mu.Unlock()
	send := func() {
		s.step(Heard{hostIPs["a"], wire.MAD{Message: testREQ(hostIPs["a"], 10, 1, 1, 1000)}}) // is refused
		s.step(Received{From: l.a.ip, QPN: 5, Packet: Packet{Opcode: roce.OpSendOnly}})
	}
	send()
	if counts := l.proxy.List()[0].Counts; counts != (Counts{WrongAddress: 1}) {
		t.Errorf("counted %v", counts.Named())
	}
	s.socket.raw.Close()
	send()
	if counts := l.proxy.List()[0].Counts; counts != (Counts{WrongAddress: 2, NotSent: 2}) {
		t.Errorf("counted %v", counts.Named())
	}
}

// Receivers whose hosts are off keep no other host waiting, although the kernel has no room for
// more packets while it looks for these hosts.
func TestReceiversThatAreOff(t *testing.T) {
	l := newLab(t)
	s := l.service()
	receivers := make([]netip.Addr, 150)
	for i := range receivers {
		receivers[i] = hostIP(byte(i + 101))
	}
	ask := func(commID uint32) {
		s.mu.Lock()
		s.machine.config.Receivers = receivers
		s.mu.Unlock()
		l.send(l.a, testREQ(hostIPs["a"], commID, 1, roce.QPN(commID), 1000))
		testlab.Eventually(t, testlab.Patience, "asked", func() bool { return len(l.connections()) == int(commID)-9 }, nil)
	}
	ask(10)
	if counts := l.proxy.List()[0].Counts; counts != (Counts{}) {
		t.Errorf("counted %v", counts.Named())
	}
	if err := s.socket.raw.SetWriteBuffer(1); err != nil { // the kernel has a minimum
		t.Fatal(err)
	}
	began := time.Now()
	ask(11)
	const gaveUp = time.Second // the kernel asks three times for a MAC, once a second
	if counts := l.proxy.List()[0].Counts; time.Since(began) > gaveUp || counts[NotSent] < uint64(len(receivers)) {
		t.Errorf("after %v counted %v", time.Since(began), counts.Named())
	}
}

// A group that cannot be removed is in the log.
func TestAGroupThatCannotBeRemoved(t *testing.T) {
	l := newLab(t)
	rep, _ := l.connect()
	l.box.refuses(errors.New("busy"))
	l.send(l.a, &wire.DREQ{Pair: swap(rep.Pair), RemoteQPN: rep.QPN})
	logged := func() *observer.ObservedLogs {
		return l.logs.FilterMessage("could not remove the group of an RDMA-CM connection")
	}
	testlab.Eventually(t, testlab.Patience, "logged", func() bool { return logged().Len() == 1 }, nil)
	if fields := logged().All()[0].ContextMap(); fields["group"] != l.box.groups[0] || fields["error"] != "busy" {
		t.Errorf("%+v", fields)
	}
}
