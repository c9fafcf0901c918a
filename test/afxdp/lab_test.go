package afxdp

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	groupQPN  = 0x21
	memoryVA  = 0x10000
	memoryKey = 0x77
	sourceQPN = 17
	sourcePSN = 0xFFFF80 // wraps after 128 packets
	patience  = 60 * time.Second
)

// lab is a bed whose box runs a switch. Host 0 is the source of every group. The last hosts are
// strangers: no group has them as members. The hosts in between are receivers.
type lab struct {
	*bed.Bed
	sw        *afxdp.Switch
	strangers int
	groups    int
}

// labOptions say what the bed and the switch are like.
type labOptions struct {
	bed.Options
	mode      afxdp.Mode
	workers   int
	strangers int // of bed.Options.Hosts
	fanOut    bool
	repair    uint64             // bytes to retain for repair
	egress    []dataplane.Egress // by host; nil: no bounds
}

// newLab builds the bed and runs a switch without groups on all ports of the box.
func newLab(t *testing.T, o labOptions) *lab {
	t.Helper()
	l := newBareLab(t, o)
	err := l.Box.Do(func() (err error) {
		l.sw, err = afxdp.Open(afxdp.Config{
			Ports: l.Ports(), Mode: o.mode, Workers: o.workers, FanOut: o.fanOut, RepairMemory: o.repair, Egress: o.egress,
		})
		if err == nil {
			l.sw.Engage()
		}
		return err
	})
	check(t, err)
	run(t, l.sw)
	return l
}

// newBareLab builds the bed without a switch.
func newBareLab(t *testing.T, o labOptions) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	l := &lab{strangers: o.strangers}
	var err error
	l.Bed, err = bed.New(o.Options)
	testlab.Permitted(t, err)
	t.Cleanup(func() { check(t, l.Bed.Close()) })
	l.ownGroupIP(t)
	return l
}

// run lets a switch move frames until the test ends. At the end every buffer of the switch must be
// accounted for.
func run(t *testing.T, sw *afxdp.Switch) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); sw.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		check(t, sw.Audit())
		check(t, sw.Close())
	})
}

// ownGroupIP makes the kernel of the box answer ARP requests for the group's IP.
func (l *lab) ownGroupIP(t *testing.T) {
	t.Helper()
	_, err := l.Box.Exec("ip", "address", "add", l.GroupIP().String(), "dev", bed.Bridge)
	check(t, err)
}

// eventually waits until done returns true.
func (l *lab) eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	testlab.Eventually(t, patience, what, done, func() string {
		return fmt.Sprintf("ports %+v, counters %v", l.sw.Ports(), l.sw.Counters())
	})
}

// counter reads one counter of a switch by its name.
func counter(t *testing.T, sw *afxdp.Switch, name string) uint64 {
	t.Helper()
	for _, c := range sw.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	t.Fatalf("the switch has no counter %s", name)
	return 0
}

// groupOptions say what a group is like.
type groupOptions struct {
	addressing mft.Addressing
	pathMTU    int // bytes; 0: 1024
	memory     int // bytes
	regions    int // more of them than one, each unused
	engine     mft.Engine
	edit       func(*mft.Group) // before the group is made
	rnic       func(*rnic.Config)
}

// group is a group in the switch, and the queue pairs of its members.
type group struct {
	*mft.Group
	lab       *lab
	source    *endpoint.QP
	receivers []*receiver
}

// receiver is a member that is written to.
type receiver struct {
	qp     *endpoint.QP
	rnic   *endpoint.Endpoint
	memory []byte
}

// addGroup makes a group of all hosts but the strangers, and connects the queue pairs of its
// members to it.
func (l *lab) addGroup(t *testing.T, o groupOptions) *group {
	t.Helper()
	if o.pathMTU == 0 {
		o.pathMTU = 1024
	}
	g := &group{lab: l, Group: l.describe(o)}
	if o.edit != nil {
		o.edit(g.Group)
	}
	l.groups++
	check(t, l.Box.Do(func() error {
		_, err := l.sw.Add(g.Group)
		return err
	}))
	g.connect(t, o)
	return g
}

