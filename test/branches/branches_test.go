package branches

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	groupName = "g1"
	groupQPN  = 1
	sourcePSN = 0xFFFFF0 // the PSNs wrap early
	pathMTU   = 1024
	memoryVA  = 0x10000
	memoryKey = 0x77
	bytesEach = 256 << 10 // of one round
	patience  = 30 * time.Second
)

// site is three boxes in a row with routers between them: leaf1 with the source and a host, spine
// with a host, leaf2 with two hosts.
type site struct {
	t         *testing.T
	set       *boxes.Set
	lab       *fabric.Fabric
	source    *endpoint.QP
	receivers []*receiver // in the group at present
	rounds    int
}

type receiver struct {
	*bed.Host
	qpn    roce.QPN
	psn    roce.PSN // that it expects when it joins
	memory []byte
}

func TestMain(m *testing.M) { boxes.Main(m) }

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOf(t, fabric.Router, false, 0, nil)
}

// newSiteOf also gives each box spare hosts, which prepare may use before the daemons start.
func newSiteOf(t *testing.T, between fabric.Between, ipv6 bool, spare int, prepare func(*site)) *site {
	t.Helper()
	testlab.NeedRoot(t)
	s := &site{t: t, lab: &fabric.Fabric{}}
	t.Cleanup(func() { s.check(s.lab.Close()) })
	for _, hosts := range []int{2, 1, 2} {
		_, err := s.lab.AddBox(bed.Options{Hosts: hosts + spare, IPv6: ipv6})
		s.check(err)
	}
	for i := range 2 {
		_, err := s.lab.Join(s.lab.Boxes[i], s.lab.Boxes[i+1], between, 1, 0)
		s.check(err)
	}
	if prepare != nil {
		prepare(s)
	}
	var err error
	s.set, err = boxes.New(s.lab, filepath.Dir(boxes.MustProgram(t)), "leaf1", "spine", "leaf2")
	s.check(err)
	t.Cleanup(func() { s.check(s.set.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, b := range s.set.Boxes {
		s.check(b.Start(ctx))
	}
	return s
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// host returns a receiver on host i of a box. It expects a PSN of its own.
func (s *site) host(box, i int) *receiver {
	n := 10*box + i
	return &receiver{Host: s.lab.Boxes[box].Hosts[i], qpn: roce.QPN(100 + n), psn: roce.PSN(5000 * (n + 1)), memory: make([]byte, bytesEach)}
}

func (s *site) file() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\nmembers:\n",
		groupName, s.lab.Boxes[0].GroupIP(), groupQPN, pathMTU, memoryVA, bytesEach, memoryKey)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: 17, psn: %d, role: source}\n", s.lab.Boxes[0].Hosts[0].IP, sourcePSN)
	for _, r := range s.receivers {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: %d, regions: {va: 0, length: %d, rkey: 7}}\n", r.IP, r.qpn, r.psn, bytesEach)
	}
	return []byte(b.String())
}

// join lets receivers join, or creates the group with them. update returns when the whole tree has
// changed.
func (s *site) join(joining ...*receiver) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	s.receivers = append(s.receivers, joining...)
	first := s.source == nil
	s.change(ctx, first)
	for _, r := range joining {
		s.check(r.RNIC.Register(rnic.Region{VA: 0, RKey: 7, Access: rnic.RemoteWrite, Bytes: r.memory}))
		qp, err := r.RNIC.NewQP(patient(r.qpn, 0))
		s.check(err)
		s.check(qp.Connect(ctx, endpoint.Peer{IP: s.lab.Boxes[0].GroupIP(), QPN: groupQPN, PSN: r.psn}))
	}
	if first {
		var err error
		s.source, err = s.lab.Boxes[0].Hosts[0].RNIC.NewQP(patient(17, sourcePSN))
		s.check(err)
		s.check(s.source.Connect(ctx, endpoint.Peer{IP: s.lab.Boxes[0].GroupIP(), QPN: groupQPN, PSN: 0}))
	}
}

