package perftest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// breaks plays a run with n receivers that must end early, and waits for the reason. It ignores the
// results of the players.
func (l *lab) breaks(client *script, run int, servers func(i int) *script, reason string) {
	l.Helper()
	l.up()
	for i, ip := range l.config.Receivers {
		sc := servers(i).moved(ip, i+1)
		l.play(func() error { _, _ = l.server(i, sc); return nil })
	}
	l.play(func() error { _, _ = l.client(client, run); return nil })
	l.hears(reason)
	l.closeListeners() // for the case that no server was contacted
	l.ended(1 + len(l.config.Receivers))
	if s := l.last(); s.Ended.IsZero() || s.Groups != nil || !strings.HasSuffix(reason, s.State.String()+": "+s.Reason) {
		l.Errorf("listed: %+v", s)
	}
}

// TestRunsNoGroupCanCarry: a run that no group can carry is refused in the handshake, or as soon as
// the helper can know. sleeps: the client sleeps before its first message, as ib_write_bw does.
func TestRunsNoGroupCanCarry(t *testing.T) {
	capture := func(name string) *script { sc := captured(t, name); return &sc }
	for _, c := range []struct {
		name           string
		client, server *script
		sleeps         bool
		reason         string
	}{
		{"READ", capture("read"), capture("read"), false,
			"client 127.0.0.1 wants to have 128 READs or atomics outstanding; a group cannot merge their responses, so run ib_write_bw or ib_send_bw"},
		{"READ server for a WRITE client", capture("write_small"), capture("read"), false,
			"receiver 127.0.0.11 wants to have 128 READs or atomics outstanding; a group cannot merge their responses, so run ib_write_bw or ib_send_bw"},
		{"ib_write_bw -b", newest().keys("aaaa"), newest().keys("aaaa"), true,
			"client 127.0.0.1 runs ib_write_bw with -b, --write_with_imm or -c UC, which look the same to rocast; a group carries RC in one direction, so run it without these options"},
		{"ib_write_bw -b -q 2", newest().keys("ababaa"), newest().keys("ababaa"), true,
			"client 127.0.0.1 runs ib_write_bw with -b, --write_with_imm or -c UC, which look the same to rocast; a group carries RC in one direction, so run it without these options"},
		{"latency test with -q 2", newest().keys("aab"), newest().keys("aab"), false,
			"client 127.0.0.1 names queue pair 0x43 late, as latency tests with -q do; a group carries one direction only, so run ib_write_bw or ib_send_bw"},
		{"data validation", newest().say([]byte(strings.Replace(capturedLine, "5000:", "5000:00005590c93c6000:", 1))), newest().keys("a"), true,
			"client 127.0.0.1 validates data (--data_validation), for which it uses atomics; a group cannot merge their responses"},
		{"no GID", newest().say([]byte(capturedLine[:50] + "00000000\x00")), newest().keys("a"), true,
			"client 127.0.0.1 sends no GID, so its device is not RoCE"},
		{"XRC", newest().keys("aa").changed(4, func(k *key) { k.SRQN = 1 }), newest().keys("aa"), false,
			"client 127.0.0.1 uses XRC or DC (-c); a group connects RC queue pairs only"},
		{"a key changes", newest().keys("aa").changed(5, func(k *key) { k.PSN++ }), newest().keys("aa"), false,
			"client 127.0.0.1 changed its description of queue pair 0x42; only a DC transport (-c) does that, and a group connects RC queue pairs only"},
		{"more queue pairs at the client", newest().keys("abab"), newest().keys("aaaa"), false,
			"receiver 127.0.0.11 names queue pair 0x1a2, which does not match the client's 2 queue pairs; run the same test with the same -q on all sides"},
		{"more queue pairs at the receiver", newest().keys("aaa"), newest().keys("aba"), false,
			"receiver 127.0.0.11 names queue pair 0x1a3, which does not match the client's 1 queue pairs; run the same test with the same -q on all sides"},
		{"too many queue pairs", newest().keys(letters(MaxQPs + 1)), newest().keys(letters(MaxQPs + 1)), false,
			"client 127.0.0.1 has more than the 1024 queue pairs that a run can have here; choose a smaller -q"},
		{"old version", opening("5.31", 3), opening("6.06", 3), false,
			"client 127.0.0.1 speaks a version older than 5.70, which newer versions refuse"},
		{"old server", newest(), opening("5.31", 3), false,
			"receiver 127.0.0.11 speaks a version older than 5.70, which newer versions refuse"},
		{"report where a key is due", newest().reports(1), newest().keys("a"), false,
			"client 127.0.0.1 sent something that is not a key line, where perftest sends one"},
		{"damaged key", newest().say([]byte(strings.Replace(capturedLine, "bc99a2", "bc99g2", 1))), newest().keys("a"), false,
			"client 127.0.0.1 sent something that is not a key line"},
		{"damaged key of a receiver", newest().keys("a"), newest().say(append([]byte(capturedLine[:107]), 'x')), false,
			"receiver 127.0.0.11 answered with something that is not a key line; it does not run the same test as the client"},
		{"no path MTU", opening("6.29", 9).keys("a"), newest().keys("a"), false,
			"client 127.0.0.1 names no path MTU"},
		{"no path MTU of a receiver", newest().keys("a"), opening("6.29", 9).keys("a"), false,
			"receiver 127.0.0.11 names no path MTU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 1, func(lim *limits) {
				if c.sleeps {
					lim.sleep = 0
				}
			})
			l.breaks(c.client.moved(clientIP, 0), -1, func(int) *script { return c.server }, "run of 127.0.0.1 refused: "+c.reason)
		})
	}
}

