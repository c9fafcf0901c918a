package perftest

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/groupfile"
)

func TestASideSpeaksUpBeforeItsTurn(t *testing.T) {
	s := &side{in: make(chan []byte, 1)}
	if s.spokeUp() {
		t.Error("a silent side")
	}
	s.in <- []byte("a")
	if !s.spokeUp() {
		t.Error("bytes that no step has seen")
	}
	<-s.in
	s.rest = []byte("a")
	if !s.spokeUp() {
		t.Error("bytes behind the last message")
	}
}

// TestASingleByteIsRead: a message may come byte by byte.
func TestASingleByteIsRead(t *testing.T) {
	here, there := net.Pipe()
	s := &side{conn: here, in: make(chan []byte, 1), gone: make(chan struct{})}
	go s.pump(t.Context())
	for _, b := range []byte("ab") {
		if _, err := there.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.read(t.Context(), 2, 10*time.Second, nil); err != nil || string(got) != "ab" {
		t.Errorf("got %q, %v", got, err)
	}
	there.Close()
	<-s.gone
}

// cutOff is a connection whose host does not answer any more.
type cutOff struct{ net.Conn }

func (cutOff) Read([]byte) (int, error) { return 0, syscall.ETIMEDOUT }

// TestWhoSeesThatASideIsGoneKnowsWhy: whenever its reader looks.
func TestWhoSeesThatASideIsGoneKnowsWhy(t *testing.T) {
	for range 10000 {
		s := &side{name: "client", conn: cutOff{}, in: make(chan []byte), gone: make(chan struct{})}
		go s.pump(t.Context())
		for there := true; there; {
			select {
			case _, there = <-s.in:
			default: // it looks again at once
			}
		}
		if says := error(hungUp{s}).Error(); says != "client does not answer any more" {
			t.Fatal(says)
		}
	}
}

// TestNobodyWaitsForASideInVain: a client that left does not hold its receivers until they answer,
// and a message that cannot be sent ends the run.
func TestNobodyWaitsForASideInVain(t *testing.T) {
	left := &side{name: "client", gone: make(chan struct{})}
	close(left.gone)
	s := &side{name: "receiver", in: make(chan []byte)}
	if _, err := s.read(t.Context(), 1, 10*time.Second, left); err != error(hungUp{left}) {
		t.Errorf("read: %v", err)
	}
	closed, other := net.Pipe()
	defer other.Close()
	closed.Close()
	s.conn = closed
	if err := s.write([]byte("a")); err != error(hungUp{s}) {
		t.Errorf("write: %v", err)
	}
}

// TestTheFirstToLeaveIsNamed: a side that leaves later is no reason, and gives the others no more
// time.
func TestTheFirstToLeaveIsNamed(t *testing.T) {
	first, second := &side{name: "first"}, &side{name: "second"}
	var d departure
	d.begin(first, 0)
	limit := d.limit
	d.begin(second, time.Hour)
	if d.first != first || d.limit != limit {
		t.Errorf("%s is named; a new limit: %v", d.first.name, d.limit != limit)
	}
}

// TestARunIsSilentForLong: during a run a client need not say anything: it measures.
func TestARunIsSilentForLong(t *testing.T) {
	c := &conversation{
		groups: &fakeGroups{have: map[string]*groupfile.File{"g": {}}}, made: []string{"g"},
		limits: limits{answer: time.Nanosecond, watch: time.Millisecond, idle: 20 * time.Millisecond},
		client: &side{name: "client", in: make(chan []byte)},
	}
	c.active.last = time.Now()
	want := "client has sent nothing for 20ms, and others may wait for its receivers"
	if err := c.await(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTrafficIsThatOfAllGroups(t *testing.T) {
	c := &conversation{made: []string{"g", "h"}, groups: &fakeGroups{
		have: map[string]*groupfile.File{"g": {}, "h": {}},
		seen: map[string]Traffic{"g": {1, 2, 3}, "h": {10, 20, 30}},
	}}
	if sum, ok := c.traffic(); !ok || sum != (Traffic{11, 22, 33}) {
		t.Errorf("%+v, %v", sum, ok)
	}
	c.made = append(c.made, "unknown")
	if sum, ok := c.traffic(); ok || sum != (Traffic{}) {
		t.Errorf("a group that the data path does not have: %+v, %v", sum, ok)
	}
}

// listener returns what accept returns.
type listener struct {
	net.Listener
	accept func() (net.Conn, error)
}

func (l *listener) Accept() (net.Conn, error) { return l.accept() }

// TestClientsAreServedAfterAFailure: a box that has no file left for a connection has one later.
// The service tries once a second.
func TestClientsAreServedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		here, client := net.Pipe()
		tries, began := 0, time.Now()
		s := &service{
			log: zap.New(teller{told: told}), limits: usual,
			listener: &listener{accept: func() (net.Conn, error) {
				if tries++; tries < 3 {
					return nil, errors.New("too many open files")
				}
				cancel()
				return here, nil
			}},
		}
		s.serve(ctx)
		if len(told) != 2 || <-told != "perftest cannot accept a client" {
			t.Errorf("logged %d times", len(told))
		}
		if took := time.Since(began); tries != 3 || took != 2*time.Second {
			t.Errorf("%d tries take %v", tries, took)
		}
		// The service has ended meanwhile, so it sends the client away.
		client.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client reads: %v", err)
		}
	})
}

