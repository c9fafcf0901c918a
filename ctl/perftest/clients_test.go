package perftest

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/internal/testlab"
)

var version = string(opening("6.29", 3).exchanges[0].client)

// connect is a client that sends one text and nothing more.
func (l *lab) connect(says string) net.Conn {
	l.Helper()
	return l.connectFrom(clientIP, says)
}

func (l *lab) connectFrom(ip netip.Addr, says string) net.Conn {
	l.Helper()
	conn, err := l.connFrom(ip)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, says); err != nil {
		l.Fatal(err)
	}
	return conn
}

// follow continues with a script.
func (l *lab) follow(conn net.Conn, exchanges []exchange) {
	l.Helper()
	for i, e := range exchanges {
		if _, err := conn.Write(e.client); err != nil {
			l.Fatal(err)
		}
		if _, err := readOnce(conn, len(e.server)); err != nil {
			l.Fatalf("exchange %d: %v", i, err)
		}
	}
}

// until waits until the sessions have these states, oldest first.
func (l *lab) until(want string) {
	l.Helper()
	var got string
	testlab.Eventually(l, testlab.Patience, "the sessions are "+want, func() bool {
		var states []string
		for _, s := range l.helper.List()[0].Sessions {
			states = append(states, s.State.String())
		}
		got = strings.Join(states, " ")
		return got == want
	}, func() string { return "they are " + got })
}

// serveAgain starts a receiver's server as its user does after each run.
func (l *lab) serveAgain(sc *script) {
	l.Helper()
	l.listeners = nil
	l.listen()
	l.play(func() error { _, _ = l.server(0, sc); return nil })
}

// TestASilentClientKeepsNobodyWaiting: a client that connects and sends nothing does not delay
// other clients.
func TestASilentClientKeepsNobodyWaiting(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.version = time.Hour })
	l.up()
	l.connect("")
	l.connect("6.2")
	l.until("handshaking handshaking")
	sc := newest().keys("aaaaa")
	l.play(func() error { _, err := l.server(0, sc.moved(l.config.Receivers[0], 1)); return err })
	l.play(func() error { _, err := l.client(sc, 8); return err })
	l.ended(2)
	l.until("handshaking handshaking ended")
}

// TestClientsTakeTurns: a second client is listed as waiting, and is served next.
func TestClientsTakeTurns(t *testing.T) {
	l := newLab(t, 1, quick)
	l.up()
	sc := newest().keys("aaa")
	server := sc.moved(l.config.Receivers[0], 1)
	l.play(func() error { _, _ = l.server(0, server.held()); return nil })
	first := l.connect("")
	l.follow(first, sc.exchanges)
	l.until("running")
	l.serveAgain(server.held())
	second := l.connect(version)
	l.hears("perftest client waits until the previous run ends: the run of 127.0.0.1 has not ended; it ends in 5 min unless client 127.0.0.1 sends")
	l.until("running waiting")
	leaves := l.connect(version)
	l.until("running waiting waiting")
	leaves.Close()
	l.until("running waiting ended")

	first.Close()
	if _, err := readOnce(second, len(version)); err != nil {
		t.Error(err)
	}
	l.until("ended handshaking ended")
	l.follow(second, sc.exchanges[1:])
	l.until("ended running ended")
	if names := l.groups.names(); len(names) != 1 {
		t.Errorf("groups %v", names)
	}
	third := l.connect(version)
	l.until("ended running ended waiting")
	second.Close()
	l.ended(2)
	if err := hungUpOn(third); err != nil { // its receiver was not started again
		t.Error(err)
	}
	l.until("ended ended ended refused")
}

