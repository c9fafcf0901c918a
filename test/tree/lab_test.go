package tree

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/roce"
)

const (
	groupName = "story"
	groupQPN  = 0x21
	memoryVA  = 0x10000
	memoryKey = 0x77
	pathMTU   = 1024
	patience  = 60 * time.Second
)

func TestMain(m *testing.M) { boxes.Main(m) }

// options say what a tree is like.
type options struct {
	between fabric.Between
	engine  string // of the daemons
	keys    string // more keys of the group files
	loss    int    // of a million RoCE packets, on every link, each way
	memory  int    // bytes
	both    bool   // any member may become the source
	ipv6    bool
}

// tree is boxes, each with its daemon and its part of one group.
type tree struct {
	t     *testing.T
	o     options
	lab   *fabric.Fabric
	boxes []*box
	hosts []*host
	exact int // links whose number of packets was certain
}

// box is one box of the tree. Links lead to the boxes next to it.
type box struct {
	*fabric.Box
	tree    *tree
	daemon  *boxes.Daemon
	members []string // lines of the group file
}

// host is a member of the group.
type host struct {
	*bed.Host
	at      *box
	qpn     roce.QPN
	sends   roce.PSN
	expects roce.PSN
	va      uint64
	rkey    uint32
	memory  []byte
	qp      *endpoint.QP
}

// newTree makes a box for each entry of hosts, with that many hosts. A link joins each box but the
// first with the box that parents names. The first host of the first box is the source.
func newTree(t *testing.T, o options, hosts, parents []int) *tree {
	t.Helper()
	testlab.NeedRoot(t)
	tr := &tree{t: t, o: o, lab: &fabric.Fabric{}}
	t.Cleanup(func() { testlab.Must(t, tr.lab.Close()) })
	for i, n := range hosts {
		add := tr.lab.AddBox
		if o.between == fabric.Flat {
			add = tr.lab.AddFlatBox
		}
		b, err := add(bed.Options{Hosts: n, IPv6: o.ipv6, LossPerMillion: o.loss, Seed: uint32(100 * (i + 1))})
		testlab.Permitted(t, err)
		tr.boxes = append(tr.boxes, &box{Box: b, tree: tr})
	}
	for i, parent := range parents {
		_, err := tr.lab.Join(tr.boxes[parent].Box, tr.boxes[i+1].Box, o.between, uint32(i+1), o.loss)
		testlab.Must(t, err)
	}
	tr.cast(parents)
	for _, b := range tr.boxes {
		b.daemon = boxes.Launch(t, b.Box.Box, boxes.Ports(b.Ports()...)+"engine: "+o.engine+"\n")
		b.create()
	}
	tr.connect()
	return tr
}

// cast writes the lines of all members.
func (tr *tree) cast(parents []int) {
	for n, b := range tr.boxes {
		for i, h := range b.Hosts {
			h := &host{
				Host: h, at: b, qpn: roce.QPN(0x100*(n+1) + i), sends: roce.PSN(0xFFFF80 + n + i), expects: roce.PSN(1000*(n+1) + i),
				va: uint64(n+1)<<48 + uint64(i)<<40, rkey: uint32(0x1000*(n+1) + i), memory: make([]byte, tr.o.memory),
			}
			tr.hosts = append(tr.hosts, h)
			b.members = append(b.members, h.line(n == 0 && i == 0))
		}
	}
	for n, parent := range parents {
		up, down := tr.boxes[parent], tr.boxes[n+1]
		ends := tr.lab.Links[n].Ends
		upper := linkEnd{ends[0].IP, roce.QPN(0x500 + n), roce.PSN(0xFFFFF0 + n)}
		lower := linkEnd{ends[1].IP, roce.QPN(0x600 + n), roce.PSN(0x7000 + n)}
		up.members = append(up.members, tr.linkLine(lower, upper, false))
		down.members = append([]string{tr.linkLine(upper, lower, true)}, down.members...)
	}
}