// changed changes the client's description of its queue pairs, from exchange n on.
func (sc *script) changed(n int, change func(*key)) *script {
	for i := range sc.exchanges[n:] {
		m := &sc.exchanges[n+i].client
		k, err := parseKey(*m)
		if err != nil {
			panic(err)
		}
		change(&k)
		*m = k.line()
	}
	return sc
}

// letters names n queue pairs.
func letters(n int) string {
	all := make([]rune, n)
	for i := range all {
		all[i] = 'a' + rune(i)
	}
	return string(all)
}

// TestGIDOfAnotherHost: a client cannot make another host the source.
func TestGIDOfAnotherHost(t *testing.T) {
	l := newLab(t, 1, nil)
	l.breaks(newest().keys("a").changed(4, func(k *key) { k.GID = netip.MustParseAddr("10.9.9.9") }), -1,
		func(int) *script { return newest().keys("a") },
		"refused: client 127.0.0.1 has the GID of 10.9.9.9, and packets go by GID; choose the GID of 127.0.0.1 there (-x), or connect from 10.9.9.9")
}

func TestPathMTUsThatDoNotMeet(t *testing.T) {
	for want, mtus := range map[string][]mtu{
		"receiver 127.0.0.13 has path MTU 1024 and receiver 127.0.0.12 settled on 4096 before; start all with -m 1024": {5, 5, 3},
		"receiver 127.0.0.12 has path MTU 2048 and receiver 127.0.0.11 settled on 4096 before; start all with -m 2048": {5, 4, 5},
	} {
		t.Run(fmt.Sprint(mtus), func(t *testing.T) {
			l := newLab(t, 3, nil)
			l.breaks(opening("6.06", 5), -1, func(i int) *script { return opening("6.06", mtus[i]) }, "refused: "+want)
		})
	}
}

// TestReceiversThatSendAreRefused: a latency test, whose handshake is that of ib_send_bw, shows
// when data comes back.
func TestReceiversThatSendAreRefused(t *testing.T) {
	l := newLab(t, 2, func(lim *limits) { lim.watch = time.Millisecond })
	var ends endings
	l.helper.options.EndQueuePair = ends.end
	l.up()
	sc := captured(t, "write_lat")
	for i, ip := range l.config.Receivers {
		l.play(func() error { _, err := l.server(i, sc.moved(ip, i).held()); return err })
	}
	l.play(func() error {
		client := sc.moved(clientIP, 0)
		conn, err := l.clientConn()
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, e := range client.exchanges {
			conn.Write(e.client)
			if _, err := readOnce(conn, len(e.server)); err != nil {
				return err
			}
		}
		l.groups.see(Traffic{FromSource: 1, FromReceivers: 1})
		return hungUpOn(conn)
	})
	l.hears("refused: the receivers send data too, as latency tests, -b and --reversed make them; a group carries one direction only, so run ib_write_bw or ib_send_bw without these")
	l.ended(3)
	var hosts []string
	for _, e := range ends {
		host, _, _ := strings.Cut(e, " 0x")
		hosts = append(hosts, host)
	}
	if want := []string{"127.0.0.1 source=true", "127.0.0.11 source=false", "127.0.0.12 source=false"}; !slices.Equal(hosts, want) {
		t.Errorf("the queue pairs of %q are ended, want %q", ends, want)
	}
}

