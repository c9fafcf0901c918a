package cm

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// BenchmarkConnect measures how long a source takes to connect to three receivers through the
// daemon, and how long to one of them directly. The hosts are sockets that answer at once, so the
// difference is the box's.
func BenchmarkConnect(b *testing.B) {
	defer boxes.RemoveProgram()
	l := newBed(b)
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
}

func newBed(b *testing.B) *benchBed {
	box := netns.New(b)
	for _, args := range [][]string{{"link", "add", "br0", "type", "bridge"}, {"addr", "add", "10.77.0.254/24", "dev", "br0"}, {"link", "set", "br0", "up"}} {
		if _, err := box.Exec("ip", args...); err != nil {
			b.Fatal(err)
		}
	}
	l := &benchBed{}
	for i := range 4 {
		host := netns.New(b)
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
	l.source, l.receivers = l.receivers[0], l.receivers[1:]
	for _, r := range l.receivers {
		go answer(r)
	}
	l.up(b, box)
	return l
}

// up starts the daemon, and brings the group IP up.
func (l *benchBed) up(b *testing.B, box *netns.NS) {
	d := boxes.Launch(b, box, boxes.Ports("eth*"))
	request := api.CMRequest{GroupIP: groupIP.String(), Port: 7174}
	for _, r := range l.receivers {
		request.Receivers = append(request.Receivers, r.ip.String())
	}
	if _, err := d.Client().CMUp(b.Context(), request); err != nil {
		b.Fatal(err)
	}
}

// answer accepts every REQ until the socket is closed.
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
		case *wire.DREQ:
			_ = s.send(heard.From, &wire.MAD{Header: heard.MAD.Header, Message: &wire.DREP{Pair: swap(m.Pair)}})
		}
	}
}

// connect connects the source and disconnects it.
func (l *benchBed) connect(b *testing.B, to netip.Addr) time.Duration {
	l.next++
	req := testREQ(l.source.ip, l.next, 1, roce.QPN(0x100+l.next), 1000)
	req.Primary.RemoteGID = wire.GIDOf(to)
	header := wire.IPHeader{Src: l.source.ip, Dst: to}
	header.Put(&req.PrivateData)
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
func say[M wire.Message](b *testing.B, s *socket, to netip.Addr, message wire.Message) M {
	if err := s.send(to, &wire.MAD{Message: message}); err != nil {
		b.Fatal(err)
	}
	s.raw.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		event, err, lost := s.receive()
		if err != nil || lost != nil {
			b.Fatal(err, lost)
		}
		heard, _ := event.(Heard)
		switch m := heard.MAD.Message.(type) {
		case M:
			return m
		case *wire.REJ:
			b.Fatal(m.Reason)
		}
	}
}
