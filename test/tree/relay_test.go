package tree

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
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

func newWood(t *testing.T, quorum, loss int) *wood {
	t.Helper()
	testlab.NeedRoot(t)
	w := &wood{t: t, lab: fabric.Build(t, bed.Options{LossPerMillion: loss}, fabric.Bridge, []int{2, 0, 3}, []int{0, 1})}
	w.set = boxes.Up(t, w.lab, "near", "way", "far")
	w.group = &softgroup.Group{
		Name: "g1", IP: w.set.Boxes[0].GroupIP(), QPN: 1, Bytes: 1 << 20, State: w.state,
		Keys: fmt.Sprintf("ack: quorum %d\n", quorum),
	}
	for i, b := range w.lab.Boxes {
		for k, h := range b.Hosts {
			role := softgroup.Receives
			if i == 0 && k == 0 {
				role = softgroup.Sends
			}
			n := len(w.group.Members)
			w.group.Add(h, role, roce.QPN(100+n), roce.PSN(0xFFFFF0+n), roce.PSN(1000*n))
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
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	x, err := w.group.Send(ctx, w.group.Members[0], 16<<10, midway)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.state())
	}
	testlab.Eventually(w.t, time.Minute, "all receivers have everything", func() bool { return len(w.group.Lacking(w.group.Members[0], 0, x.Data)) <= len(out) }, w.state)
	for _, m := range w.group.Lacking(w.group.Members[0], 0, x.Data) {
		if len(out) == 0 || m != out[0] {
			w.t.Errorf("%v lacks something\n%s", m.IP, w.state())
		}
	}
}

// The quorum is one of receivers at both ends of the tree. Nobody is stranded, whether links lose
// packets or not.
func TestAQuorumStrandsNobody(t *testing.T) {
	for _, c := range []struct{ quorum, loss int }{{1, 0}, {2, 2000}} {
		t.Run(fmt.Sprintf("quorum %d, loss %d", c.quorum, c.loss), func(t *testing.T) {
			w := newWood(t, c.quorum, c.loss)
			w.writes(nil)
			w.writes(nil)
			if g := near(w); len(g.Shares) != 1 || g.Shares[0].Members != 3 || g.Shares[0].Packets == 0 {
				t.Errorf("the root shares %+v\n%s", g.Shares, w.state())
			}
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
	w := newWood(t, 3, 0)
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
	for box, name := range []string{"the root", "the middle", "the last"} {
		t.Run(name, func(t *testing.T) {
			w := newWood(t, 1, 0)
			w.writes(nil)
			w.writes(func() { w.restarts(box) })
			w.writes(nil)
		})
	}
}