// patient is a queue pair that waits a second for an answer, seven times: longer than a box takes
// to come back on a machine that is busy.
func patient(qpn roce.QPN, psn roce.PSN) rnic.Config {
	c := bed.QP(qpn, psn, pathMTU)
	c.Timeout, c.RetryCount = 18, 6
	return c
}

// leave lets a receiver leave.
func (s *site) leave(r *receiver) {
	s.t.Helper()
	for i := range s.receivers {
		if s.receivers[i] == r {
			s.receivers = append(s.receivers[:i:i], s.receivers[i+1:]...)
			break
		}
	}
	s.change(s.t.Context(), false)
}

func (s *site) change(ctx context.Context, create bool) {
	s.t.Helper()
	root := s.set.Boxes[0].Client()
	var err error
	if create {
		_, err = root.CreateGroup(ctx, s.file())
	} else {
		_, err = root.UpdateGroup(ctx, groupName, s.file())
	}
	s.check(err)
	testlab.Eventually(s.t, patience, "the whole tree is ready", func() bool {
		g, err := root.Group(ctx, groupName)
		return err == nil && g.State == api.Ready
	}, s.state)
}

func (s *site) state() string {
	var b strings.Builder
	for _, box := range s.set.Boxes {
		g, err := box.Client().Group(s.t.Context(), groupName)
		fmt.Fprintf(&b, "%s: %v %s %s, members %+v, counters %v\n%s\n", box.Name, err, g.State, g.Reason, g.Members, g.Counters, box.Log())
	}
	return b.String()
}

// round writes the group's memory with new data, as several messages, and checks that all receivers
// have it, and that others have something else.
func (s *site) round(others ...*receiver) {
	s.t.Helper()
	s.roundWith(4, nil, others...)
}

// roundWith is round with so many messages. midway is called when half of them are complete.
func (s *site) roundWith(messages int, midway func(), others ...*receiver) {
	s.t.Helper()
	s.rounds++
	data := bed.Random(bytesEach, byte(s.rounds))
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, err := bed.Write(ctx, s.source, rnic.Remote{VA: memoryVA, RKey: memoryKey}, data, bytesEach/messages, midway)
	if err != nil {
		s.t.Fatalf("round %d: %v\n%s", s.rounds, err, s.state())
	}
	for _, r := range s.receivers {
		if err := r.CheckReceived(r.memory, data); err != nil {
			s.t.Errorf("round %d: %v", s.rounds, err)
		}
	}
	for _, r := range others {
		if r.Has(r.memory, data) {
			s.t.Errorf("round %d: %v has the data and is no receiver any more", s.rounds, r.IP)
		}
	}
	if err := bed.CheckResponses(s.source); err != nil {
		s.t.Errorf("round %d: %v", s.rounds, err)
	}
}

// Receivers join and leave a running group: at the root, behind a box that the group reaches
// already, and behind one that it does not reach yet. The PSNs that they expect are their own.
// Hosts, links and the API between the boxes have IPv6 addresses.
func TestReceiversJoinAndLeaveARunningTree(t *testing.T) {
	s := newSiteOf(t, fabric.Router, true, 0, nil)
	near, middle, far, farther := s.host(0, 1), s.host(1, 0), s.host(2, 0), s.host(2, 1)
	s.join(near)
	s.round()
	s.join(far) // makes the links to the spine and to leaf2
	s.round()
	s.round()
	s.join(farther) // behind a box that has the group
	s.round()
	s.join(middle)
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
		s.check(b.Kill())
		s.check(b.Start(t.Context()))
		s.round()
	}
	// What was withdrawn while a box was down ends there too.
	s.check(s.set.Boxes[2].Kill())
	if _, err := s.set.Boxes[0].Client().RemoveGroup(t.Context(), groupName); err != nil {
		t.Error(err)
	}
	for _, b := range s.set.Boxes[:2] {
		if g, err := b.Client().Groups(t.Context()); err != nil || len(g.Groups) != 0 {
			t.Errorf("%s has %+v, %v", b.Name, g.Groups, err)
		}
	}
}
