package branches

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

const (
	groupName = "g1"
	sourceQPN = 17
	sourcePSN = 0xFFFFF0  // the PSNs wrap early
	bytesEach = 256 << 10 // of one round
	patience  = 30 * time.Second
)

// site is three boxes in a row with routers between them: leaf1 with the source and a host, spine
// with a host, leaf2 with two hosts.
type site struct {
	t     *testing.T
	set   *boxes.Set
	lab   *fabric.Fabric
	group *softgroup.Group
}

func TestMain(m *testing.M) { boxes.Main(m) }

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOf(t, fabric.Router, false, 0, nil)
}

// newSiteOf also gives each box spare hosts, which prepare may use before the daemons start.
func newSiteOf(t *testing.T, between fabric.Between, ipv6 bool, spare int, prepare func(*site)) *site {
	t.Helper()
	s := &site{t: t}
	s.lab = fabric.Build(t, bed.Options{IPv6: ipv6}, between, []int{2 + spare, 1 + spare, 2 + spare}, []int{0, 1})
	s.group = newGroup(s.lab.Boxes[0].GroupIP(), bytesEach)
	s.group.State = s.state
	if prepare != nil {
		prepare(s)
	}
	s.set = boxes.Up(t, s.lab, "leaf1", "spine", "leaf2")
	return s
}

// newGroup is a group without members. Their queue pairs wait a second for an answer, seven times:
// longer than a box takes to come back on a machine that is busy.
func newGroup(ip netip.Addr, bytes int) *softgroup.Group {
	return &softgroup.Group{Name: groupName, IP: ip, QPN: 1, Bytes: bytes, Timeout: 18, RetryCount: 6}
}

// host is host i of a box. It expects a PSN of its own.
func (s *site) host(box, i int) hostOf { return hostOf{s.lab.Boxes[box].Hosts[i], 10*box + i} }

// hostOf is a host that may join, and its number.
type hostOf struct {
	*bed.Host
	n int
}

// join lets hosts join as receivers, or creates the group with the source and them. update returns
// when the whole tree has changed.
func (s *site) join(joining ...hostOf) (receivers []*softgroup.Member) {
	s.t.Helper()
	first, others := len(s.group.Members) == 0, len(s.group.Members)
	if first {
		s.group.Add(s.lab.Boxes[0].Hosts[0], softgroup.Sends, sourceQPN, sourcePSN, 0)
	}
	for _, h := range joining {
		receivers = append(receivers, s.group.Add(h.Host, softgroup.Receives, roce.QPN(100+h.n), 0, roce.PSN(5000*(h.n+1))))
	}
	s.change(first)
	s.group.Connect(s.t, s.group.Members[others:]...)
	return receivers
}

// leave lets a receiver leave.
func (s *site) leave(r *softgroup.Member) {
	s.t.Helper()
	s.group.Members = slices.DeleteFunc(s.group.Members, func(m *softgroup.Member) bool { return m == r })
	s.change(false)
}

// change creates the group on the first box, or changes it there.
func (s *site) change(create bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	root := s.set.Boxes[0].Client()
	var err error
	if create {
		_, err = root.CreateGroup(ctx, []byte(s.group.File()))
	} else {
		_, err = root.UpdateGroup(ctx, groupName, []byte(s.group.File()))
	}
	testlab.Must(s.t, err)
	boxes.Ready(s.t, groupName, s.set.Boxes[0])
}

func (s *site) state() string { return boxes.State(s.t, groupName, s.set.Boxes...) }

// round lets the source write to all receivers, as several messages; others must have something
// else in the end.
func (s *site) round(others ...*softgroup.Member) {
	s.t.Helper()
	s.roundWith(4, nil, others...)
}

// roundWith is round with so many messages. midway is called when half of them are complete.
func (s *site) roundWith(messages int, midway func(), others ...*softgroup.Member) {
	s.t.Helper()
	x := s.group.Write(s.t, s.group.Members[0], bytesEach/messages, midway)
	for _, r := range others {
		if r.HasAt(0, x.Data) {
			s.t.Errorf("%v has the data and is no receiver any more", r.IP)
		}
	}
}

// Receivers join and leave a running group: at the root, behind a box that the group reaches
// already, and behind one that it does not reach yet. The PSNs that they expect are their own.
// Hosts, links and the API between the boxes have IPv6 addresses.
func TestReceiversJoinAndLeaveARunningTree(t *testing.T) {
	s := newSiteOf(t, fabric.Router, true, 0, nil)
	s.join(s.host(0, 1))
	s.round()
	far := s.join(s.host(2, 0))[0] // makes the links to the spine and to leaf2
	s.round()
	s.round()
	farther := s.join(s.host(2, 1))[0] // behind a box that has the group
	s.round()
	s.join(s.host(1, 0))
	s.round()
	s.leave(far)
	s.round(far)
	s.leave(farther) // leaf2 has no receiver any more
	s.round(far, farther)
	if _, err := s.set.Boxes[2].Client().Group(t.Context(), groupName); err == nil {
		t.Error("leaf2 still has the group")
	}
}

// Each box restarts cleanly and by a crash between two rounds, and all receivers have all data
// after. Those that joined later keep their PSNs.
func TestEveryBoxOfATreeRestarts(t *testing.T) {
	s := newSite(t)
	s.join(s.host(0, 1), s.host(2, 0))
	s.round()
	s.join(s.host(2, 1), s.host(1, 0))
	s.round()
	for _, b := range s.set.Boxes {
		testlab.Must(t, b.Kill())
		b.StartFor(t)
		s.round()
	}
	// What was withdrawn while a box was down ends there too.
	testlab.Must(t, s.set.Boxes[2].Kill())
	if _, err := s.set.Boxes[0].Client().RemoveGroup(t.Context(), groupName); err != nil {
		t.Error(err)
	}
	for _, b := range s.set.Boxes[:2] {
		if g, err := b.Client().Groups(t.Context()); err != nil || len(g.Groups) != 0 {
			t.Errorf("%s has %+v, %v", b.Name, g.Groups, err)
		}
	}
}
