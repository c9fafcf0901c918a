package perftest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// away is a lab whose group IP is in a namespace, and whose clients are in another one.
type away struct {
	*lab
	hosts *netns.NS

	mu     sync.Mutex
	events []api.Event
}

func newAway(t *testing.T, change func(*limits), clients ...string) *away {
	t.Helper()
	usually := keepAlive
	keepAlive.Idle = time.Hour // a host that dies is found because it is asked, and in no other way
	t.Cleanup(func() { keepAlive = usually })
	l := &away{lab: newLab(t, 1, change)} // its end comes before
	box, hosts := netns.New(t), netns.New(t)
	l.hosts = hosts
	if err := hosts.Sysctl("net.ipv4.conf.all.promote_secondaries", "1"); err != nil { // a host that dies leaves the others
		t.Fatal(err)
	}
	_, far := netns.Veth(t, box, "eth1", hosts, "eth0", netns.VethOptions{})
	for _, ip := range clients {
		if err := far.AddAddress(ip + "/24"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := box.Exec("ip", "address", "add", "10.77.0.100/24", "dev", "eth1"); err != nil {
		t.Fatal(err)
	}
	l.config.GroupIP, l.config.Allow = netip.MustParseAddr("10.77.0.100"), prefixes("10.77.0.0/24")
	l.helper.options.AddEvent = func(e api.Event) {
		l.mu.Lock()
		l.events = append(l.events, e)
		l.mu.Unlock()
		for _, s := range l.helper.List()[0].Sessions {
			if e.Kind == api.ConnectionSilent && s.Client.String() == e.Member && s.State.IsOver() {
				t.Errorf("the run of %s is over before it is told why", e.Member)
			}
		}
	}
	if err := box.Do(func() error { return l.helper.Up(t.Context(), l.config) }); err != nil {
		t.Fatal(err)
	}
	return l
}

// from connects from a host, and says something.
func (l *away) from(ip, says string) (conn net.Conn) {
	l.Helper()
	err := l.hosts.Do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: testlab.Patience}
		conn, err = d.Dial("tcp", fmt.Sprintf("10.77.0.100:%d", l.config.Port))
		return err
	})
	if err == nil {
		_, err = io.WriteString(conn, says)
	}
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { conn.Close() })
	return conn
}

// die takes a host's address away: nothing that is sent to it has an answer.
func (l *away) die(ip string) {
	l.Helper()
	if _, err := l.hosts.Exec("ip", "address", "del", ip+"/24", "dev", "eth0"); err != nil {
		l.Fatal(err)
	}
}

func (l *away) told() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		lines = append(lines, fmt.Sprintf("%s %s: %s", e.Kind, e.Member, e.Cause))
	}
	return lines
}

// A client whose host dies in its run keeps no other one out: the kernel asks it as soon as another
// client waits, and that one is served when there is no answer.
func TestAClientThatDiesKeepsNobodyOut(t *testing.T) {
	l := newAway(t, func(lim *limits) { lim.grace = time.Hour }, "10.77.0.1", "10.77.0.5")
	sc := newest().keys("aaa")
	server := sc.moved(l.config.Receivers[0], 1)
	l.play(func() error { _, _ = l.server(0, server.held()); return nil })
	first := l.from("10.77.0.1", "")
	l.follow(first, sc.moved(netip.MustParseAddr("10.77.0.1"), 0).exchanges)
	l.until("running")
	s, _ := l.helper.services.Get(l.config.GroupIP)
	if run := s.list().Sessions[0]; run.Unless != "client 10.77.0.1 sends" || time.Until(run.Ends) > usual.idle || time.Until(run.Ends) < usual.idle-testlab.Patience {
		t.Errorf("%+v", run)
	}
	l.serveAgain(server.held())

	second := l.from("10.77.0.5", version)
	const why = "the run of 10.77.0.1 has not ended; it ends in 5 min unless client 10.77.0.1 sends"
	l.hears("perftest client waits until the previous run ends: " + why)
	l.until("running waiting")
	if run := s.list().Sessions[1]; run.Reason != why {
		t.Errorf("%+v", run)
	}
	testlab.Eventually(t, testlab.Patience, "the first one is asked", func() bool { return option(t, s.holder(), unix.TCP_KEEPIDLE) == 1 }, nil)
	// Everything is acknowledged, at the latest by the next time that it is asked: with a limit one
	// question that is lost would end the run.
	testlab.Eventually(t, testlab.Patience, "nothing is to be acknowledged in time", func() bool { return option(t, s.holder(), unix.TCP_USER_TIMEOUT) == 0 }, nil)
	l.until("running waiting")

	l.die("10.77.0.1")
	if _, err := readOnce(second, len(version)); err != nil {
		t.Error(err)
	}
	l.until("ended handshaking")
	run := s.list().Sessions[0]
	if run.Reason != "client 10.77.0.1 does not answer any more before the run was over" || !run.Ends.IsZero() || run.Unless != "" {
		t.Errorf("%+v", run)
	}
	if got, want := strings.Join(l.told(), "\n"), "connection-waits 10.77.0.5: by perftest at 10.77.0.100: "+why+"\n"+
		"connection-silent 10.77.0.1: by perftest at 10.77.0.100: "+run.Reason; got != want {
		t.Errorf("told of\n%s\nwant\n%s", got, want)
	}
	second.Close()
	l.ended(2)
	l.until("ended ended")
}

