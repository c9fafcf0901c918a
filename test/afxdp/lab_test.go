package afxdp

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	groupQPN  = 1
	memoryVA  = 0x10000
	memoryKey = 0x77
	sourceQPN = 17
	sourcePSN = 0xFFFF80 // the wrap is near
	patience  = 60 * time.Second
)

var groupIP = netip.MustParseAddr("10.77.3.100")

// lab is a bed with a switch on its ports and a group of host 0 to the rest.
type lab struct {
	*bed.Bed
	sw     *afxdp.Switch
	group  *mft.Group
	source *endpoint.QP
	sinks  []*sink
}

type sink struct {
	qp     *endpoint.QP
	memory []byte
}

type options struct {
	bed.Options
	mode    afxdp.Mode
	workers int
	pathMTU int
	memory  int
	rnic    func(*rnic.Config)
}

func newLab(t *testing.T, o options) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces and AF_XDP")
	}
	if o.pathMTU == 0 {
		o.pathMTU = 1024
	}
	l := &lab{}
	var err error
	if l.Bed, err = bed.New(o.Options); errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_NET_ADMIN and CAP_SYS_ADMIN: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, l.Bed.Close()) })
	l.ownGroupIP(t)
	err = l.Box.Do(func() (err error) {
		l.sw, err = afxdp.Open(afxdp.Config{Ports: l.Ports(), Mode: o.mode, Workers: o.workers})
		return err
	})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); l.sw.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		// Every chunk is accounted for after every story.
		check(t, l.sw.Audit())
		check(t, l.sw.Close())
	})
	l.group = l.describe(o)
	_, err = l.sw.Add(l.group)
	check(t, err)
	l.connect(t, o)
	return l
}

// ownGroupIP makes the box's kernel answer ARP for the group.
func (l *lab) ownGroupIP(t *testing.T) {
	t.Helper()
	_, err := l.Box.Exec("ip", "address", "add", groupIP.String()+"/32", "dev", bed.Bridge)
	check(t, err)
}

func (l *lab) describe(o options) *mft.Group {
	g := &mft.Group{
		Name: "story", IP: groupIP, QPN: groupQPN, PathMTU: o.pathMTU,
		Memory: []mft.VirtualRegion{{VA: memoryVA, Length: uint64(o.memory), RKey: memoryKey}},
		Source: mft.Source{Leg: l.leg(0, sourceQPN), FirstPSN: sourcePSN},
	}
	for i := 1; i < len(l.Hosts); i++ {
		g.Paths = append(g.Paths, mft.Path{
			Leg: l.leg(i, roce.QPN(100+i)), RemoteQPN: groupQPN, FirstPSN: roce.PSN(1000 * i),
			Regions: []mft.Region{{VA: uint64(i) << 40, Length: uint64(o.memory), RKey: uint32(0x1000 + i)}},
		})
	}
	return g
}

func (l *lab) leg(i int, qpn roce.QPN) mft.Leg {
	h := l.Hosts[i]
	leg := mft.Leg{Port: mft.PortID(i), Src: groupIP, Dst: h.IP, DestQPN: qpn}
	leg.L2Bytes = uint8(copy(leg.L2[:], roce.AppendEthernet(nil, h.RNIC.MAC(), roce.MAC(h.Port.MAC), 0x0800)))
	return leg
}

func (l *lab) connect(t *testing.T, o options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	config := func(qpn, psn int) rnic.Config {
		c := rnic.Defaults()
		c.QPN, c.SendPSN, c.MTUBytes = roce.QPN(qpn), roce.PSN(psn), o.pathMTU
		if o.rnic != nil {
			o.rnic(&c)
		}
		return c
	}
	for i := 1; i < len(l.Hosts); i++ {
		p := &l.group.Paths[i-1]
		s := &sink{memory: make([]byte, o.memory)}
		check(t, l.Hosts[i].RNIC.Register(rnic.Region{
			VA: p.Regions[0].VA, RKey: p.Regions[0].RKey, Access: rnic.RemoteWrite, Bytes: s.memory,
		}))
		var err error
		s.qp, err = l.Hosts[i].RNIC.NewQP(config(100+i, 0))
		check(t, err)
		check(t, s.qp.Connect(ctx, endpoint.Peer{IP: groupIP, QPN: groupQPN, PSN: p.FirstPSN}))
		l.sinks = append(l.sinks, s)
	}
	var err error
	l.source, err = l.Hosts[0].RNIC.NewQP(config(sourceQPN, sourcePSN))
	check(t, err)
	check(t, l.source.Connect(ctx, endpoint.Peer{IP: groupIP, QPN: groupQPN}))
}

// write WRITEs random data in messages of so many bytes and waits until the
// source says that it is done.
func (l *lab) write(t *testing.T, messageBytes int) []byte {
	t.Helper()
	data := make([]byte, len(l.sinks[0].memory))
	rand.NewChaCha8([32]byte{1}).Read(data)
	for off := 0; off < len(data); off += messageBytes {
		part := data[off:min(off+messageBytes, len(data))]
		check(t, l.source.PostWrite(0, part, rnic.Remote{VA: memoryVA + uint64(off), RKey: memoryKey}))
		if c := l.completion(t); c.Status != rnic.Success {
			t.Fatalf("WRITE at %d: %v; switch %v", off, c, l.sw.Counters())
		}
	}
	return data
}

func (l *lab) completion(t *testing.T) rnic.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := l.source.Wait(ctx)
	if err != nil {
		state, _ := l.sw.GroupState(l.group.ID)
		t.Fatalf("no completion: %v\nsource %v\ngroup %+v", err, l.Hosts[0].RNIC.Counters(), state)
	}
	return c
}

// holds checks that every receiver has the data, that nobody was told or sent
// anything wrong, and that the worker lost no buffer.
func (l *lab) holds(t *testing.T, data []byte) {
	t.Helper()
	for i, s := range l.sinks {
		host := l.Hosts[1+i].RNIC
		host.Freeze(func() {
			if !bytes.Equal(s.memory, data) {
				t.Errorf("receiver %d's memory differs", i+1)
			}
		})
		if c := host.Counters(); c.Rejected() != 0 {
			t.Errorf("receiver %d refused frames: %v", i+1, c.ByName())
		}
	}
	c := l.Hosts[0].RNIC.Counters()
	if v, any := l.source.Violation(); any {
		t.Errorf("the source was told a lie: %v", v)
	}
	// After a timeout an ACK that was on its way is ahead of the resend
	// through nobody's fault, and a resent packet that everyone has is
	// acknowledged with the receivers' newest MSN.
	odd := c.Get(rnic.ResponsesAheadOfResend) + c.Get(rnic.ACKsWrongMSN)
	if n := c.Rejected(); n != 0 || odd != 0 && c.Get(rnic.Timeouts) == 0 {
		t.Errorf("the source heard what it should not: %v", c.ByName())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