// TestDownSendsThoseWhoWaitAway: taking a service down also ends the clients that wait.
func TestDownSendsThoseWhoWaitAway(t *testing.T) {
	l := newLab(t, 1, quick)
	l.up()
	sc := newest().keys("aaa")
	l.play(func() error { _, _ = l.server(0, sc.moved(l.config.Receivers[0], 1).held()); return nil })
	l.follow(l.connect(""), sc.exchanges)
	waiting := l.connect(version)
	l.until("running waiting")
	if err := l.helper.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	if err := hungUpOn(waiting); err != nil {
		t.Error(err)
	}
	l.ended(1)
}

// TestTooManyClientsOfOneHost: a host that connects and says nothing keeps no other host out.
func TestTooManyClientsOfOneHost(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.version = time.Hour })
	l.helper.options.Bounds = bounds.New(zap.NewNop())
	l.up()
	for range MaxOfAClient {
		l.connect("")
	}
	l.until("handshaking handshaking handshaking handshaking")
	if err := hungUpOn(l.connect("")); err != nil {
		t.Error(err)
	}
	l.hears("run of 127.0.0.1 refused: 4 clients of 127.0.0.1 are connected already; wait until one has ended")
	if n := l.helper.options.Bounds.Counts()[bounds.PerftestClients]; n != 1 {
		t.Errorf("the bound is met %d times", n)
	}
	l.connectFrom(clientIP.Next().Next(), "")
	l.until("handshaking handshaking handshaking handshaking refused handshaking")
}

// TestWhoWaitsBetweenTwoRuns: the run before is over, and the next one has not begun.
func TestWhoWaitsBetweenTwoRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		turn <- struct{}{}
		c := &conversation{
			limits: usual, client: &side{gone: make(chan struct{})}, slot: turn, note: func(func(*Session)) {}, holds: func() {},
			holder: func() *side { return nil },
		}
		time.AfterFunc(time.Minute, func() { <-turn })
		if err := c.takeSlot(t.Context()); err != nil || !c.hasSlot {
			t.Errorf("%v, it has the slot: %v", err, c.hasSlot)
		}
	})
}

// TestWhoseRunOthersWaitFor: when it ends is said if it is known.
func TestWhoseRunOthersWaitFor(t *testing.T) {
	s := &service{}
	if says := s.holding(); says != "" {
		t.Errorf("no run is on: %q", says)
	}
	s.on = &Session{Client: clientIP}
	const want = "the run of 127.0.0.1 has not ended"
	if says := s.holding(); says != want {
		t.Errorf("%q, want %q", says, want)
	}
	s.expects(s.on, time.Now().Add(time.Hour), "it sends")
	if says := s.holding(); says != want+"; it ends in 60 min unless it sends" {
		t.Errorf("%q", says)
	}
}

// TestHowOftenItIsToldWhoIsKeptOut: once in ten seconds, however many come in between.
func TestHowOftenItIsToldWhoIsKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		began := time.Now()
		s := &service{options: Options{AddEvent: func(api.Event) { told = append(told, time.Since(began)/time.Second) }}}
		for range 21 {
			s.othersKeepOut(api.ConnectionRefused, clientIP, "others")
			time.Sleep(time.Second) // in no real time
		}
		if want := []time.Duration{0, 10, 20}; !slices.Equal(told, want) {
			t.Errorf("told after %d s, want %d s", told, want)
		}
	})
}

// TestWhatIsAskedPutsTheEndOff: with each question to the receivers they have their time again.
func TestWhatIsAskedPutsTheEndOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends time.Time
		c := &conversation{limits: usual, expects: func(at time.Time, unless string) {
			if ends = at; unless != "its sides go on" {
				t.Errorf("it ends unless %q", unless)
			}
		}}
		for range 2 {
			time.Sleep(time.Minute) // in no real time
			if _, err := c.askAll(t.Context(), []byte("1")); err != nil || !ends.Equal(time.Now().Add(usual.answer)) {
				t.Errorf("it ends at %v, %v", ends, err)
			}
		}
	})
}

