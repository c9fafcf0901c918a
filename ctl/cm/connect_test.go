package cm

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// BenchmarkConnect measures how long a source takes to connect to three receivers through the
// daemon, and how long to one of them directly. The hosts are sockets that answer at once, so the
// difference is the box's.
func BenchmarkConnect(b *testing.B) {
	l := newBed(b, "")
	for _, way := range []struct {
		name string
		to   netip.Addr
	}{{"group", groupIP}, {"direct", l.receivers[0].ip}} {
		b.Run(way.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				took = append(took, l.connect(b, way.to))
			}
			slices.Sort(took)
			for _, percent := range []int{50, 99} {
				b.ReportMetric(float64(took[len(took)*percent/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", percent))
			}
		})
	}
}

// benchBed is a source, three receivers, and a daemon in the box between them, which answers at the
// group IP.
type benchBed struct {
	source    *socket
	receivers []*socket
	next      uint32
	other     *socket     // of a host that is no receiver
	hosts     []*netns.NS // of the source, the receivers and the other host
	daemon    *boxes.Daemon
}

func newBed(b testing.TB, memory string) *benchBed {
	box := netns.New(b)
	for _, args := range [][]string{{"link", "add", "br0", "type", "bridge"}, {"addr", "add", "10.77.0.254/24", "dev", "br0"}, {"link", "set", "br0", "up"}} {
		if _, err := box.Exec("ip", args...); err != nil {
			b.Fatal(err)
		}
	}
	l := &benchBed{}
	for i := range 5 {
		host := netns.New(b)
		l.hosts = append(l.hosts, host)
		port := fmt.Sprintf("eth%d", i+1)
		_, far := netns.Veth(b, box, port, host, "p0", netns.VethOptions{})
		if _, err := box.Exec("ip", "link", "set", port, "master", "br0"); err != nil {
			b.Fatal(err)
		}
		if err := far.AddAddress(netip.PrefixFrom(hostIP(byte(i+1)), 24).String()); err != nil {
			b.Fatal(err)
		}
		err := host.Do(func() error {
			s, err := openSocket(hostIP(byte(i + 1)))
			l.receivers = append(l.receivers, s)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(l.receivers[i].close)
	}
	l.source, l.receivers, l.other = l.receivers[0], l.receivers[1:4], l.receivers[4]
	for _, r := range l.receivers {
		go answer(r)
	}
	l.up(b, box, memory)
	return l
}

// up starts the daemon, and brings the group IP up.
func (l *benchBed) up(b testing.TB, box *netns.NS, memory string) {
	d := boxes.Launch(b, box, boxes.Ports("eth*"))
	l.daemon = d
	request := api.CMRequest{GroupIP: groupIP.String(), Port: 7174, Memory: memory}
	for _, r := range l.receivers {
		request.Receivers = append(request.Receivers, r.ip.String())
	}
	if _, err := d.Client().CMUp(b.Context(), request); err != nil {
		b.Fatal(err)
	}
}

// answer accepts every REQ, and says that a source is there, until the socket is closed.
func answer(s *socket) {
	for commID := uint32(1); ; {
		event, _, lost := s.receive()
		if lost != nil {
			return
		}
		heard, _ := event.(Heard)
		switch m := heard.MAD.Message.(type) {
		case *wire.REQ:
			commID++
			_ = s.send(heard.From, &wire.MAD{Header: heard.MAD.Header, Message: &wire.REP{
				Pair: wire.Pair{Local: commID, Remote: m.LocalCommID}, QPN: roce.QPN(0x100 + commID), StartingPSN: 7, RNRRetry: 7, CAGUID: uint64(commID),
			}})
		case *wire.REP: // a question whether a source is there
			_ = s.send(heard.From, &wire.MAD{Header: heard.MAD.Header, Message: &wire.RTU{Pair: swap(m.Pair)}})
		case *wire.DREQ:
			_ = s.send(heard.From, &wire.MAD{Header: heard.MAD.Header, Message: &wire.DREP{Pair: swap(m.Pair)}})
		}
	}
}

// req is the next request of a host.
func (l *benchBed) req(from *socket, to netip.Addr) *wire.REQ {
	l.next++
	req := testREQ(from.ip, l.next, uint64(from.ip.As4()[3]), roce.QPN(0x100+l.next), 1000)
	req.Primary.RemoteGID = wire.GIDOf(to)
	header := wire.IPHeader{Src: from.ip, Dst: to}
	header.Put(&req.PrivateData)
	return req
}

// connect connects the source and disconnects it.
func (l *benchBed) connect(b *testing.B, to netip.Addr) time.Duration {
	req := l.req(l.source, to)
	began := time.Now()
	rep := say[*wire.REP](b, l.source, to, req)
	took := time.Since(began)
	if err := l.source.send(to, &wire.MAD{Message: &wire.RTU{Pair: swap(rep.Pair)}}); err != nil {
		b.Fatal(err)
	}
	say[*wire.DREP](b, l.source, to, &wire.DREQ{Pair: swap(rep.Pair), RemoteQPN: rep.QPN})
	return took
}

// say sends a message and waits for its answer.
func say[M wire.Message](b testing.TB, s *socket, to netip.Addr, message wire.Message) M {
	b.Helper()
	got := hear(b, s, to, message)
	m, ok := got.(M)
	if !ok {
		b.Fatalf("%v is answered with %+v", message.Attribute(), got)
	}
	return m
}

// hear sends a message and returns its answer. What asks to wait is none.
func hear(b testing.TB, s *socket, to netip.Addr, message wire.Message) wire.Message {
	b.Helper()
	if err := s.send(to, &wire.MAD{Message: message}); err != nil {
		b.Fatal(err)
	}
	s.raw.SetReadDeadline(time.Now().Add(testlab.Patience))
	for {
		event, err, lost := s.receive()
		if err != nil || lost != nil {
			b.Fatal(err, lost)
		}
		if heard, ok := event.(Heard); ok && heard.MAD.Message.Attribute() != wire.AttrMRA {
			return heard.MAD.Message
		}
	}
}

// A real daemon refuses a host while the source of a run is there, and says so where operators
// look. When the source's link is cut, the next host that asks is served.
func TestADaemonWhoseRunLosesItsSource(t *testing.T) {
	l := newBed(t, "perftest")
	ask := l.daemon.Client()
	rep := say[*wire.REP](t, l.source, groupIP, l.req(l.source, groupIP))
	if err := l.source.send(groupIP, &wire.MAD{Message: &wire.RTU{Pair: swap(rep.Pair)}}); err != nil {
		t.Fatal(err)
	}
	l.source.raw.SetReadDeadline(time.Time{})
	go answer(l.source)
	connections := func() []api.CMConnection {
		list, err := ask.CMs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list.CMs[0].Connections
	}
	testlab.Eventually(t, testlab.Patience, "established", func() bool { return connections()[0].State == "established" }, nil)
	if c := connections()[0]; !c.HoldsRun || c.Ends == nil || c.Unless != "source 10.77.0.1 goes on" {
		t.Errorf("%+v", c)
	}

	rej := say[*wire.REJ](t, l.other, groupIP, l.req(l.other, groupIP))
	text := strings.TrimRight(string(rej.PrivateData[:]), "\x00")
	if rej.Reason != wire.NoResources || !strings.HasPrefix(text, "the run of 10.77.0.1 has not ended; it ends in ") {
		t.Errorf("refused: %v, %q", rej.Reason, text)
	}
	status, err := ask.Status(t.Context())
	if err != nil || !slices.ContainsFunc(status.Notes, func(n string) bool {
		return strings.HasPrefix(n, "RDMA-CM on 10.77.0.100 has refused 10.77.0.5 at ") && strings.HasSuffix(n, ": "+text)
	}) {
		t.Errorf("the status has %q, %v", status.Notes, err)
	}
	events, err := ask.EventsAfter(t.Context(), api.Cursor{}, "", 0)
	if err != nil || !slices.ContainsFunc(events.Events, func(e api.Event) bool {
		return e.Kind == api.ConnectionRefused && e.Member == "10.77.0.5" && e.Cause == "by RDMA-CM at 10.77.0.100: "+text
	}) {
		t.Errorf("the events are %+v, %v", events.Events, err)
	}

	if _, err := l.hosts[0].Exec("ip", "link", "set", "p0", "down"); err != nil {
		t.Fatal(err)
	}
	say[*wire.REP](t, l.other, groupIP, l.req(l.other, groupIP))
	if c := connections()[0]; c.Reason != "source 10.77.0.1 does not answer, and 10.77.0.5 waits for its receivers" {
		t.Errorf("%+v", c)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	boxes.RemoveProgram()
	os.Exit(code)
}