// TestRefusedRequestsExplainAnEarlyEnd: READ with -o 1 looks like WRITE until its first request.
func TestRefusedRequestsExplainAnEarlyEnd(t *testing.T) {
	endsEarly(t, Traffic{FromSource: 1, Refused: 1},
		"refused: client 127.0.0.1 hung up after 1 requests that a group does not carry: READs, atomics, or memory that no receiver named")
}

// TestDataOfReceiversExplainsAnEarlyEnd: a latency test may end before the groups' counters are
// looked at.
func TestDataOfReceiversExplainsAnEarlyEnd(t *testing.T) {
	endsEarly(t, Traffic{FromSource: 1, FromReceivers: 1, Refused: 1},
		"refused: the receivers send data too, as latency tests, -b and --reversed make them; a group carries one direction only, so run ib_write_bw or ib_send_bw without these")
}

// endsEarly lets the client hang up after the groups have carried the traffic.
func endsEarly(t *testing.T, seen Traffic, want string) {
	t.Helper()
	l := newLab(t, 1, func(lim *limits) { lim.grace, lim.watch = time.Millisecond, time.Hour })
	l.up()
	sc := newest().keys("aaa")
	l.play(func() error { _, _ = l.server(0, sc.moved(l.config.Receivers[0], 1).held()); return nil })
	l.play(func() error {
		conn, err := l.clientConn()
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, e := range sc.exchanges {
			conn.Write(e.client)
			if _, err := readOnce(conn, len(e.server)); err != nil {
				return err
			}
		}
		l.groups.see(seen)
		return nil
	})
	l.hears(want)
	l.ended(2)
}

func TestMissingReceivers(t *testing.T) {
	l := newLab(t, 3, func(lim *limits) { lim.sleep = 0 })
	l.listeners[0].Close()
	l.listeners[2].Close()
	l.up()
	l.play(func() error { _, _ = l.server(1, newest()); return nil })
	l.play(func() error { _, _ = l.client(newest(), -1); return nil })
	l.hears(fmt.Sprintf("refused: receiver 127.0.0.11: nothing listens on TCP %[1]d; start ib_write_bw there first; "+
		"receiver 127.0.0.13: nothing listens on TCP %[1]d; start ib_write_bw there first", l.config.Port))
	l.ended(2)
}

func TestMissingReceiverOfSend(t *testing.T) {
	l := newLab(t, 1, nil)
	l.listeners[0].Close()
	l.up()
	l.play(func() error { _, _ = l.client(newest(), -1); return nil })
	l.hears(fmt.Sprintf("refused: receiver 127.0.0.11: nothing listens on TCP %d; start ib_send_bw there first", l.config.Port))
	l.ended(1)
}

func TestReceiverThatIsOff(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.dial = 1 }) // no server can answer within a nanosecond
	l.up()
	l.play(func() error { _, _ = l.client(newest(), -1); return nil })
	l.hears(fmt.Sprintf("refused: receiver 127.0.0.11: no answer on TCP %d (i/o timeout); is the host up, and the port open in its firewall?", l.config.Port))
	l.ended(1)
}

func TestGroupsThatCannotBeMade(t *testing.T) {
	l := newLab(t, 1, nil)
	l.groups.refuse = errors.New("path MTU 1024 does not fit port eth1")
	l.up()
	l.play(func() error { _, _ = l.server(0, newest().keys("aa").moved(l.config.Receivers[0], 1)); return nil })
	l.play(func() error { _, _ = l.client(newest().keys("aa"), -1); return nil })
	l.hears("cannot be made: path MTU 1024 does not fit port eth1")
	l.ended(2)
}
