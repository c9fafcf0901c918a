package perftest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
)

// cut returns the script up to exchange n.
func (sc *script) cut(n int) *script { return &script{exchanges: sc.exchanges[:n]} }

// quick has short limits, for runs that end early.
func quick(lim *limits) { lim.grace = 5 * time.Millisecond }

// TestAnySideMayHangUpAnyTime: after each exchange of a run, a receiver or the client disconnects,
// and the helper disconnects the others. The end of the lab checks that nothing is left.
func TestAnySideMayHangUpAnyTime(t *testing.T) {
	sc := newest().keys("ababaa").reports(5).keys("a")
	first := 4 + 2 // the exchange in which the groups are made
	for n := range sc.exchanges {
		for _, side := range []string{"client 127.0.0.1", "receiver 127.0.0.11", "receiver 127.0.0.12"} {
			t.Run(fmt.Sprintf("%s after %d", side, n), func(t *testing.T) {
				l := newLab(t, 2, quick)
				parts := map[string]*script{}
				for _, side := range []string{"client 127.0.0.1", "receiver 127.0.0.11", "receiver 127.0.0.12"} {
					parts[side] = sc.held()
				}
				parts[side] = sc.cut(n)
				reason := fmt.Sprintf("run of 127.0.0.1 ended: %s hung up", side)
				if n > first || n == first && side != "client 127.0.0.1" {
					reason += " before the run was over"
				}
				if n == 0 && side == "client 127.0.0.1" {
					parts[side] = &script{}
				}
				l.breaks(parts["client 127.0.0.1"], 9, func(i int) *script {
					return parts[fmt.Sprintf("receiver 127.0.0.1%d", i+1)]
				}, reason)
			})
		}
	}
}

// TestNoAnswerWithoutTheReceivers: the client gets no answer of a step that a receiver has not
// answered.
func TestNoAnswerWithoutTheReceivers(t *testing.T) {
	sc := newest().keys("aaa").reports(1)
	for n := range sc.exchanges {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, 2, quick)
			l.up()
			for i, ip := range l.config.Receivers {
				server := sc.moved(ip, i+1).held()
				if i == 1 {
					server = server.cut(n)
				}
				l.play(func() error { _, _ = l.server(i, server); return nil })
			}
			said, _ := l.client(sc, -1)
			if len(said) != n {
				t.Errorf("a receiver has answered %d messages, the client has %d answers", n, len(said))
			}
			l.ended(2)
		})
	}
}

// TestReceiverThatSpeaksTooSoon: bytes that nobody has asked for end the run, at each step.
func TestReceiverThatSpeaksTooSoon(t *testing.T) {
	for n := range 5 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, 1, quick)
			server := newest().keys("aa").moved(l.config.Receivers[0], 1)
			server.exchanges[n].server = append(bytes.Clone(server.exchanges[n].server), "0123456789"...)
			l.breaks(newest().keys("aa"), -1, func(int) *script { return server.held() },
				"refused: receiver 127.0.0.11 spoke before its turn; it does not run the same test as the client")
		})
	}
}

// TestServersHangUpFirst: servers of the newest version disconnect right after their last key. The
// run ends only when the client disconnects too.
func TestServersHangUpFirst(t *testing.T) {
	l := newLab(t, 1, quick)
	l.breaks(newest().keys("aaaaa").held(), 8, func(int) *script { return newest().keys("aaaaa") },
		"run of 127.0.0.1 ended: receiver 127.0.0.11 hung up before the run was over")
}

// TestWhoIsLateBehindTheEnd: when all have heard the last message of a run, the run has ended well,
// however long one of them takes to hang up. Before that it has not.
func TestWhoIsLateBehindTheEnd(t *testing.T) {
	whole := newest().keys("aaa").reports(5).keys("a")
	for _, c := range []struct {
		name            string
		client, one, of *script // of is the other receiver
		reason          string
	}{
		{"the client", whole.held(), whole, whole, ""},
		{"a receiver", whole, whole.held(), whole, ""},
		{"the client and a receiver", whole.held(), whole.held(), whole, ""},
		{"nobody", whole, whole, whole, ""},
		{"the client, before its last message", whole.cut(12).held(), whole.cut(12), whole.cut(12), ": receiver 127.0.0.1"},
		{"a receiver, before the last message", whole.cut(12), whole.cut(12).held(), whole.cut(12).held(), ": client 127.0.0.1 hung up before the run was over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 2, quick)
			l.up()
			for i, sc := range []*script{c.one, c.of} {
				l.play(func() error { _, err := l.server(i, sc.moved(l.config.Receivers[i], i+1)); return err })
			}
			l.play(func() error { _, err := l.client(c.client, 8); return err })
			l.ended(3)
			testlab.Eventually(t, testlab.Patience, "the run is over", func() bool { return l.last().State.IsOver() }, nil)
			if run := l.last(); run.State != Ended || !strings.HasPrefix(": "+run.Reason, c.reason) || (run.Reason == "") != (c.reason == "") {
				t.Errorf("%+v, want %q", run, c.reason)
			}
		})
	}
}