// describe is the group as control would build it from a group file. Several groups of one lab have
// different numbers.
func (l *lab) describe(o groupOptions) *mft.Group {
	sourceSees, receiversSee := l.addresses(o.addressing)
	n := l.groups
	g := &mft.Group{
		Name: "story", IP: sourceSees, Addressing: o.addressing, QPN: roce.QPN(groupQPN + n), PathMTU: o.pathMTU, Engine: o.engine,
		Source: mft.Source{Leg: l.leg(0, roce.QPN(sourceQPN+n), sourceSees), FirstPSN: sourcePSN},
	}
	ranges := []mft.VirtualRegion{{VA: memoryVA, Length: uint64(o.memory), RKey: memoryKey}}
	for k := range o.regions {
		ranges = append(ranges, mft.VirtualRegion{VA: uint64(k+1) << 50, Length: 1, RKey: memoryKey})
	}
	g.Memory = mft.MustMemory(ranges...)
	for i := 1; i < len(l.Hosts)-l.strangers; i++ {
		g.Paths = append(g.Paths, mft.Path{
			Leg: l.leg(i, roce.QPN(100*(n+1)+i), receiversSee), RemoteQPN: g.QPN, FirstPSN: roce.PSN(1000 * i),
			Regions: g.Memory.At(func(mft.VirtualRegion) mft.Region {
				return mft.Region{VA: uint64(n+1)<<48 + uint64(i)<<40, RKey: uint32(0x1000*(n+1) + i)}
			}),
		})
	}
	return g
}

// addresses are the peer IPs of the source's queue pair and of the receivers' queue pairs.
func (l *lab) addresses(a mft.Addressing) (sourceSees, receiversSee netip.Addr) {
	switch a {
	case mft.ByVirtualQPN:
		return l.Hosts[1].IP, l.Hosts[0].IP
	case mft.BySwitchIP:
		return l.IP(), l.IP()
	}
	return l.GroupIP(), l.GroupIP()
}

// leg is the way to a queue pair of host i, whose frames come from the address that this queue pair
// has as its peer.
func (l *lab) leg(i int, qpn roce.QPN, from netip.Addr) mft.Leg {
	h := l.Hosts[i]
	leg := mft.Leg{Port: mft.PortID(i), Src: from, Dst: h.IP, DestQPN: qpn}
	etherType := uint16(0x0800)
	if from.Is6() {
		etherType = 0x86DD
	}
	leg.L2Bytes = uint8(copy(leg.L2[:], roce.AppendEthernet(nil, h.RNIC.MAC(), roce.MAC(h.Port.MAC), etherType)))
	return leg
}

func (g *group) connect(t *testing.T, o groupOptions) {
	t.Helper()
	for i := range g.Paths {
		p := &g.Paths[i]
		r, at := &receiver{rnic: g.lab.hostAt(p.Dst), memory: make([]byte, o.memory)}, p.Regions.Region(g.Memory, 0)
		check(t, r.rnic.Register(rnic.Region{
			VA: at.VA, RKey: at.RKey, Access: rnic.RemoteWrite, Bytes: r.memory,
		}))
		r.qp = open(t, r.rnic, o, p.DestQPN, 0)
		dialReceiver(t, r.qp, p)
		g.receivers = append(g.receivers, r)
	}
	g.source = open(t, g.lab.Hosts[0].RNIC, o, g.Source.DestQPN, sourcePSN)
	dial(t, g.source, endpoint.Peer{IP: g.Source.Src, QPN: g.QPN})
}

// hostAt is the RNIC with this address.
func (l *lab) hostAt(ip netip.Addr) *endpoint.Endpoint {
	for _, h := range l.Hosts {
		if h.IP == ip {
			return h.RNIC
		}
	}
	panic("no host has " + ip.String())
}

