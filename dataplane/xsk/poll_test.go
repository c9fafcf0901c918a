package xsk

import (
	"errors"
	"os"
	"testing"
	"time"
)

func newPoller(t *testing.T, sockets ...*Socket) *Poller {
	t.Helper()
	p, err := NewPoller(sockets...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestPollReturnsWhenAFrameArrivesOnAnySocket(t *testing.T) {
	w := newWorld(t, 256)
	ports := []*port{
		w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 64}}),
		w.port("1", portOptions{SocketConfig: SocketConfig{FillDescs: 64}}),
	}
	poller := newPoller(t, ports[0].Socket, ports[1].Socket)
	for _, p := range []*port{ports[1], ports[0], ports[1]} {
		arrived := make(chan error)
		go func() {
			_, err := poller.Poll(patience)
			arrived <- err
		}()
		p.host.send(frame(0, 100))
		if err := <-arrived; err != nil {
			t.Fatal(err)
		}
		w.recycle(p.Socket, w.receive(p.Socket, 1))
	}
}

func TestWakeEndsPoll(t *testing.T) {
	poller := newPoller(t)
	woken := make(chan bool)
	go func() {
		for {
			w, err := poller.Poll(patience)
			if err != nil {
				t.Error(err)
			}
			if w || err != nil {
				woken <- w
				return
			}
		}
	}()
	if err := poller.Wake(); err != nil {
		t.Fatal(err)
	}
	if !<-woken {
		t.Error("Poll did not say that it was woken")
	}
}

func TestWakesBeforePollAreOne(t *testing.T) {
	poller := newPoller(t)
	for range 3 {
		if err := poller.Wake(); err != nil {
			t.Fatal(err)
		}
	}
	if woken, err := poller.Poll(0); !woken || err != nil {
		t.Errorf("first poll: %v, %v", woken, err)
	}
	if woken, err := poller.Poll(0); woken || err != nil {
		t.Errorf("second poll: %v, %v", woken, err)
	}
}

func TestPollIsBounded(t *testing.T) {
	poller := newPoller(t)
	start := time.Now()
	if woken, err := poller.Poll(time.Millisecond); woken || err != nil {
		t.Errorf("%v, %v", woken, err)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("took %v", took)
	}
}

// A wait is not shorter because the wait before it ended early.
func TestPollWaitsForTheWholeTime(t *testing.T) {
	poller := newPoller(t)
	for try := 1; ; try++ {
		if err := poller.Wake(); err != nil {
			t.Fatal(err)
		}
		if woken, err := poller.Poll(patience); !woken || err != nil {
			t.Errorf("%v, %v", woken, err)
		}
		start := time.Now()
		if woken, err := poller.Poll(50 * shortWait); woken || err != nil {
			t.Errorf("%v, %v", woken, err)
		}
		took := time.Since(start)
		if took >= 50*shortWait {
			return
		}
		if try == 20 { // a signal of the Go runtime may end one or the other
			t.Fatalf("took %v", took)
		}
	}
}

func TestWakeAfterCloseIsAnError(t *testing.T) {
	poller := newPoller(t)
	if err := poller.Close(); err != nil {
		t.Fatal(err)
	}
	if err := poller.Wake(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestPollAllocatesNothing(t *testing.T) {
	poller := newPoller(t)
	if allocs := testing.AllocsPerRun(100, func() { _, _ = poller.Poll(0) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// A frame does not end a nap, and Wake does.
func TestWakeEndsANap(t *testing.T) {
	w := newWorld(t, 256)
	port := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 64}})
	poller := newPoller(t, port.Socket)
	port.host.send(frame(0, 100))
	w.recycle(port.Socket, w.receive(port.Socket, 1)) // it has arrived
	port.host.send(frame(0, 100))
	if woken, err := poller.Nap(time.Millisecond); woken || err != nil {
		t.Errorf("woken %v, %v", woken, err)
	}
	if err := poller.Wake(); err != nil {
		t.Fatal(err)
	}
	if woken, err := poller.Nap(time.Millisecond); !woken || err != nil {
		t.Errorf("woken %v, %v", woken, err)
	}
	w.recycle(port.Socket, w.receive(port.Socket, 1))
}
