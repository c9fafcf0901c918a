package perftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/roce"
)

func TestUpAndDown(t *testing.T) {
	l := newLab(t, 1, nil)
	l.up()
	if list := l.helper.List(); len(list) != 1 || list[0].GroupIP != groupIP || !slices.Equal(list[0].Receivers, l.config.Receivers) || len(list[0].Sessions) != 0 {
		t.Errorf("listed: %+v", list)
	}
	if err := l.helper.Up(context.Background(), l.config); err == nil || err.Error() != "perftest on 127.0.0.100 is already up; take it down first" {
		t.Error(err)
	}
	other := l.config
	other.GroupIP = netip.MustParseAddr("203.0.113.9") // not an address of this machine
	if err := l.helper.Up(context.Background(), other); err == nil || !strings.HasPrefix(err.Error(), "perftest on 203.0.113.9: ") || l.owned[other.GroupIP] != 0 {
		t.Errorf("%v; owned %d times", err, l.owned[other.GroupIP])
	}
	if err := l.helper.Down(groupIP); err != nil || l.owned[groupIP] != 0 || len(l.helper.List()) != 0 {
		t.Errorf("%v; owned %d times, listed %+v", err, l.owned[groupIP], l.helper.List())
	}
	if err := l.helper.Down(groupIP); err == nil || err.Error() != "perftest on 127.0.0.100 is not up" {
		t.Error(err)
	}
	if _, err := l.clientConn(); err == nil {
		t.Error("the port is still open")
	}
	l.up()
}

// TestRunsOneAfterTheOther: servers are started again for each run; no QPN is used twice.
func TestRunsOneAfterTheOther(t *testing.T) {
	l := newLab(t, 2, nil)
	l.up()
	sc := newest().keys("aaaaa")
	for range 3 {
		for i, ip := range l.config.Receivers {
			l.play(func() error { _, err := l.server(i, sc.moved(ip, i)); return err })
		}
		l.play(func() error { _, err := l.client(sc, 8); return err })
		l.ended(3)
		l.hears("run of 127.0.0.1 ended")
		l.listeners = nil
		l.listen()
	}
	made := l.groups.all()
	if len(made) != 3 || made[0].QPN == made[1].QPN || made[1].QPN == made[2].QPN || made[0].Memory[0].RKey == made[1].Memory[0].RKey {
		t.Errorf("groups: %+v", made)
	}
	if n := len(l.helper.List()[0].Sessions); n != 3 {
		t.Errorf("%d sessions are remembered", n)
	}
}

// TestDownEndsTheRun: taking a service down ends its run.
func TestDownEndsTheRun(t *testing.T) {
	l := newLab(t, 1, nil)
	l.up()
	sc := newest().keys("aaa")
	l.play(func() error { _, _ = l.server(0, sc.moved(l.config.Receivers[0], 1).held()); return nil })
	l.play(func() error { _, _ = l.client(sc.held(), -1); return nil })
	l.hears("run of 127.0.0.1 began: queue pairs 1, receivers 1, path MTU 1024")
	if s := l.last(); s.State != Running || len(s.Groups) != 1 || s.Version != "6.29" {
		t.Errorf("listed: %+v", s)
	}
	if err := l.helper.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	l.hears("run of 127.0.0.1 ended: taken down by the box's operator")
	l.ended(2)
}

// TestForgottenSessions: the number of sessions that are listed is bounded.
func TestForgottenSessions(t *testing.T) {
	s := &service{log: zap.NewNop()}
	active := s.remember(Session{Client: netip.MustParseAddr("10.0.1.1"), State: Running})
	for i := range MaxSessions + 5 {
		s.end(s.remember(Session{Client: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}), errors.New("for the test"))
	}
	got := s.list().Sessions
	if len(got) != MaxSessions || got[0].Client != active.Client || got[1].Client != netip.MustParseAddr("10.0.0.6") {
		t.Errorf("%d sessions, the first of %v and %v", len(got), got[0].Client, got[1].Client)
	}
}

// TestQPNsStayInRange: QPNs never have reserved values.
func TestQPNsStayInRange(t *testing.T) {
	for last, want := range map[roce.QPN]roce.QPN{0: 0x100, 0x100: 0x101, 0xFFFFFD: 0xFFFFFE, 0xFFFFFE: 0x100, 0xFFFFFF: 0x100} {
		if got := (&service{lastQPN: last}).nextQPN(); got != want {
			t.Errorf("after %#x comes %#x, want %#x", last, got, want)
		}
	}
}

// TestRDMACM: a client with -R is listed as refused only once, although it repeats its request.
func TestRDMACM(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.cmPort = freeUDPPort(t) })
	l.up()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: clientIP.AsSlice()}, &net.UDPAddr{IP: groupIP.AsSlice(), Port: l.helper.limits.cmPort})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data := roce.BTH{Opcode: roce.OpWriteOnly, PKey: roce.DefaultPKey, DestQPN: 0x100}
	request := roce.BTH{Opcode: roce.OpUDSendOnly, PKey: roce.DefaultPKey, DestQPN: 1}
	for _, b := range [][]byte{{}, []byte("x"), data.Append(nil), request.Append(nil), request.Append(make([]byte, 0, 300))[:12]} {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	l.hears("run of 127.0.0.1 refused: it connects by RDMA-CM (-R or -z), which rocast does not support; run it without these options")
	if n := len(l.helper.List()[0].Sessions); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func freeUDPPort(t *testing.T) int {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: groupIP.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// TestNothingShownHoldsAnRKey: neither the log nor the listing has an R_Key.
func TestNothingShownHoldsAnRKey(t *testing.T) {
	l := newLab(t, 1, quick)
	l.up()
	sc := newest().keys("aaaaa")
	for i := range sc.exchanges {
		for _, m := range []*[]byte{&sc.exchanges[i].client, &sc.exchanges[i].server} {
			if k, err := parseKey(*m); err == nil {
				k.RKey = 0xdeadbeef
				*m = k.line()
			}
		}
	}
	l.play(func() error {
		_, err := l.server(0, (&script{exchanges: sc.exchanges[:6]}).moved(l.config.Receivers[0], 0))
		return err
	})
	l.play(func() error { _, _ = l.client(sc, -1); return nil })
	l.ended(2)
	timeout := time.After(10 * time.Second)
	for ended := false; !ended; {
		select {
		case s := <-l.told:
			ended = strings.Contains(s, "ended")
			checkNoRKey(t, s)
		case <-timeout:
			t.Fatal("the run does not end")
		}
	}
	checkNoRKey(t, fmt.Sprintf("%+v", l.helper.List()))
}

func checkNoRKey(t *testing.T, s string) {
	t.Helper()
	if strings.Contains(s, "deadbeef") || strings.Contains(s, "3735928559") {
		t.Errorf("an R_Key is shown: %s", s)
	}
}