// TestAPlaceIsFreeWhenItsRunIsOver: who sees that a run has ended may connect at once.
func TestAPlaceIsFreeWhenItsRunIsOver(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.version = time.Hour })
	ended, goOn := make(chan bool), make(chan bool)
	l.helper.options.Log = l.helper.options.Log.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "perftest run ended" {
			ended <- true // the task of the run does nothing more meanwhile
			<-goOn
		}
		return nil
	}))
	l.up()
	var last net.Conn
	for range MaxOfAClient {
		last = l.connect("")
	}
	l.until("handshaking handshaking handshaking handshaking")
	last.Close()
	<-ended
	l.connect("")
	defer func() {
		close(goOn)
		go func() { // the others end with the lab
			for range ended {
			}
		}()
	}()
	l.until("handshaking handshaking handshaking ended handshaking")
}

// TestTooManyClients: the connections of clients beyond the bound are closed, and only one of these
// clients is listed.
func TestTooManyClients(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.version = time.Hour })
	l.up()
	var last net.Conn
	from := netip.MustParseAddr("127.0.0.100")
	for i := range MaxClients {
		if i%MaxOfAClient == 0 {
			from = from.Next()
		}
		last = l.connectFrom(from, "")
	}
	all := strings.TrimSpace(strings.Repeat("handshaking ", MaxClients))
	l.until(all)
	for range 3 {
		if err := hungUpOn(l.connect("")); err != nil {
			t.Error(err)
		}
	}
	l.hears("run of 127.0.0.1 refused: 64 clients are connected already; wait until one has ended")
	l.until(all + " refused")
	last.Close()
	l.until(strings.TrimSuffix(all, "handshaking") + "ended refused")
	l.connect("")
	l.until(strings.TrimSuffix(all, "handshaking") + "ended refused handshaking")
}

// TestAClientThatIsTurnedAwayAgainAndAgain: it is listed once in ten seconds, however often it
// comes.
func TestAClientThatIsTurnedAwayAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{log: zap.NewNop()}
		for n, want := range []int{1, 1, 2, 2, 3} {
			s.reject(clientIP, refuse("for the test"))
			if got := len(s.list().Sessions); got != want {
				t.Errorf("after %d s: listed %d times, want %d", 6*n, got, want)
			}
			time.Sleep(6 * time.Second)
		}
	})
}

// TestWhoIsNotAllowed: the connection of a client that is not allowed is closed before anything is
// read. The cases are a list of networks, the box's subnets if there is no list, and neither.
func TestWhoIsNotAllowed(t *testing.T) {
	for _, c := range []struct {
		name, subnets, allow string
		served               bool
	}{
		{"in the box's subnet", "127.0.0.0/24", "", true},
		{"off the box's subnet", "127.0.0.128/25", "", false},
		{"on the list", "127.0.0.128/25", "127.9.0.0/16 127.0.0.1/32", true},
		{"in the box's subnet, off the list", "127.0.0.0/24", "127.0.0.2/32", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 1, func(lim *limits) { lim.version = time.Hour })
			l.subnets, l.config.Allow = prefixes(c.subnets), prefixes(c.allow)
			l.up()
			if c.served {
				l.connect("")
				l.until("handshaking")
				return
			}
			for range 3 {
				if err := hungUpOn(l.connect(version)); err != nil {
					t.Error(err)
				}
			}
			allow := c.allow
			if allow == "" {
				allow = c.subnets
			}
			l.hears("run of 127.0.0.1 refused: 127.0.0.1 is in none of the allowed networks ([" + allow + "]); take perftest down, and up again with --allow")
			l.until("refused")
		})
	}
	l := newLab(t, 1, nil)
	l.subnets = nil
	err := l.helper.Up(context.Background(), l.config)
	if want := "perftest on 127.0.0.100: the box has no address in the group IP's subnet, so it is unknown which clients are allowed; give the box one, or name the networks of the clients with allow"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func prefixes(text string) (list []netip.Prefix) {
	for _, s := range strings.Fields(text) {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// TestAnIdleRunEnds: an idle run is ended, because other clients may wait for its receivers.
func TestAnIdleRunEnds(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.watch, lim.idle = time.Millisecond, 20*time.Millisecond })
	l.up()
	sc := newest().keys("aaa")
	l.play(func() error { _, _ = l.server(0, sc.moved(l.config.Receivers[0], 1).held()); return nil })
	conn := l.connect("")
	l.follow(conn, sc.exchanges)
	if err := hungUpOn(conn); err != nil {
		t.Error(err)
	}
	l.hears("run of 127.0.0.1 ended: client 127.0.0.1 has sent nothing for 20ms, and others may wait for its receivers")
	l.ended(1)
}

