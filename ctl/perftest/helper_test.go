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
	other.GroupIP, other.Receivers = netip.MustParseAddr("127.0.0.101"), nil
	if err := l.helper.Up(context.Background(), other); err == nil || err.Error() != "there are no receivers; name at least one" || l.owned[other.GroupIP] != 0 {
		t.Errorf("%v; owned %d times", err, l.owned[other.GroupIP])
	}
	other.Receivers = addrs("127.0.0.11 127.0.0.12")
	if err := l.helper.Up(context.Background(), other); err == nil || err.Error() != "perftest on 127.0.0.101: own towards [127.0.0.11 127.0.0.12]" {
		t.Errorf("an address that cannot be added: %v", err)
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

// TestServicesAreListedInOrder: the list does not change its order from one call to the next, and
// shows what was asked for even if the caller changes its slices later.
func TestServicesAreListedInOrder(t *testing.T) {
	l := newLab(t, 1, nil)
	want := addrs("127.0.0.97 127.0.0.98 127.0.0.99 127.0.0.100 127.0.0.101 127.0.0.102")
	for _, i := range []int{3, 0, 5, 1, 4, 2} {
		c := l.config
		c.GroupIP, c.Receivers, c.Allow = want[i], slices.Clone(c.Receivers), prefixes("127.0.0.0/8")
		if err := l.helper.Up(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.Receivers[0], c.Allow[0] = netip.Addr{}, netip.Prefix{}
	}
	var got []netip.Addr
	for _, s := range l.helper.List() {
		got = append(got, s.GroupIP)
		if !slices.Equal(s.Receivers, l.config.Receivers) || !slices.Equal(s.Allow, prefixes("127.0.0.0/8")) {
			t.Errorf("%v: listed %+v", s.GroupIP, s)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v", got)
	}
}

// TestAServiceBeginsAtAnyQPN: a queue pair that an earlier service has connected may still send.
func TestAServiceBeginsAtAnyQPN(t *testing.T) {
	l := newLab(t, 1, nil)
	seen := map[roce.QPN]bool{}
	for range 4 {
		l.up()
		s, _ := l.helper.services.Get(groupIP)
		seen[s.nextQPN()] = true
		if err := l.helper.Down(groupIP); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 4 {
		t.Errorf("the first QPNs of four services are %v", seen)
	}
}

// TestGroupsThatCannotBeRemoved: the log names a group that stays.
func TestGroupsThatCannotBeRemoved(t *testing.T) {
	l := newLab(t, 1, quick)
	l.groups.stuck = errors.New("the store is read-only")
	l.up()
	sc := newest().keys("aaa")
	l.play(func() error { _, _ = l.server(0, sc.moved(l.config.Receivers[0], 1)); return nil })
	l.play(func() error { _, err := l.client(sc, -1); return err })
	l.hears("could not remove a perftest group")
	l.ended(2)
}

// TestDownLogsNoFailure: the end of a service is no failure to accept clients.
func TestDownLogsNoFailure(t *testing.T) {
	l := newLab(t, 1, nil)
	l.up()
	if err := l.helper.Down(groupIP); err != nil {
		t.Fatal(err)
	}
	if len(l.told) > 0 {
		t.Errorf("it logs %q", <-l.told)
	}
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

// TestForgottenSessions: the number of sessions that are listed is bounded. A new one takes the
// place of the oldest one that is over, and of no other.
func TestForgottenSessions(t *testing.T) {
	s := &service{log: zap.NewNop()}
	active := s.remember(Session{Client: netip.MustParseAddr("10.0.1.1"), State: Running})
	for i := range MaxSessions + 5 {
		s.remember(Session{Client: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}).end(errors.New("for the test"))
		if n, want := len(s.list().Sessions), min(i+2, 128); n != want {
			t.Errorf("%d sessions after %d, want %d", n, i+2, want)
		}
	}
	got := s.list().Sessions
	if got[0].Client != active.Client || got[1].Client != netip.MustParseAddr("10.0.0.6") {
		t.Errorf("the first sessions are of %v and %v", got[0].Client, got[1].Client)
	}
}

// TestQPNsStayInRange: QPNs never have reserved values.
func TestQPNsStayInRange(t *testing.T) {
	for last, want := range map[roce.QPN]roce.QPN{0: 0x100, 0xFE: 0x100, 0xFF: 0x100, 0x100: 0x101, 0xFFFFFD: 0xFFFFFE, 0xFFFFFE: 0x100, 0xFFFFFF: 0x100} {
		if got := (&service{lastQPN: last}).nextQPN(); got != want {
			t.Errorf("after %#x comes %#x, want %#x", last, got, want)
		}
	}
}

// TestRDMACM: a client with -R is listed as refused only once, although it repeats its request.
func TestRDMACM(t *testing.T) {
	l := newLab(t, 1, func(lim *limits) { lim.cmPort = freeUDPPort(t) })
	refused := make(chan string, 10)
	l.helper.options.RefuseCM = func(groupIP, host netip.Addr, datagram []byte, says string) error {
		refused <- fmt.Sprintf("%v at %v, %d bytes: %s", host, groupIP, len(datagram), says)
		return nil
	}
	l.up()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: clientIP.AsSlice()}, &net.UDPAddr{IP: groupIP.AsSlice(), Port: l.helper.limits.cmPort})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data := roce.BTH{Opcode: roce.OpWriteOnly, PKey: roce.DefaultPKey, DestQPN: 0x100}
	request := roce.BTH{Opcode: roce.OpUDSendOnly, PKey: roce.DefaultPKey, DestQPN: 1}
	stranger, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, &net.UDPAddr{IP: groupIP.AsSlice(), Port: l.helper.limits.cmPort})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, b := range [][]byte{{}, []byte("x"), data.Append(nil)} { // not listed, although it comes first
		if _, err := stranger.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{12, 280} {
		if _, err := conn.Write(request.Append(make([]byte, 0, 300))[:n]); err != nil {
			t.Fatal(err)
		}
		if got, want := <-refused, fmt.Sprintf("%v at %v, %d bytes: %s", clientIP, groupIP, n, connectsByCM); got != want {
			t.Errorf("refused %s, want %s", got, want)
		}
	}
	l.hears("run of 127.0.0.1 refused: it connects by RDMA-CM (-R or -z); run it without these options, or with -R against a group IP of rocast cm up --memory perftest")
	for name, bth := range map[string]roce.BTH{
		"data": data, "data to queue pair 1": {Opcode: roce.OpWriteOnly, DestQPN: 1}, "UD to another queue pair": {Opcode: roce.OpUDSendOnly, DestQPN: 2},
	} {
		if isCM(bth.Append(nil)) {
			t.Errorf("%s is taken for RDMA-CM", name)
		}
	}
	if cut := request.Append(nil)[:roce.BTHBytes-1]; isCM(cut) || !isCM(request.Append(nil)) {
		t.Error("a request that was cut is taken for one, or a whole one is not")
	}
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