// TestAStopDoesNotWaitForTheNextTry: a service that cannot accept clients ends at once.
func TestAStopDoesNotWaitForTheNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		s := &service{
			log: zap.NewNop(), limits: usual,
			listener: &listener{accept: func() (net.Conn, error) { return nil, errors.New("too many open files") }},
		}
		s.serve(ctx)
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it ends after %v", took)
		}
	})
}

// slowToClose is a connection whose reader learns a second late that the connection is closed.
type slowToClose struct {
	net.Conn
	closed chan struct{}
}

func (c slowToClose) Close() error { close(c.closed); return nil }

func (c slowToClose) Read([]byte) (int, error) {
	<-c.closed
	time.Sleep(time.Second)
	return 0, net.ErrClosed
}

// TestNobodyReadsAfterARun: a run is over only when its goroutines have ended.
func TestNobodyReadsAfterARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newSlow := func() *side {
			return &side{conn: slowToClose{closed: make(chan struct{})}, in: make(chan []byte, 1), gone: make(chan struct{})}
		}
		c := &conversation{client: newSlow(), receivers: []*side{newSlow()}, gone: make(chan *side, 1)}
		for _, s := range []*side{c.client, c.receivers[0]} {
			c.listenTo(t.Context(), s)
		}
		c.hangUp()
		if len(c.gone) != 1 {
			t.Error("the receiver's connection is still read")
		}
		select {
		case <-c.client.gone:
		default:
			t.Error("the client's connection is still read")
		}
	})
}

// TestTheReasonOfAStopIsTheStop: what fails while the service is taken down, such as a connection
// to a receiver or a message, is not the reason of the run's end.
func TestTheReasonOfAStopIsTheStop(t *testing.T) {
	ctx, down := context.WithCancelCause(t.Context())
	down(errDown)
	for _, message := range []string{version, strings.Repeat("x", versionBytes)} {
		c := &conversation{
			config: Config{Receivers: addrs("127.0.0.11"), Port: 1}, limits: usual,
			client: &side{name: "client", rest: []byte(message)}, slot: make(chan struct{}, 1), note: func(func(*Session)) {},
			expects: func(time.Time, string) {}, holds: func() {},
		}
		if err := c.run(ctx); err != errDown {
			t.Errorf("%v, want %v", err, errDown)
		}
	}
}

// TestTheClientsToolShowsInItsFirstSecond: only ib_write_bw sleeps for a second before it speaks.
func TestTheClientsToolShowsInItsFirstSecond(t *testing.T) {
	for silent, want := range map[time.Duration]string{0: "ib_send_bw", 100 * time.Millisecond: "ib_send_bw", time.Second: "ib_write_bw"} {
		synctest.Test(t, func(t *testing.T) {
			c := &conversation{limits: usual, client: &side{rest: []byte(version)}, connected: time.Now(), note: func(func(*Session)) {}}
			time.Sleep(silent)
			if err := c.hear(t.Context()); err != nil || c.tool() != want {
				t.Errorf("silent for %v: %v, %s, want %s", silent, err, c.tool(), want)
			}
		})
	}
}

// TestHowTheKernelAsksAHost: it finds within ten seconds that a host has died, and five lost
// questions do not look like that.
func TestHowTheKernelAsksAHost(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := newSide("client", conn)
	for name, want := range map[int]int{unix.TCP_KEEPIDLE: 5, unix.TCP_KEEPINTVL: 1, unix.TCP_KEEPCNT: 5} {
		if got := option(t, s, name); got != want {
			t.Errorf("option %d is %d, want %d", name, got, want)
		}
	}
}

// TestAReceiverThatIsOffIsGivenUp: a dial limit of 0 would be none, and the operator waits for the
// answer.
func TestAReceiverThatIsOffIsGivenUp(t *testing.T) {
	if d := usual.dial; d < time.Second || d > 10*time.Second {
		t.Errorf("after %v", d)
	}
}