func (h *host) line(source bool) string {
	regions := fmt.Sprintf("regions: [{va: %#x, length: %d, rkey: %#x}]", h.va, len(h.memory), h.rkey)
	switch {
	case h.at.tree.o.both:
		psn := h.expects
		return fmt.Sprintf("{ip: %v, qpn: %d, psn: %d, sendPSN: %d, role: both, %s}", h.IP, h.qpn, psn, h.sends, regions)
	case source:
		return fmt.Sprintf("{ip: %v, qpn: %d, psn: %d, role: source}", h.IP, h.qpn, h.sends)
	}
	return fmt.Sprintf("{ip: %v, qpn: %d, psn: %d, %s}", h.IP, h.qpn, h.expects, regions)
}

// linkEnd is one end of a link, with the first PSN that it sends.
type linkEnd struct {
	ip    netip.Addr
	qpn   roce.QPN
	sends roce.PSN
}

// linkLine is the member that is the box at far, in the group of the box at near.
func (tr *tree) linkLine(far, near linkEnd, source bool) string {
	link := fmt.Sprintf("ip: %v, qpn: %d, remoteIP: %v, remoteQPN: %d", far.ip, far.qpn, near.ip, near.qpn)
	regions := fmt.Sprintf("regions: [{va: %#x, length: %d, rkey: %#x}]", memoryVA, tr.o.memory, memoryKey)
	switch {
	case tr.o.both:
		return fmt.Sprintf("{%s, psn: %d, sendPSN: %d, role: both, %s}", link, near.sends, far.sends, regions)
	case source:
		return fmt.Sprintf("{%s, psn: %d, role: source}", link, far.sends)
	}
	return fmt.Sprintf("{%s, psn: %d, %s}", link, near.sends, regions)
}

func (b *box) client() *client.Client { return b.daemon.Client() }

// create makes the box's part of the group and waits until its members are reached.
func (b *box) create() {
	t := b.tree.t
	t.Helper()
	text := fmt.Sprintf("name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\n%s\nmembers:\n  - %s\n",
		groupName, b.GroupIP(), groupQPN, pathMTU, memoryVA, b.tree.o.memory, memoryKey, b.tree.o.keys, strings.Join(b.members, "\n  - "))
	b.daemon.Create(t, groupName, text)
}

func (b *box) group() api.Group { return b.daemon.Group(b.tree.t, groupName) }

// connect connects the queue pairs of all hosts to the group of their box.
func (tr *tree) connect() {
	t := tr.t
	t.Helper()
	for _, h := range tr.hosts {
		testlab.Must(t, h.RNIC.Register(rnic.Region{VA: h.va, RKey: h.rkey, Access: rnic.RemoteWrite, Bytes: h.memory}))
		var err error
		h.qp, err = h.RNIC.NewQP(bed.QP(h.qpn, h.sends, pathMTU))
		testlab.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		testlab.Must(t, h.qp.Connect(ctx, endpoint.Peer{IP: h.at.GroupIP(), QPN: groupQPN, PSN: h.expects}))
	}
}

const writeBytes = 64 << 10

// write fills the group's memory from one host. It calls midway when half of the WRITEs are
// complete, if midway is not nil.
func (tr *tree) write(from *host, seed byte, midway func()) (data []byte) {
	tr.t.Helper()
	data = bed.Random(tr.o.memory, seed)
	ctx, cancel := context.WithTimeout(tr.t.Context(), 2*patience)
	defer cancel()
	_, err := bed.Write(ctx, from.qp, rnic.Remote{VA: memoryVA, RKey: memoryKey}, data, writeBytes, midway)
	if err != nil {
		tr.t.Fatalf("%v\n%s", err, tr.state())
	}
	return data
}

// hold fails the test if a host other than from lacks data, or got a frame that no correct peer
// sends.
func (tr *tree) hold(from *host, data []byte) {
	tr.t.Helper()
	for _, h := range tr.hosts {
		if h == from {
			continue
		}
		if err := h.CheckReceived(h.memory, data); err != nil {
			tr.t.Error(err)
		}
	}
	if err := bed.CheckResponses(from.qp); err != nil {
		tr.t.Error(err)
	}
}

func (tr *tree) state() string {
	var s strings.Builder
	for i, b := range tr.boxes {
		g, err := b.client().Group(tr.t.Context(), groupName)
		fmt.Fprintf(&s, "box %d: %v, %+v, counters %v, members %+v\n", i, err, g.Engine, g.Counters, g.Members)
	}
	return s.String()
}
