package tree

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

// wood is a tree of boxes that set up a group by themselves. The root has the source and a
// receiver. Behind a box without hosts is one with three receivers.
type wood struct {
	t     *testing.T
	lab   *fabric.Fabric
	set   *boxes.Set
	group *softgroup.Group
}

// newWood makes the tree and its group, with more lines of the group file. Members at the root that
// are to may send beside the source.
func newWood(t *testing.T, quorum, loss int, role softgroup.Role, keys string) *wood {
	t.Helper()
	testlab.NeedRoot(t)
	w := &wood{t: t, lab: fabric.Build(t, bed.Options{LossPerMillion: loss}, fabric.Bridge, []int{2, 0, 3}, []int{0, 1})}
	w.set = boxes.Up(t, w.lab, "near", "way", "far")
	w.group = &softgroup.Group{
		Name: "g1", IP: w.set.Boxes[0].GroupIP(), QPN: 1, Bytes: 1 << 20, State: w.state,
		Keys: fmt.Sprintf("ack: quorum %d\n%s", quorum, keys),
	}
	for i, b := range w.lab.Boxes {
		for k, h := range b.Hosts {
			does := softgroup.Receives
			if i == 0 && (k == 0 || role == softgroup.Both) {
				does = role
			}
			n := len(w.group.Members)
			w.group.Add(h, does, roce.QPN(100+n), roce.PSN(0xFFFFF0+n), roce.PSN(1000*n))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := w.set.Boxes[0].Client().CreateGroup(ctx, []byte(w.group.File())); err != nil {
		t.Fatalf("%v\n%s", err, w.group.File())
	}
	boxes.Ready(t, "g1", w.set.Boxes...)
	w.group.Connect(t)
	return w
}

func (w *wood) state() string { return boxes.State(w.t, "g1", w.set.Boxes...) }

// writes lets the source write, and waits until all receivers but those that are out have it all.
func (w *wood) writes(midway func(), out ...*softgroup.Member) {
	w.t.Helper()
	w.writesFrom(w.group.Members[0], midway, out...)
}

func (w *wood) writesFrom(from *softgroup.Member, midway func(), out ...*softgroup.Member) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	x, err := w.group.Send(ctx, from, 16<<10, midway)
	if err != nil {
		w.t.Fatalf("from %v: %v\n%s", from.IP, err, w.state())
	}
	testlab.Eventually(w.t, time.Minute, "all receivers have everything", func() bool { return len(w.group.Lacking(from, 0, x.Data)) <= len(out) }, w.state)
	for _, m := range w.group.Lacking(from, 0, x.Data) {
		if len(out) == 0 || m != out[0] {
			w.t.Errorf("%v lacks something that %v has written\n%s", m.IP, from.IP, w.state())
		}
	}
	testlab.Must(w.t, bed.CheckResponses(from.QP))
}

// relays expects that the root has one copy for the receivers behind its link, so the boxes there
// pass frames on.
func (w *wood) relays(receivers int) {
	w.t.Helper()
	if g := near(w); len(g.Shares) != 1 || g.Shares[0].Members != receivers || g.Shares[0].Packets == 0 {
		w.t.Errorf("the root shares %+v\n%s", g.Shares, w.state())
	}
}

// updates gives the root the group file of the present members.
func (w *wood) updates() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if _, err := w.set.Boxes[0].Client().UpdateGroup(ctx, "g1", []byte(w.group.File())); err != nil {
		w.t.Fatalf("%v\n%s\n%s", err, w.group.File(), w.state())
	}
}

// The quorum is one of receivers at both ends of the tree. Nobody is stranded, whether links lose
// packets or not.
func TestAQuorumStrandsNobody(t *testing.T) {
	for _, c := range []struct{ quorum, loss int }{{1, 0}, {2, 2000}} {
		t.Run(fmt.Sprintf("quorum %d, loss %d", c.quorum, c.loss), func(t *testing.T) {
			w := newWood(t, c.quorum, c.loss, softgroup.Sends, "")
			w.writes(nil)
			w.writes(nil)
			w.relays(3)
		})
	}
}

func near(w *wood) (g api.Group) {
	g, err := w.set.Boxes[0].Client().Group(w.t.Context(), "g1")
	testlab.Must(w.t, err)
	return g
}

// A dead receiver behind a link is its own affair. The two beside it and the near one are enough.
func TestADeadReceiverBehindALink(t *testing.T) {
	w := newWood(t, 3, 0, softgroup.Sends, "")
	dead := w.group.Members[3]
	w.writes(nil)
	w.writes(func() { dead.QP.Destroy() }, dead)
	w.writes(nil, dead)
}

// restarts ends the daemon of a box without a warning, and starts it again.
func (w *wood) restarts(box int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	testlab.Must(w.t, w.set.Boxes[box].Kill())
	testlab.Must(w.t, w.set.Boxes[box].Start(ctx))
}

