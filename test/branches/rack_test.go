package branches

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/softgroup"
)

const (
	rackBytes   = 4 << 20
	rackPackets = rackBytes / softgroup.PathMTU
)

// racks is a root with the source, and three boxes behind one switch that snoops, each with two
// receivers. The root has one port to the switch.
type racks struct{ *site }

// newRacks lets those racks be edges of the root that isEdge names.
func newRacks(t *testing.T, lossPerMillion int, isEdge ...string) racks {
	t.Helper()
	boxes.NeedProgram(t)
	s := &site{t: t}
	s.lab = fabric.Build(t, bed.Options{LossPerMillion: lossPerMillion}, fabric.Segment, []int{1, 2, 2, 2}, []int{0, 0, 0})
	testlab.Must(t, edges.Snoop(s.lab.Links[0].Middle(), "br0"))
	s.group = newGroup(s.lab.Boxes[0].GroupIP(), rackBytes)
	s.group.State = s.state
	s.set = boxes.UpWith(t, s.lab, func(b *boxes.Box, config string) string {
		if b.Name == "root" {
			return config + "edges: {addresses: [239.77.0.0/28]}\n"
		}
		for _, name := range isEdge {
			if name == b.Name {
				return strings.Replace(config, "{name: root,", "{name: root, edge: true,", 1)
			}
		}
		return config
	}, "root", "rack1", "rack2", "rack3")
	var receivers []hostOf
	for box := 1; box <= 3; box++ {
		receivers = append(receivers, s.host(box, 0), s.host(box, 1))
	}
	s.join(receivers...)
	return racks{s}
}

func (r racks) root() api.Group { return r.at(0) }

// at is the group as a box shows it.
func (r racks) at(box int) api.Group {
	g, err := r.set.Boxes[box].Client().Group(r.t.Context(), groupName)
	testlab.Must(r.t, err)
	return g
}

// sharing waits until that many racks share the root's copies.
func (r racks) sharing(n int) {
	r.t.Helper()
	testlab.Eventually(r.t, patience, fmt.Sprint(n, " racks share"), func() bool {
		legs := r.root().Shares
		return n == 0 && len(legs) == 0 || len(legs) == 1 && legs[0].Working == n
	}, func() string { return fmt.Sprintf("%+v\n%s", r.root().Shares, r.state()) })
}

// left is what has left the root: by the shared leg, and in all beside repairs and what the source
// has sent again. A repair by the shared leg counts for each rack that has asked for it, and is one
// packet: the others are among the copies that the leg has saved, beside two of each new packet.
func (r racks) left() (shared, all uint64) {
	r.t.Helper()
	g := r.root()
	var stoodFor uint64 // repairs for which a shared one stood
	for _, s := range g.Shares {
		shared += s.Packets
		stoodFor += s.Saved - min(s.Saved, 2*s.Packets)
	}
	down, _, err := r.lab.Links[0].Near.Passed()
	testlab.Must(r.t, err)
	again := 3 * g.Counters["resent"]
	for _, m := range g.Members {
		if m.Repair != nil {
			again += m.Repair.Repaired
		}
	}
	again -= min(again, stoodFor)
	return shared, down - min(down, again)
}

func (r racks) write(midway func()) {
	r.t.Helper()
	r.group.Write(r.t, r.group.Members[0], 64<<10, midway)
}

// The root sends a packet once for three racks, where packets are lost everywhere. Each rack says
// why its kernel does not carry the group.
func TestRacksShareACopy(t *testing.T) {
	r := newRacks(t, 1000, "rack1", "rack2", "rack3")
	r.sharing(3)
	var shared, all uint64
	testlab.Eventually(t, 4*patience, "nearly all packets are shared", func() bool {
		sharedBefore, allBefore := r.left()
		r.write(nil)
		shared, all = r.left()
		shared, all = shared-sharedBefore, all-allBefore
		t.Logf("%d packets of the source: %d shared, %d in all beside repairs", rackPackets, shared, all)
		return shared >= rackPackets*95/100 && all <= rackPackets*105/100
	}, func() string {
		return fmt.Sprintf("%d packets of the source: %d shared, %d in all\n%s", rackPackets, shared, all, r.state())
	})
	testlab.Eventually(t, patience, "racks say why their kernels carry nothing", func() bool {
		for box := 1; box <= 3; box++ {
			if e := r.at(box).Engine; e.Carried != 0 || !strings.HasPrefix(e.Reason, "the box above shares its copies") {
				r.write(nil)
				return false
			}
		}
		return true
	}, r.state)
}

// A rack is killed in the middle of a transfer, and started again. All receivers have all of the
// data, and all racks share again.
func TestARackIsKilled(t *testing.T) {
	r := newRacks(t, 0, "rack1", "rack2", "rack3")
	r.sharing(3)
	r.write(func() {
		testlab.Must(t, r.set.Boxes[2].Kill())
		r.set.Boxes[2].StartFor(t)
	})
	r.sharing(3)
	before, _ := r.left()
	r.write(nil)
	if after, _ := r.left(); after == before {
		t.Errorf("nothing is shared; %+v", r.root().Shares)
	}
}

// A rack that does not ask, as one of an older release, gets copies of its own beside those that
// the others share.
func TestARackThatDoesNotAsk(t *testing.T) {
	r := newRacks(t, 0, "rack1", "rack3")
	r.sharing(2)
	r.write(nil)
	if shared, _ := r.left(); shared == 0 {
		t.Error("nothing is shared")
	}
	own := 0
	for _, m := range r.root().Members {
		if m.Copies == "own: its box has not asked for what several boxes share" {
			own++
		}
	}
	if own != 1 {
		t.Errorf("%d racks have copies of their own: %+v", own, r.root().Members)
	}
}