// TestWhatShowsThatARunGoesOn: a run is not idle while the source sends packets or the client sends
// messages. Either may happen alone for hours.
func TestWhatShowsThatARunGoesOn(t *testing.T) {
	groups := &fakeGroups{have: map[string]*groupfile.File{"g": {}}, seen: map[string]Traffic{"g": {FromSource: 7}}}
	c := &conversation{
		groups: groups, made: []string{"g"}, limits: usual,
		client: &side{name: "client", in: make(chan []byte, 1)},
	}
	var ends time.Time
	c.expects = func(at time.Time, unless string) {
		if ends = at; unless != "client sends" {
			t.Errorf("it ends unless %s", unless)
		}
	}
	longAgo := time.Now().Add(-time.Hour)
	c.active = activity{packets: 6, last: longAgo}
	if err := c.look(); err != nil || c.active.packets != 7 || time.Since(c.active.last) > time.Minute || ends != c.active.last.Add(usual.idle) {
		t.Errorf("with one packet more: %v, %+v, it ends at %v", err, c.active, ends)
	}
	if err := c.look(); err != nil {
		t.Errorf("a moment later: %v", err)
	}
	c.active.last = time.Now().Add(-4 * time.Minute)
	if err := c.look(); err != nil {
		t.Errorf("four minutes later: %v", err)
	}
	c.active.last = longAgo
	if err := c.look(); err == nil {
		t.Error("an hour later it still goes on")
	}
	c.client.in <- []byte("a")
	if err := c.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.look(); err != nil || ends != c.active.last.Add(usual.idle) {
		t.Errorf("the client has spoken: %v, it ends at %v", err, ends)
	}
}

// The end of one connection of a client makes room for one more, and not for all that it may have.
func TestWhoLeavesMakesRoomForOne(t *testing.T) {
	s := &service{clients: map[netip.Addr]int{}}
	client := netip.MustParseAddr("10.77.0.1")
	for range MaxOfAClient {
		if err := s.enter(client); err != nil {
			t.Fatal(err)
		}
	}
	s.forget(client)
	if err := s.enter(client); err != nil {
		t.Error(err)
	}
	if err := s.enter(client); err == nil {
		t.Error("a second one is let in")
	}
	for range MaxOfAClient {
		s.forget(client)
	}
	if len(s.clients) > 0 {
		t.Errorf("nobody is connected, and there stay %v", s.clients)
	}
}

// Whoever waits asks the client that has the slot whether it is still there, so each one that gets
// it says so: at once, or when the one before has ended.
func TestWhoGetsTheTurnSaysSo(t *testing.T) {
	for _, waits := range []bool{false, true} {
		turn := make(chan struct{}, 1)
		if waits {
			turn <- struct{}{}
		}
		held, waited, state := 0, false, Session{}
		c := &conversation{
			limits: usual, slot: turn, client: &side{}, holds: func() { held++ },
			note: func(change func(*Session)) {
				if change(&state); state.State == Waiting {
					waited = true
					<-turn // the other run ends
				}
			},
		}
		if err := c.takeSlot(t.Context()); err != nil || held != 1 || !c.hasSlot || waited != waits || state.State != Handshaking {
			t.Errorf("it waits: %v; it says so %d times, waited: %v, is %q, %v", waits, held, waited, state.State, err)
		}
	}
}