// option returns an option of TCP of the connection to a side.
func option(t *testing.T, s *side, name int) (value int) {
	t.Helper()
	raw, err := s.conn.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { value, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A host that does not tell its MAC any more is as silent as one that does not acknowledge.
func TestAHostThatIsSilent(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.ETIMEDOUT: true, syscall.EHOSTUNREACH: true, syscall.ECONNRESET: false} {
		s := side{lost: &net.OpError{Op: "read", Err: os.NewSyscallError("read", errno)}}
		if s.isSilent() != want {
			t.Errorf("%v: silent is %v", errno, !want)
		}
	}
}

// A client that dies while an answer is on its way to it keeps nobody out, and is found without
// others too: the kernel asks nothing while it repeats what has no acknowledgement.
func TestAClientThatDiesBeforeItsAnswerArrives(t *testing.T) {
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprintf("another waits %v", waits), func(t *testing.T) {
			usually := unacknowledged
			t.Cleanup(func() { unacknowledged = usually }) // when all sides are gone
			if unacknowledged = time.Second; waits {
				unacknowledged = time.Hour
			}
			l := newAway(t, nil, "10.77.0.1", "10.77.0.5")
			sc := newest().keys("aaa")
			answer := make(chan bool)
			l.play(func() error {
				conn, err := l.serverConn(0)
				if err != nil {
					return err
				}
				defer conn.Close()
				e := sc.moved(l.config.Receivers[0], 1).exchanges
				l.follow2(conn, e[:1])
				if _, err := readOnce(conn, len(e[1].client)); err != nil {
					return err
				}
				<-answer
				_, err = conn.Write(e[1].server)
				_, _ = readOnce(conn, 1) // until the box hangs up
				return err
			})
			first := l.from("10.77.0.1", "")
			e := sc.moved(netip.MustParseAddr("10.77.0.1"), 0).exchanges
			l.follow(first, e[:1])
			if _, err := first.Write(e[1].client); err != nil {
				t.Fatal(err)
			}
			want := "ended"
			if waits {
				l.from("10.77.0.5", version)
				l.until("handshaking waiting")
				want = "ended refused" // the server has gone with the first one
			}
			s, _ := l.helper.services.Get(l.config.GroupIP)
			l.die("10.77.0.1")
			close(answer)
			l.closeListeners()
			l.until(want)
			if run := s.list().Sessions[0]; run.Reason != "client 10.77.0.1 does not answer any more" {
				t.Errorf("%+v", run)
			}
			l.ended(1)
		})
	}
}

// A client that dies while it waits does not use up the servers.
func TestAClientThatDiesWhileItWaits(t *testing.T) {
	l := newAway(t, nil, "10.77.0.1", "10.77.0.5")
	sc := newest().keys("aaa")
	l.play(func() error { _, _ = l.server(0, sc.moved(l.config.Receivers[0], 1).held()); return nil })
	first := l.from("10.77.0.1", "")
	l.follow(first, sc.moved(netip.MustParseAddr("10.77.0.1"), 0).exchanges)
	l.from("10.77.0.5", version)
	l.until("running waiting")
	l.die("10.77.0.5")
	l.until("running ended")
	s, _ := l.helper.services.Get(l.config.GroupIP)
	if run := s.list().Sessions[1]; run.Reason != "client 10.77.0.5 does not answer any more" {
		t.Errorf("%+v", run)
	}
	first.Close()
	l.ended(1)
	l.until("ended ended")
	want := []string{
		"connection-waits 10.77.0.5: by perftest at 10.77.0.100: the run of 10.77.0.1 has not ended; it ends in 5 min unless client 10.77.0.1 sends",
		"connection-silent 10.77.0.5: by perftest at 10.77.0.100: client 10.77.0.5 does not answer any more",
	}
	if got := l.told(); !slices.Equal(got, want) || s.holder() != nil {
		t.Errorf("told of %q, want %q; a run is on: %v", got, want, s.holder() != nil)
	}
}