func dialReceiver(t *testing.T, qp *endpoint.QP, p *mft.Path) {
	t.Helper()
	dial(t, qp, endpoint.Peer{IP: p.Src, QPN: p.RemoteQPN, PSN: p.FirstPSN})
}

// open makes a queue pair.
func open(t *testing.T, host *endpoint.Endpoint, o groupOptions, qpn roce.QPN, psn roce.PSN) *endpoint.QP {
	t.Helper()
	c := rnic.Defaults()
	c.QPN, c.SendPSN, c.MTUBytes = qpn, psn, o.pathMTU
	if o.rnic != nil {
		o.rnic(&c)
	}
	qp, err := host.NewQP(c)
	check(t, err)
	return qp
}

func dial(t *testing.T, qp *endpoint.QP, peer endpoint.Peer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, qp.Connect(ctx, peer))
}

// write fills the group's memory with random data, in WRITEs of messageBytes. It waits for each
// WRITE to complete with success.
func (g *group) write(t *testing.T, messageBytes int) []byte {
	t.Helper()
	data := bed.Random(len(g.receivers[0].memory), 1)
	for off := 0; off < len(data); off += messageBytes {
		g.post(t, off, data[off:min(off+messageBytes, len(data))])
		g.succeeds(t)
	}
	return data
}

// post posts a WRITE to an offset of the group's memory.
func (g *group) post(t *testing.T, off int, data []byte) {
	t.Helper()
	check(t, g.source.PostWrite(uint64(off), data, rnic.Remote{VA: memoryVA + uint64(off), RKey: memoryKey}))
}

// succeeds waits for the oldest completion of the source, which has to be a success.
func (g *group) succeeds(t *testing.T) {
	t.Helper()
	if c := g.completion(t); c.Status != rnic.Success {
		t.Fatalf("the source's work request ended with %v; switch %v", c, g.lab.sw.Counters())
	}
}

func (g *group) completion(t *testing.T) rnic.Completion {
	t.Helper()
	c, err := wait(t, g.source)
	if err != nil {
		state, _ := g.lab.sw.GroupState(g.ID)
		counters := g.lab.Hosts[0].RNIC.Counters()
		t.Fatalf("no completion: %v\nsource %v\ngroup %+v", err, counters.ByName(), state)
	}
	return c
}

func wait(t *testing.T, qp *endpoint.QP) (rnic.Completion, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return qp.Wait(ctx)
}

// holds checks that every receiver has the data, and that neither a receiver nor the source got a
// frame that a correct peer would not have sent.
func (g *group) holds(t *testing.T, data []byte) {
	t.Helper()
	for i, r := range g.receivers {
		r.rnic.Freeze(func() {
			if !bytes.Equal(r.memory, data) {
				t.Errorf("the memory of receiver %d differs from the source's data", i+1)
			}
		})
		if c := r.rnic.Counters(); c.Rejected() != 0 {
			t.Errorf("receiver %d refused frames: %v", i+1, c.ByName())
		}
		if c, any := r.qp.Poll(); any {
			t.Errorf("receiver %d completed a work request, and the source sent nothing that uses one: %v", i+1, c)
		}
	}
	g.heardTruth(t)
}

// heardTruth checks the answers to the source.
func (g *group) heardTruth(t *testing.T) {
	t.Helper()
	c := g.lab.Hosts[0].RNIC.Counters()
	if v, any := g.source.Violation(); any {
		t.Errorf("the source got a response that no responder may send: %v", v)
	}
	// Two things are allowed once the source went back, for a timeout or a NAK. An ACK that was on
	// its way can be ahead of the resent packets. A resent packet that every receiver has is
	// acknowledged with the receivers' newest MSN: a NAK that was on its way while its packet was
	// sent again makes the source send it once more.
	odd := c.Get(rnic.ResponsesAheadOfResend) + c.Get(rnic.ACKsWrongMSN)
	if n := c.Rejected(); n != 0 || odd != 0 && c.Get(rnic.GoBacks) == 0 {
		t.Errorf("the source got frames that it should not get: %v", c.ByName())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
