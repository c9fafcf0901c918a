package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

// site is a box of a grove: hosts that may all send, or only receive, and the box above.
type site struct {
	name  string
	hosts int
	sends bool
	above int
}

// shapes are the trees of the test. The group is created on the first box.
var shapes = map[string][]site{
	//	left ══ spine ══ right
	//	          ╚═════ leaf
	"spine": {{"left", 2, true, 0}, {"spine", 0, false, 0}, {"right", 2, true, 1}, {"leaf", 2, false, 1}},
	//	left ══ right
	//	 ╚═════ leaf
	"star": {{"left", 2, true, 0}, {"right", 2, true, 0}, {"leaf", 2, false, 0}},
	//	left ══ leaf ══ right
	"row": {{"left", 1, true, 0}, {"leaf", 1, false, 0}, {"right", 1, true, 1}},
}

// scene is what a grove is like.
type scene struct {
	shape, engine, repair string
	quorum                int // 0: all
	loss                  int // of a million RoCE packets, on every link
	bytes                 int // of a WRITE
}

func (s scene) String() string {
	return fmt.Sprintf("%s %s repair %s quorum %d loss %d of %d bytes", s.shape, s.engine, s.repair, s.quorum, s.loss, s.bytes)
}

func (s scene) keys() string {
	keys := fmt.Sprintf("engine: %s\nrepair: %s\n", s.engine, s.repair)
	if s.quorum > 0 {
		keys += fmt.Sprintf("ack: quorum %d\n", s.quorum)
	}
	return keys
}

// grove is a tree of boxes with one group over all of them.
type grove struct {
	scene
	t       *testing.T
	sites   []site
	lab     *fabric.Fabric
	set     *boxes.Set
	group   *softgroup.Group
	members []*leaf
	made    int // groups so far
}

// leaf is a member of a grove's group.
type leaf struct {
	*softgroup.Member
	box int
}

func newGrove(t *testing.T, s scene) *grove {
	t.Helper()
	g := &grove{scene: s, t: t, sites: shapes[s.shape]}
	var names []string
	var hosts, above []int
	for i, b := range g.sites {
		names, hosts = append(names, b.name), append(hosts, b.hosts)
		if i > 0 {
			above = append(above, b.above)
		}
	}
	g.lab = fabric.Build(t, bed.Options{LossPerMillion: s.loss}, fabric.Bridge, hosts, above)
	g.set = boxes.Up(t, g.lab, names...)
	g.create()
	return g
}

const each = 16 // WRITEs of a turn

func (g *grove) memory() int { return 3 * each * g.bytes }