// The first receiver that hangs up leaves the others and the client the time of grace. When the
// last one has, the client has only to read what was sent before.
func TestHowLongARunLastsWithoutItsReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conversation{limits: limits{grace: time.Hour, last: time.Minute}, receivers: []*side{{}, {}}}
		began := time.Now()
		c.noteGone(c.receivers[0])
		time.Sleep(30 * time.Minute) // in no real time
		select {
		case <-c.leaving.limit:
			t.Error("one receiver has hung up, and the run ends")
		default:
		}
		c.noteGone(c.receivers[1])
		<-c.leaving.limit
		if took := time.Since(began); took != 31*time.Minute {
			t.Errorf("the run has ended after %v", took)
		}
	})
}

// A run without receivers ends, although its client says nothing, and the reason says what the box
// saw before.
func TestARunWithoutReceiversEnds(t *testing.T) {
	l := newLab(t, 2, func(lim *limits) { lim.grace = time.Hour })
	l.groups.saw = "127.0.0.12: it has answered packet 7"
	sc := newest().keys("aaa")
	l.up()
	leave := make(chan bool)
	for i, ip := range l.config.Receivers {
		l.play(func() error {
			conn, err := l.serverConn(i)
			if err != nil {
				return err
			}
			defer conn.Close()
			l.follow2(conn, sc.moved(ip, i+1).exchanges)
			<-leave
			return nil
		})
	}
	l.follow(l.connect(""), sc.exchanges)
	l.until("running")
	leave <- true
	l.until("running")
	leave <- true
	l.until("ended")
	if s := l.last(); !strings.HasSuffix(s.Reason, " hung up before the run was over; before that the box saw: 127.0.0.12: it has answered packet 7") {
		t.Errorf("%+v", s)
	}
	l.ended(2)
}

// follow2 plays a server.
func (l *lab) follow2(conn net.Conn, exchanges []exchange) {
	for _, e := range exchanges {
		if _, err := readOnce(conn, len(e.client)); err != nil {
			return
		}
		if _, err := conn.Write(e.server); err != nil {
			return
		}
	}
}

// A client that is turned away because there are too many is an event, once in a while.
func TestAClientThatIsTurnedAwayIsAnEvent(t *testing.T) {
	l := newAway(t, nil, "10.77.0.1")
	for range MaxOfAClient {
		l.from("10.77.0.1", "")
	}
	l.until(strings.TrimSpace(strings.Repeat("handshaking ", MaxOfAClient)))
	l.from("10.77.0.1", "")
	l.from("10.77.0.1", "")
	want := "connection-refused 10.77.0.1: by perftest at 10.77.0.100: 4 clients of 10.77.0.1 are connected already; wait until one has ended"
	testlab.Eventually(t, testlab.Patience, "told", func() bool { return strings.Join(l.told(), "\n") == want }, func() string { return strings.Join(l.told(), "\n") })
}

// dead is a connection whose host does not answer any more, after what it has sent.
type dead struct{ net.Conn }

func (d dead) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if err == io.EOF {
		err = syscall.ETIMEDOUT
	}
	return n, err
}

// A client whose host dies between its farewell and the end of the last receiver has ended its run
// well.
func TestAClientThatSaysFarewellAndDies(t *testing.T) {
	l := newLab(t, 1, nil)
	var told []api.Event
	l.helper.options.AddEvent = func(e api.Event) { told = append(told, e) }
	sc := newest().keys("aaa")
	sc.farewell = true
	l.up()
	s, _ := l.helper.services.Get(groupIP)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	leaves := make(chan bool)
	l.play(func() error {
		conn, err := l.serverConn(0)
		if err != nil {
			return err
		}
		defer conn.Close()
		l.follow2(conn, sc.moved(l.config.Receivers[0], 1).exchanges)
		<-leaves
		return nil
	})
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	at, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.admit(t.Context(), dead{at})
	l.follow(conn, sc.exchanges)
	if err := sc.leave(conn); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	<-s.holder().gone
	leaves <- true
	l.ended(1)
	l.until("ended")
	run := l.last()
	if err := l.helper.Down(groupIP); err != nil { // now nothing is told any more
		t.Fatal(err)
	}
	if run.Reason != "" || len(told) > 0 {
		t.Errorf("%+v, told of %v", run, told)
	}
}
