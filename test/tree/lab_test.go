package tree

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

const (
	groupName = "story"
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
	group *softgroup.Group // all hosts
	exact int              // links whose number of packets was certain
}

// box is one box of the tree.
type box struct {
	*boxes.Daemon
	at      *fabric.Box
	members []string // lines of the group file
}

// newTree makes a box for each entry of hosts, with that many hosts. A link joins each box but the
// first with the box that parents names. The first host of the first box is the source.
func newTree(t *testing.T, o options, hosts, parents []int) *tree {
	t.Helper()
	tr := &tree{t: t, o: o}
	tr.lab = fabric.Build(t, bed.Options{IPv6: o.ipv6, LossPerMillion: o.loss}, o.between, hosts, parents)
	for _, b := range tr.lab.Boxes {
		tr.boxes = append(tr.boxes, &box{at: b})
	}
	tr.group = &softgroup.Group{Name: groupName, QPN: 0x21, Bytes: o.memory, Keys: o.keys, State: tr.state}
	tr.cast(parents)
	for _, b := range tr.boxes {
		b.Daemon = boxes.Launch(t, b.at.Box, boxes.Ports(b.at.Ports()...)+"engine: "+o.engine+"\n")
		b.Create(t, groupName, tr.group.FileAt(b.at.GroupIP(), b.members))
	}
	tr.group.Connect(t)
	return tr
}

// cast writes the lines of all members.
func (tr *tree) cast(parents []int) {
	for n, b := range tr.boxes {
		for i, h := range b.at.Hosts {
			role := softgroup.Receives
			switch {
			case tr.o.both:
				role = softgroup.Both
			case n == 0 && i == 0:
				role = softgroup.Sends
			}
			m := tr.group.Add(h, role, roce.QPN(0x100*(n+1)+i), roce.PSN(0xFFFF80+n+i), roce.PSN(1000*(n+1)+i))
			m.Sees = b.at.GroupIP()
			b.members = append(b.members, m.Line())
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

// linkEnd is one end of a link, with the first PSN that it sends.
type linkEnd struct {
	ip    netip.Addr
	qpn   roce.QPN
	sends roce.PSN
}

// linkLine is the member that is the box at far, in the group of the box at near.
func (tr *tree) linkLine(far, near linkEnd, source bool) string {
	link := fmt.Sprintf("ip: %v, qpn: %d, remoteIP: %v, remoteQPN: %d", far.ip, far.qpn, near.ip, near.qpn)
	regions := fmt.Sprintf("regions: [{va: %#x, length: %d, rkey: %#x}]", softgroup.VA, tr.o.memory, softgroup.RKey)
	switch {
	case tr.o.both:
		return fmt.Sprintf("{%s, psn: %d, sendPSN: %d, role: both, %s}", link, near.sends, far.sends, regions)
	case source:
		return fmt.Sprintf("{%s, psn: %d, role: source}", link, far.sends)
	}
	return fmt.Sprintf("{%s, psn: %d, %s}", link, near.sends, regions)
}

func (tr *tree) of(b *box) api.Group { return b.Group(tr.t, groupName) }

// write lets a host write to all others. It calls midway when half of the WRITEs are complete.
func (tr *tree) write(from int, midway func()) {
	tr.t.Helper()
	tr.group.Write(tr.t, tr.group.Members[from], 64<<10, midway)
}

// restart kills the daemon of a box and starts it again.
func (tr *tree) restart(b *box) {
	tr.t.Helper()
	if err := b.Kill(); err != nil {
		tr.t.Fatal(err)
	}
	b.StartFor(tr.t, b.at.Box)
}

// boxOf returns the box of a host.
func (tr *tree) boxOf(m *softgroup.Member) *box {
	return tr.boxes[slices.IndexFunc(tr.boxes, func(b *box) bool { return slices.Contains(b.at.Hosts, m.Host) })]
}

func (tr *tree) state() string { return boxes.State(tr.t, groupName, tr.boxes...) }