// create makes the group anew, and connects fresh queue pairs of all hosts to it. PSNs wrap soon.
func (g *grove) create() {
	t := g.t
	t.Helper()
	root := g.set.Boxes[0]
	for _, m := range g.members {
		m.QP.Destroy()
	}
	if g.members != nil {
		_, err := root.Client().RemoveGroup(t.Context(), "g1")
		testlab.Must(t, err)
	}
	g.members = nil
	g.made++
	g.group = &softgroup.Group{Name: "g1", IP: root.GroupIP(), QPN: 1, Bytes: g.memory(), Keys: g.keys(), State: g.state}
	for i, b := range g.sites {
		for _, h := range g.lab.Boxes[i].Hosts {
			n, role := len(g.members), softgroup.Receives
			if b.sends {
				role = softgroup.Both
			}
			m := g.group.Add(h, role, roce.QPN(100*g.made+n), roce.PSN(0xFFFFF0+n), roce.PSN(1000*n))
			g.members = append(g.members, &leaf{m, i})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := root.Client().CreateGroup(ctx, []byte(g.group.File())); err != nil {
		t.Fatalf("%v\n%s", err, g.group.File())
	}
	g.ready()
	g.group.Connect(t)
}

func (g *grove) ready() {
	g.t.Helper()
	boxes.Ready(g.t, "g1", g.set.Boxes...)
}

func (g *grove) state() string { return boxes.State(g.t, "g1", g.set.Boxes...) }

// writes lets a member write to slots of the memory, several WRITEs at a time. Each WRITE that
// completes must be at all members, or at as many as the quorum says. done is called after each.
func (g *grove) writes(from *leaf, slots, times int, done func(n int)) {
	t := g.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	data := make([][]byte, times)
	at := func(n int) int { return (slots + n) * g.bytes }
	err := bed.Post(ctx, from.QP, times, func(n int) error {
		data[n] = from.New(g.bytes)
		return from.QP.PostWrite(uint64(n), data[n], rnic.Remote{VA: memoryVA + uint64(at(n)), RKey: memoryKey})
	}, func(n int) error {
		lack := g.group.Lacking(from.Member, at(n-1), data[n-1])
		if have := len(g.members) - 1 - len(lack); g.quorum == 0 && len(lack) > 0 || have < g.quorum {
			t.Errorf("WRITE %d of %v has completed, and is not at %v\n%s", n-1, from.IP, ips(lack), g.state())
		}
		copy(from.Memory[at(n-1):], data[n-1])
		if done != nil {
			done(n)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v: %v\n%s", from.IP, err, g.state())
	}
}

func ips(members []*softgroup.Member) (list []string) {
	for _, m := range members {
		list = append(list, m.IP.String())
	}
	return list
}

// Turns go from a member to one behind another box, or both want to send at once. Around that a box
// is killed, or two are, each of them in turn, and started again. What completes is at all members,
// nobody waits for ever, no box says so, and the same queue pairs go through all rounds of a grove.
//
// ROCAST_CRASHES is how many rounds are played, ROCAST_SEED the number of the first grove. With
// ROCAST_QUORUM the groves have a quorum of so many: what completes is at so many members, and a
// box that the quorum went on without is written off (docs/tree.md).
func TestBoxesOfATreeAreKilledAroundATurn(t *testing.T) {
	left, first, quorum := testlab.Setting(t, "ROCAST_CRASHES", 6), testlab.Setting(t, "ROCAST_SEED", 0), testlab.Setting(t, "ROCAST_QUORUM", 0)
	perGrove := min(10, (left+2)/3)
	for n := first; left > 0; n++ {
		r := rand.New(rand.NewPCG(uint64(n), 0))
		s := scene{
			shape: []string{"spine", "star", "row"}[r.IntN(3)], engine: []string{"auto", "afxdp"}[r.IntN(2)],
			repair: []string{"local", "off"}[r.IntN(2)], quorum: quorum,
			loss: []int{0, 0, 2000}[r.IntN(3)], bytes: []int{1500, 1500, 20_000}[r.IntN(3)],
		}
		t.Run(fmt.Sprintf("%d: %v", n, s), func(t *testing.T) {
			g := newGrove(t, s)
			for k := range min(left, perGrove) {
				if g.round(r, k); t.Failed() {
					break
				}
			}
		})
		left -= perGrove
	}
}

// crash is a box that is killed, and started again after a while.
type crash struct {
	box         int
	after, away time.Duration
}

// crashes draws what is killed in a round.
func (g *grove) crashes(r *rand.Rand, box int) []crash {
	away := func() time.Duration {
		longest := []time.Duration{1, 300 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond}[r.IntN(4)]
		return time.Duration(r.Int64N(int64(longest)))
	}
	list := []crash{{box: box, away: away()}}
	if r.IntN(3) == 0 {
		after := time.Duration(float64(time.Millisecond<<r.IntN(9)) * (1 + r.Float64()))
		list = append(list, crash{r.IntN(len(g.sites)), after, away()})
	}
	return list
}

// kill kills boxes and starts them again.
func (g *grove) kill(list []crash) error {
	for _, c := range list {
		time.Sleep(c.after) // the story: when the next box crashes
		if err := g.set.Boxes[c.box].Kill(); err != nil {
			return err
		}
		time.Sleep(c.away) // the story: for how long the box is away
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := g.set.Boxes[c.box].Start(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// round lets the turn go from one member to another, kills boxes around that, and lets a third one
// write at the end.
func (g *grove) round(r *rand.Rand, n int) {
	t := g.t
	t.Helper()
	senders := slices.DeleteFunc(slices.Clone(g.members), func(m *leaf) bool { return m.Role != softgroup.Both })
	from := senders[r.IntN(len(senders))]
	to := from
	for to.box == from.box {
		to = senders[r.IntN(len(senders))]
	}
	list := g.crashes(r, n%len(g.sites))
	kill, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		<-kill
		ended <- g.kill(list)
	}()
	moment := 1 + r.IntN(each)
	at := func(done int) {
		if done == moment {
			close(kill)
		}
	}
	var ofOld, ofNew func(int)
	begins := func() {}
	what := ""
	switch r.IntN(4) {
	case 0:
		ofOld, what = at, fmt.Sprintf("at completion %d of the old source", moment)
	case 1:
		ofNew, what = at, fmt.Sprintf("at completion %d of the new source", moment)
	default:
		d := time.Duration(float64(100*time.Microsecond<<r.IntN(7)) * (1 + r.Float64()))
		begins, what = func() { time.AfterFunc(d, func() { close(kill) }) }, fmt.Sprintf("%v after the new source began", d)
	}
	began := time.Now()
	if r.IntN(3) == 0 {
		what += ", both at once"
		var old sync.WaitGroup
		old.Go(func() { g.writes(from, 0, each, ofOld) })
		begins()
		g.writes(to, each, each, ofNew)
		old.Wait()
	} else {
		g.writes(from, 0, each, ofOld)
		time.Sleep(time.Duration(r.IntN(2) * r.IntN(2_000_000))) // drawn: how soon the turn changes
		begins()
		g.writes(to, each, each, ofNew)
	}
	testlab.Must(t, <-ended)
	next := senders[r.IntN(len(senders))]
	g.writes(next, 2*each, 3, nil)
	t.Logf("round %d: %v to %v, then %v: %+v killed %s; %v", n, from.IP, to.IP, next.IP, list, what, time.Since(began).Round(time.Millisecond))
	g.settled()
}

// settled waits until the group is ready everywhere. With a quorum it makes the group anew if a
// member lacks something.
func (g *grove) settled() {
	t := g.t
	t.Helper()
	for _, m := range g.members {
		testlab.Must(t, bed.CheckResponses(m.QP))
	}
	if g.quorum == 0 {
		g.ready()
		return
	}
	end := (2*each + 3) * g.bytes
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !slices.ContainsFunc(g.members, func(m *leaf) bool { return !m.HasAt(0, g.members[0].Memory[:end]) }) {
			return
		}
	}
	g.create()
}