// A box is killed in mid-transfer. The near receiver is enough, so the source has sent everything
// and is idle when the box is back, and repair has given up whom it did not reach. They are asked,
// and repaired.
func TestABoxOfAQuorumIsKilled(t *testing.T) {
	for box, name := range map[int]string{1: "the middle", 2: "the last"} {
		t.Run(name, func(t *testing.T) {
			w := newWood(t, 1, 0, softgroup.Sends, "")
			w.writes(nil)
			w.writes(func() { w.restarts(box) })
			w.writes(nil)
		})
	}
}

// The root is killed in mid-transfer. The near receiver is enough, so the source may no longer have
// what the far ones lack, and what the root retained for them has ended with it. Each of them has
// everything, or the root says that it is behind. The source goes on with those that have it.
func TestTheRootOfAQuorumIsKilled(t *testing.T) {
	w := newWood(t, 1, 0, softgroup.Sends, "")
	w.writes(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	source, nearest := w.group.Members[0], w.group.Members[1]
	for _, midway := range []func(){func() { w.restarts(0) }, nil} {
		x, err := w.group.Send(ctx, source, 16<<10, midway)
		if err != nil {
			t.Fatalf("%v\n%s", err, w.state())
		}
		testlab.Eventually(t, time.Minute, "each receiver has everything or is behind", func() bool {
			lacking, behind := w.group.Lacking(source, 0, x.Data), w.behind()
			return !slices.ContainsFunc(lacking, func(m *softgroup.Member) bool { return !slices.Contains(behind, m) })
		}, w.state)
	}
	if slices.Contains(w.behind(), nearest) {
		t.Errorf("the receiver whose ACKs the source has got is behind\n%s", w.state())
	}
	testlab.Must(t, bed.CheckResponses(source.QP))
}

// behind is the receivers of which the root says that they are behind.
func (w *wood) behind() []*softgroup.Member {
	g := near(w)
	return slices.DeleteFunc(slices.Clone(w.group.Members), func(m *softgroup.Member) bool {
		return !slices.ContainsFunc(g.Members, func(a api.Member) bool {
			return a.IP == m.IP.String() && a.Part == feedback.PartBehind.String()
		})
	})
}

// A replica behind a link fences the leader: it takes its memory away, and refuses the WRITE that
// is on its way. With on-fatal: evict it alone is out, and gets nothing more. It comes back with a
// fresh queue pair, and has all that is written from then on.
func TestAFencedReplicaBehindALinkReturns(t *testing.T) {
	w := newWood(t, 3, 0, softgroup.Sends, "on-fatal: evict\n")
	w.writes(nil)
	w.relays(3)
	fenced := w.group.Members[3]
	w.writes(func() { fenced.RNIC.Deregister(fenced.RKey) }, fenced)
	had := bytes.Clone(fenced.Memory)
	w.writes(nil, fenced)
	if !bytes.Equal(fenced.Memory, had) {
		t.Error("the replica has got something since it fenced the leader")
	}
	fenced.QP.Destroy()
	w.group.Members = slices.Delete(w.group.Members, 3, 4)
	w.updates()
	w.writes(nil)
	back := w.group.Add(fenced.Host, softgroup.Receives, 200, 0xFFFFFF, 77)
	w.group.Connect(t, back)
	w.updates()
	w.writes(nil, back) // it joins with the next message, so it may lack the first ones
	w.writes(nil)
}

// So many replicas fence the leader that the others are no quorum. The leader hears that, wherever
// they are.
func TestAMajorityFencesTheLeader(t *testing.T) {
	w := newWood(t, 3, 0, softgroup.Sends, "on-fatal: evict\n")
	w.writes(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, m := range w.group.Members[1:4] { // one at the root, and two behind the link
		m.RNIC.Deregister(m.RKey)
	}
	if _, err := w.group.Send(ctx, w.group.Members[0], 16<<10, nil); err == nil || !strings.Contains(err.Error(), rnic.RemoteAccess.String()) {
		t.Errorf("the leader hears %v\n%s", err, w.state())
	}
}

// The leader changes at the root, there and back, while the replicas behind the link are served by
// a box that only passes frames on. That box, and then the root, is killed between two turns.
func TestTheLeaderOfAQuorumChanges(t *testing.T) {
	w := newWood(t, 3, 0, softgroup.Both, "")
	first, second := w.group.Members[0], w.group.Members[1]
	w.writesFrom(first, nil)
	w.relays(3)
	w.writesFrom(second, nil)
	w.restarts(1)
	w.writesFrom(first, nil)
	w.restarts(0)
	w.writesFrom(second, nil)
	w.writesFrom(first, func() { w.restarts(2) })
	for _, m := range w.group.Members[2:] {
		if c := m.QP.Counters(); c.Get(rnic.RequestsExecuted) != 5<<10 {
			t.Errorf("%v has executed %d packets of %d\n%s", m.IP, c.Get(rnic.RequestsExecuted), 5<<10, w.state())
		}
	}
}