// TestARunThatIsThroughAndTakenDown: what ends a run while its sides are about to hang up is said.
func TestARunThatIsThroughAndTakenDown(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.grace = time.Hour })
	l.up()
	sc := newest().keys("aaa").reports(1).keys("a").held()
	l.play(func() error { _, err := l.server(0, sc.moved(l.config.Receivers[0], 1)); return err })
	conn := l.connect("")
	l.follow(conn, sc.exchanges)
	if err := l.helper.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	l.hears("run of 127.0.0.1 ended: taken down by the box's operator")
	l.ended(1)
}

// TestMessageInPieces: the client's message may arrive byte by byte; the servers get it in one
// piece.
func TestMessageInPieces(t *testing.T) {
	l := newLab(t, 1, nil)
	l.up()
	sc := newest().keys("aaaa").reports(2).keys("a")
	l.play(func() error { _, err := l.server(0, sc.moved(l.config.Receivers[0], 1)); return err })
	conn, err := l.clientConn()
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range sc.exchanges {
		for j := range e.client {
			if _, err := conn.Write(e.client[j : j+1]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := readOnce(conn, len(e.server)); err != nil {
			t.Fatalf("exchange %d: %v", i, err)
		}
	}
	conn.Close()
	l.ended(1)
	l.hears("run of 127.0.0.1 ended")
}

// TestClientThatStopsTalking: a client stops before its first message, inside a message, or between
// two messages.
func TestClientThatStopsTalking(t *testing.T) {
	for _, c := range []struct {
		name   string
		says   *script
		then   string
		change func(*limits)
		reason string
	}{
		{"at once", &script{}, "", func(lim *limits) { lim.version = time.Millisecond }, "client 127.0.0.1 was silent for 1ms at its turn"},
		{"in its first message", &script{}, "6.06", func(lim *limits) { lim.version = time.Millisecond }, "client 127.0.0.1 was silent for 1ms at its turn"},
		{"before a key", newest(), "", func(lim *limits) { lim.answer = time.Second }, "client 127.0.0.1 was silent for 1s at its turn"},
		{"in a key", newest(), capturedLine[:70], func(lim *limits) { lim.part = time.Millisecond }, "client 127.0.0.1 was silent for 1ms at its turn"},
		{"in a message of the run", newest().keys("aaa"), "d", func(lim *limits) { lim.part = time.Millisecond }, "client 127.0.0.1 was silent for 1ms at its turn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 1, c.change)
			l.up()
			l.play(func() error {
				_, _ = l.server(0, newest().keys("aaa").moved(l.config.Receivers[0], 1).held())
				return nil
			})
			l.play(func() error {
				conn, err := l.clientConn()
				if err != nil {
					return err
				}
				defer conn.Close()
				for _, e := range c.says.exchanges {
					conn.Write(e.client)
					if _, err := readOnce(conn, len(e.server)); err != nil {
						return err
					}
				}
				io.WriteString(conn, c.then)
				return hungUpOn(conn)
			})
			l.hears("run of 127.0.0.1 ended: " + c.reason)
			l.closeListeners()
			l.ended(2)
		})
	}
}

// TestReceiverThatDoesNotAnswer: the client must not wait for ever.
func TestReceiverThatDoesNotAnswer(t *testing.T) {
	l := newLab(t, 2, func(lim *limits) { lim.answer = time.Second })
	l.breaks(newest(), -1, func(i int) *script { return newest().cut(4 - 2*i).held() },
		"run of 127.0.0.1 ended: receiver 127.0.0.12 was silent for 1s at its turn")
}

// TestNoise: a client that is not perftest connects. No receiver's server is used up by it.
func TestNoise(t *testing.T) {
	l := newLab(t, 1, quick)
	l.up()
	for _, noise := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: 10.77.0.100\r\n\r\n"),
		bytes.Repeat([]byte("A"), 1<<20),
		make([]byte, 1<<20),
		[]byte(capturedLine),
	} {
		conn, err := l.clientConn()
		if err != nil {
			t.Fatal(err)
		}
		conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, _ = conn.Write(noise) // the helper disconnects before the end of a long text
		l.hears("run of 127.0.0.1 refused: client 127.0.0.1 does not begin like a message of perftest")
		conn.Close()
	}
	sc := newest().keys("aaaaa")
	l.play(func() error { _, err := l.server(0, sc.moved(l.config.Receivers[0], 1)); return err })
	l.play(func() error { _, err := l.client(sc, 8); return err })
	l.ended(2)
	l.hears("run of 127.0.0.1 ended")
}

// TestFloods: the helper disconnects a side that sends without end, and does not store what it
// sent.
func TestFloods(t *testing.T) {
	flood := strings.Repeat("0000:", 1<<20)
	t.Run("client", func(t *testing.T) {
		l := newLab(t, 1, quick)
		sc := newest()
		sc.say([]byte(flood))
		l.breaks(sc, -1, func(int) *script { return newest().held() }, "refused: client 127.0.0.1 sent something that is not a key line")
	})
	t.Run("receiver", func(t *testing.T) {
		l := newLab(t, 1, quick)
		server := newest()
		server.exchanges[3].server = []byte("3\x00" + flood)
		l.breaks(newest().keys("a"), -1, func(int) *script { return server },
			"refused: receiver 127.0.0.11 spoke before its turn; it does not run the same test as the client")
	})
}
