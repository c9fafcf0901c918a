package dataplane_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

var (
	forests = flag.Int("forests", 60, "how many trees of boxes TestMembersOfATreeSendAtOnce draws")
	forest  = flag.Uint64("forest", 0, "the seed of the first one")
)

// wood is a tree of boxes, each with hosts that may all send. Time passes as the test lets it.
type wood struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Duration
	trees   []*tree
	hosts   []*guest
	timeout uint8                 // of the queue pairs; 0: as perftest has it
	most    int                   // bytes of a message
	quorum  int                   // 0: all
	ended   bool                  // a source, because the quorum has too few receivers left
	loss    int                   // of a thousand frames on a link between boxes
	cut     func(from *tree) bool // whether a frame of a box to another one is lost; nil: see loss
	flying  []flight              // on the links between boxes
	slots   int
	moved   bool
}

// tree is a box of a wood. Its ports lead to its hosts, then to other boxes.
type tree struct {
	w      *wood
	net    *porttest.Net
	engine bool
	group  *mft.Group
	hosts  []*guest
	links  []edge
	stored *mft.Turn
	out    []mft.Part    // who was behind or gone when control last stored that
	asked  time.Duration // when control asks for the turn that a member waits for; 0: nobody waits
	down   time.Duration // until when the box is away
}

// edge leads to another box, and is a port there.
type edge struct {
	to   *tree
	port int
}

// flight is a frame on the way to another box.
type flight struct {
	edge
	frame []byte
}

// guest is a host of a wood with its queue pair.
type guest struct {
	qp     *rnic.QP
	memory []byte
	posts  []time.Duration // when the next messages are posted
	slots  []int           // where those go that are posted
	data   [][]byte
	done   int
	dead   bool
}

const (
	slotBytes = 3000
	woodVA    = 0x1000
	woodKey   = 7
)

// newWood draws a tree of boxes with one group.
func newWood(t *testing.T, seed uint64, keys func(*feedback.Policy)) *wood {
	w := plantWood(t, seed, keys)
	w.begin()
	return w
}

// plantWood does so, and lets the test begin the boxes.
func plantWood(t *testing.T, seed uint64, keys func(*feedback.Policy)) *wood {
	w := &wood{t: t, rng: rand.New(rand.NewPCG(seed, 5))}
	parents := make([]int, 2+w.rng.IntN(3))
	for b := range parents {
		x := &tree{w: w, engine: w.rng.IntN(2) == 0, group: &mft.Group{
			Name: "g", IP: ipGroup, QPN: groupQPN, PathMTU: 1024, KeepsTurns: true,
		}}
		keys(&x.group.Policy)
		w.trees = append(w.trees, x)
		for i := range 1 + w.rng.IntN(2) {
			w.house(x, netip.AddrFrom4([4]byte{10, 1, byte(b), byte(i + 1)}), roce.QPN(16+i))
		}
		if b > 0 {
			parents[b] = w.rng.IntN(b)
			w.join(w.trees[parents[b]], x, b)
		}
	}
	return w
}

// begin starts all boxes. The first host of the first box is the first source.
func (w *wood) begin() {
	first := &w.trees[0].group.Paths[0]
	w.trees[0].group.Source = mft.Source{Leg: first.Leg, RemoteQPN: groupQPN, FirstPSN: first.SendPSN}
	for _, x := range w.trees {
		x.begin()
	}
}

func woodMAC(ip netip.Addr) roce.MAC {
	b := ip.As4()
	return roce.MAC{2, 0, b[0], b[1], b[2], b[3]}
}

// path is a member of the group of a box, by its next port.
func (x *tree) path(ip, own netip.Addr, qpn, remote roce.QPN) mft.Path {
	l := mft.Leg{Port: mft.PortID(len(x.hosts) + len(x.links)), Src: own, Dst: ip, DestQPN: qpn}
	l.L2Bytes = uint8(copy(l.L2[:], roce.AppendEthernet(nil, woodMAC(ip), macBox, 0x0800)))
	return mft.Path{Leg: l, RemoteQPN: remote, Sends: true}
}

// house gives a box a host.
func (w *wood) house(x *tree, ip netip.Addr, qpn roce.QPN) {
	p := x.path(ip, ipGroup, qpn, groupQPN)
	p.FirstPSN, p.SendPSN = roce.PSN(w.rng.IntN(1<<24)), roce.PSN(w.rng.IntN(1<<24))
	x.group.Paths = append(x.group.Paths, p)
	h := &guest{memory: make([]byte, 1<<18)}
	c := rnic.Defaults()
	c.MAC, c.IP, c.QPN, c.SendPSN, c.AsRXE = woodMAC(ip), ip, qpn, p.SendPSN, true
	if w.timeout > 0 {
		c.Timeout = w.timeout
	}
	regions := &rnic.Memory{}
	if err := regions.Register(rnic.Region{VA: woodVA, RKey: woodKey, Access: rnic.RemoteWrite, Bytes: h.memory}); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if h.qp, err = rnic.NewQP(c, regions); err == nil {
		err = h.qp.Connect(rnic.Peer{MAC: macBox, IP: ipGroup, QPN: groupQPN, PSN: p.FirstPSN})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	x.hosts, w.hosts = append(x.hosts, h), append(w.hosts, h)
}

// join lets two boxes be members of each other's groups.
func (w *wood) join(up, down *tree, n int) {
	upIP, downIP := netip.AddrFrom4([4]byte{10, 2, byte(n), 1}), netip.AddrFrom4([4]byte{10, 2, byte(n), 2})
	upSends, downSends := roce.PSN(w.rng.IntN(1<<24)), roce.PSN(w.rng.IntN(1<<24))
	upPath, downPath := up.path(downIP, upIP, roce.QPN(0x600+n), roce.QPN(0x500+n)), down.path(upIP, downIP, roce.QPN(0x500+n), roce.QPN(0x600+n))
	upPath.Box, upPath.FirstPSN, upPath.SendPSN = mft.BoxBelow, upSends, downSends
	downPath.Box, downPath.FirstPSN, downPath.SendPSN = mft.BoxAbove, downSends, upSends
	down.group.Source = mft.Source{Leg: downPath.Leg, RemoteQPN: downPath.RemoteQPN, FirstPSN: upSends}
	up.group.Paths, down.group.Paths = append(up.group.Paths, upPath), append(down.group.Paths, downPath)
	upPort, downPort := len(up.hosts)+len(up.links), len(down.hosts)+len(down.links)
	up.links, down.links = append(up.links, edge{down, downPort}), append(down.links, edge{up, upPort})
}

// begin starts a box with what it has stored.
func (x *tree) begin() {
	var engine *porttest.FanOut
	if x.engine {
		engine = porttest.NewFanOut()
	}
	next := *x.group
	next.Restored, next.Turn, next.Parts = x.net != nil, x.stored, x.out
	x.net = porttest.NewRetaining(len(x.hosts)+len(x.links), porttest.RepairChunks, engine, func() feedback.Tick { return feedback.Tick(x.w.now) })
	if _, err := x.net.Switch.Add(&next); err != nil {
		x.w.t.Fatal(err)
	}
	x.group, x.asked = &next, 0
}

// crash ends a box; it begins again later.
func (x *tree) crash(away time.Duration) { x.down = x.w.now + away }

// step lets every host and box do something.
func (w *wood) step() {
	for _, f := range w.flying {
		f.to.net.Ports[f.port].Put(f.frame)
	}
	w.moved, w.flying = false, w.flying[:0]
	for _, x := range w.trees {
		for i, h := range x.hosts {
			h.act(w, x.net.Ports[i])
		}
		x.act()
	}
	if w.now += 10 * time.Microsecond; !w.moved {
		w.now += 500 * time.Microsecond
	}
}

func (h *guest) act(w *wood, port *porttest.Port) {
	if h.dead {
		return
	}
	var buf [rnic.MaxFrameBytes]byte
	for len(h.posts) > 0 && w.now >= h.posts[0] {
		h.posts = h.posts[1:]
		data := make([]byte, 1+w.rng.IntN(w.most))
		for i := range data {
			data[i] = byte(w.rng.Uint32())
		}
		h.data, h.slots = append(h.data, data), append(h.slots, w.slots)
		if err := h.qp.PostWrite(uint64(len(h.data)), data, rnic.Remote{VA: woodVA + uint64(w.slots*slotBytes), RKey: woodKey}); err != nil {
			w.t.Fatal(err)
		}
		w.slots++
	}
	if at := h.qp.NextDeadline(); at <= w.now {
		h.qp.Tick(w.now)
	}
	for range 1 + w.rng.IntN(4) {
		f := h.qp.Transmit(w.now, buf[:])
		if f == nil {
			break
		}
		port.Put(f)
		w.moved = true
	}
	for {
		c, ok := h.qp.Poll()
		if !ok {
			return
		}
		if c.Status == rnic.RemoteOperational && w.short() {
			w.ended = true
			return
		}
		if c.Status != rnic.Success {
			w.t.Fatalf("at %v: a WRITE ended with %v\n%s", w.now, c.Status, w.state())
		}
		at, data := h.slots[h.done]*slotBytes, h.data[h.done]
		h.done++
		have := 0
		for i, other := range w.hosts {
			switch has := bytes.Equal(other.memory[at:][:len(data)], data); {
			case other == h:
			case has:
				have++
			case w.quorum == 0:
				w.t.Fatalf("at %v: a WRITE has completed, and host %d lacks it\n%s", w.now, i, w.state())
			}
		}
		if have < w.quorum {
			w.t.Fatalf("at %v: a WRITE of host %d has completed, and %d others have it\n%s", w.now, slices.Index(w.hosts, h), have, w.state())
		}
	}
}

// store stores who is behind or gone, for good.
func (x *tree) store() {
	g, _ := x.net.Switch.GroupState(x.group.ID)
	for i := range g.Paths {
		out := mft.Part{QP: x.group.Paths[i].QP(), Part: g.Paths[i].Part}
		if isOut := out.Part == feedback.PartBehind || out.Part == feedback.PartGone && out.QP != g.Source; isOut && !slices.Contains(x.out, out) {
			x.out = append(x.out, out)
		}
	}
}

// act lets a box, and what is control there, handle what has come.
func (x *tree) act() {
	w := x.w
	if x.down > 0 {
		if w.now < x.down {
			for _, p := range x.net.Ports { // the old one hears nothing any more
				p.Take()
			}
			x.net = porttest.New(len(x.net.Ports))
			return
		}
		x.down = 0
		x.begin()
	}
	x.net.Poll()
	for waits := true; waits; {
		select {
		case n := <-x.net.Switch.Notes():
			if n.What == feedback.NoteWaits && x.asked == 0 {
				x.asked = w.now + time.Duration(w.rng.IntN(3_000_000))
			}
		default:
			waits = false
		}
	}
	if x.asked > 0 && w.now >= x.asked {
		x.asked = 0
		if turn, ok := x.net.Switch.NextTurn(x.group.ID); ok {
			stored := w.rng.IntN(8) > 0 // else the source before goes on
			if stored {
				x.stored = &turn
				x.store()
			}
			x.net.Switch.BeginTurn(x.group.ID, stored)
		}
	}
	var buf [rnic.MaxFrameBytes]byte
	for i, p := range x.net.Ports {
		for _, f := range p.Take() {
			w.moved = true
			if i < len(x.hosts) && x.hosts[i].dead {
				continue
			}
			if i < len(x.hosts) {
				if reply := x.hosts[i].qp.Receive(w.now, f, buf[:]); reply != nil {
					p.Put(reply)
				}
			} else if e := x.links[i-len(x.hosts)]; w.rng.IntN(1000) >= w.loss && (w.cut == nil || !w.cut(x)) {
				w.flying = append(w.flying, flight{e, f})
			}
		}
	}
}

// short reports whether the first box has too few receivers left for the quorum.
func (w *wood) short() bool {
	x, left := w.trees[0], 0
	g, _ := x.net.Switch.GroupState(x.group.ID)
	for i := range g.Paths {
		switch p := &x.group.Paths[i]; {
		case p.QP() == g.Source:
			left += x.group.Weight(i) - 1
		case g.Paths[i].Part == feedback.PartActive || g.Paths[i].Part == feedback.PartUnknown:
			left += x.group.Weight(i)
		}
	}
	return left < w.quorum
}

// done reports whether all messages have completed, or a source has ended.
func (w *wood) done() bool {
	if w.ended {
		return true
	}
	for _, h := range w.hosts {
		if len(h.posts) > 0 || h.done < len(h.data) {
			return false
		}
	}
	return true
}

func (w *wood) state() (s string) {
	for i, x := range w.trees {
		s += fmt.Sprintf("box %d: %+v, counters %v\n", i, x.group.Paths[0].Dst, moved(x.net.Switch))
		if g, ok := x.net.Switch.GroupState(x.group.ID); ok {
			s += fmt.Sprintf("  %+v\n", g)
		}
		for k := range x.group.Paths {
			s += fmt.Sprintf("  path %d to %v by %d\n", k, x.group.Paths[k].Dst, x.group.Paths[k].Port)
		}
	}
	for i, h := range w.hosts {
		s += fmt.Sprintf("host %d: %d of %d\n", i, h.done, len(h.data))
	}
	return s
}

// newTwo is two boxes with a host each.
func newTwo(t *testing.T, timeout uint8) *wood {
	w := &wood{t: t, rng: rand.New(rand.NewPCG(1, 5)), timeout: timeout, most: 100}
	for b := range 2 {
		x := &tree{w: w, group: &mft.Group{Name: "g", IP: ipGroup, QPN: groupQPN, PathMTU: 1024, KeepsTurns: true}}
		w.trees = append(w.trees, x)
		w.house(x, netip.AddrFrom4([4]byte{10, 1, byte(b), 1}), 16)
	}
	w.join(w.trees[0], w.trees[1], 1)
	w.begin()
	return w
}

// until lets time pass until all messages have completed.
func (w *wood) until(bound time.Duration) {
	w.t.Helper()
	for !w.done() {
		if w.step(); w.now > bound {
			w.t.Fatalf("not all is sent after %v\n%s", w.now, w.state())
		}
	}
}

// A request for the turn is lost. It is repeated before the member sends its packet again.
func TestALostRequestForATurn(t *testing.T) {
	w := newTwo(t, 20) // longer than the test takes
	lost := 0
	w.cut = func(from *tree) bool {
		if from == w.trees[1] && lost == 0 {
			lost++
			return true
		}
		return false
	}
	w.hosts[1].posts = []time.Duration{0}
	w.until(time.Second)
	if lost == 0 {
		t.Error("no request was lost")
	}
}

// A box has yielded, and the other one has not heard it. Then members of both boxes wait, and each
// box requests the turn of the other one, at any time. Exactly one request counts, before the
// members give up.
func TestTwoRequestsForATurnCross(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and one thread does everything; it runs without -short")
	}
	for at := 10 * time.Millisecond; at < 20*time.Millisecond; at += 100 * time.Microsecond {
		w := newTwo(t, 14)
		w.hosts[0].posts, w.hosts[1].posts = []time.Duration{at}, []time.Duration{0}
		w.cut = func(from *tree) bool { return from == w.trees[0] && w.now < 25*time.Millisecond }
		w.until(500 * time.Millisecond)
	}
}

// Members at different boxes want to send at the same time, packets between boxes are lost, and
// boxes crash. Every message completes, and everybody has it then.
func TestMembersOfATreeSendAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and one thread does everything; it runs without -short")
	}
	for n := range uint64(*forests) {
		seed := *forest + n
		w := newWood(t, seed, func(p *feedback.Policy) {
			if seed%2 == 0 {
				p.Repair = feedback.RepairLocal
			}
		})
		w.storm(seed)
	}
}

// storm lets members send at any time, and boxes crash meanwhile.
func (w *wood) storm(seed uint64) {
	t := w.t
	t.Helper()
	if w.rng.IntN(2) == 0 {
		w.loss = w.rng.IntN(50)
	}
	last := time.Duration(0)
	crashes := w.rng.IntN(2) * w.rng.IntN(4)
	if w.most = slotBytes; crashes > 0 {
		w.most = 1024 // a crash inside a message of a source that then waits may end queue pairs
	}
	for _, h := range w.hosts {
		at := time.Duration(w.rng.IntN(20_000_000))
		for range w.rng.IntN(6) {
			h.posts = append(h.posts, at)
			if w.rng.IntN(2) == 0 {
				at += time.Duration(w.rng.IntN(30_000_000))
			}
		}
		last = max(last, at)
	}
	crash := make([]time.Duration, crashes)
	for i := range crash {
		crash[i] = time.Duration(w.rng.Int64N(int64(last) + 40_000_000))
	}
	for begun := time.Now(); !w.done(); w.step() {
		for i, at := range crash {
			if w.now >= at {
				crash[i] = math.MaxInt64
				w.trees[w.rng.IntN(len(w.trees))].crash(time.Duration(1 + w.rng.IntN(300_000_000)))
			}
		}
		if w.now > 60*time.Second {
			t.Fatalf("-forest %d: not all is sent after %v, %v\n%s", seed, w.now, time.Since(begun), w.state())
		}
	}
	if t.Failed() {
		t.Fatalf("-forest %d", seed)
	}
}

// needs gives the first box of a wood a quorum of n, which counts the hosts behind each box.
func (w *wood) needs(n int) {
	w.quorum = n
	var behind func(x *tree) uint16
	behind = func(x *tree) uint16 {
		n := uint16(len(x.hosts))
		for i := range x.group.Paths {
			if p := &x.group.Paths[i]; p.Box == mft.BoxBelow {
				p.Receivers = behind(x.links[int(p.Port)-len(x.hosts)].to)
				n += p.Receivers
			}
		}
		return n
	}
	behind(w.trees[0])
	policy := &w.trees[0].group.Policy
	policy.Ack, policy.OnFatal = feedback.AckPolicy(n), feedback.FatalEvict
}

// As TestMembersOfATreeSendAtOnce, with a quorum, which needs repair. Every message completes, and
// as many as the quorum says have it then. A source may end, when too few are left.
func TestAQuorumOfATree(t *testing.T) {
	seeds := []uint64{5569, 7037} // which have found faults that the first 60 do not find
	for n := range uint64(*forests) {
		seeds = append(seeds, *forest+n)
	}
	for _, seed := range seeds {
		w := plantWood(t, seed, func(p *feedback.Policy) { p.Repair = feedback.RepairLocal })
		w.needs(1 + w.rng.IntN(len(w.hosts)-1))
		w.begin()
		w.storm(seed)
	}
}

// has returns the other hosts that have a message, the n-th of host h.
func (w *wood) has(h *guest, n int) (names []int) {
	at := h.slots[n] * slotBytes
	for i, other := range w.hosts {
		if other != h && bytes.Equal(other.memory[at:][:len(h.data[n])], h.data[n]) {
			names = append(names, i)
		}
	}
	return names
}

// newFour is two boxes with two hosts each, and a quorum of one.
func newFour(t *testing.T) *wood {
	w := &wood{t: t, rng: rand.New(rand.NewPCG(1, 5)), most: 100, timeout: 20} // longer than the test takes
	for b := range 2 {
		x := &tree{w: w, group: &mft.Group{Name: "g", IP: ipGroup, QPN: groupQPN, PathMTU: 1024, KeepsTurns: true}}
		w.trees = append(w.trees, x)
		for i := range 2 {
			w.house(x, netip.AddrFrom4([4]byte{10, 1, byte(b), byte(i + 1)}), roce.QPN(16+i))
		}
	}
	w.join(w.trees[0], w.trees[1], 1)
	w.needs(1)
	return w
}

// sends lets a host send a message, which has to reach other hosts and no more.
func (w *wood) sends(host int, want ...int) {
	w.t.Helper()
	h := w.hosts[host]
	h.posts = []time.Duration{w.now}
	w.until(w.now + 2*time.Second)
	for end := w.now + 10*time.Millisecond; w.now < end; { // for those that the quorum did not wait for
		w.step()
	}
	if got := w.has(h, len(h.data)-1); !slices.Equal(got, want) {
		w.t.Errorf("the message of host %d is at hosts %v, want %v\n%s", host, got, want, w.state())
	}
}

// restart lets all boxes crash. They have stored their running turns and who is out.
func (w *wood) restart() {
	for _, x := range w.trees {
		x.store()
		if turn, ok := x.net.Switch.RunningTurn(x.group.ID); ok {
			x.stored = &turn
		}
		x.begin()
	}
}

// The quorum of the upper box goes on without the lower one, which has missed a message. Members of
// both boxes may still send, one after the other, also after a crash of each box. Who is at the
// lower box gets nothing any more, and that box says so.
func TestABoxThatAQuorumWentOnWithout(t *testing.T) {
	for _, crashes := range []bool{false, true} {
		w := newFour(t)
		w.begin()
		missed := false
		w.cut = func(from *tree) bool { return missed && from == w.trees[0] }
		sends := func(host int, want ...int) {
			t.Helper()
			if w.sends(host, want...); crashes {
				w.restart()
			}
		}
		sends(0, 1, 2, 3)
		missed = true
		w.hosts[0].posts = []time.Duration{w.now}
		w.until(w.now + time.Second)
		missed = false
		sends(2, 0, 1)
		if g, _ := w.trees[1].net.Switch.GroupState(w.trees[1].group.ID); !crashes && g.Paths[1].Part != feedback.PartBehind {
			t.Errorf("a host of the lower box is %v", g.Paths[1].Part)
		}
		sends(1, 0)
		sends(3, 0, 1)
		sends(0, 1)
		sends(3, 0, 1)
		sends(2, 0, 1)
	}
}

// A host of the lower box dies, and lacks a message. Another one there wants to send.
func TestABoxOneOfWhoseReceiversLacksSomething(t *testing.T) {
	w := newFour(t)
	w.begin()
	w.hosts[3].dead = true
	w.sends(0, 1, 2)
	w.sends(2, 0, 1)
}

// The box above asks what the lower one has, where nobody wants to send. That is no request.
func TestABoxThatIsAskedRequestsNothing(t *testing.T) {
	w := newFour(t)
	w.begin()
	w.sends(0, 1, 2, 3)
	w.hosts[3].dead = true
	w.restart()
	w.sends(1, 0)
	if n := moved(w.trees[0].net.Switch)["source-asks"]; n != 0 {
		t.Errorf("the upper box has heard %d requests", n)
	}
}

// A host dies, and its box crashes. The box above knows that everybody there has everything, and
// hears that the box cannot know it any more.
func TestABoxThatCannotSettleWhatItsReceiversHave(t *testing.T) {
	w := newFour(t)
	w.begin()
	w.sends(0, 1, 2, 3)
	w.hosts[3].dead = true
	w.trees[1].begin()
	w.sends(2, 0, 1)
	w.sends(1, 0)
}

// The upper box has evicted the lower one.
func TestABoxThatWasEvicted(t *testing.T) {
	w := newFour(t)
	w.trees[0].out = []mft.Part{{QP: w.trees[0].group.Paths[2].QP(), Part: feedback.PartGone}}
	w.begin()
	w.sends(0, 1)
	w.sends(2, 0, 1)
	w.sends(0, 1)
}

// The upper box has stored the turn of a member behind the lower one, and crashes before the lower
// one hears that. A host of the upper box is dead, and nobody can know what it has. The lower box
// hears all the same that its turn has begun.
func TestABoxWhoseTurnWasStoredBeforeACrash(t *testing.T) {
	w := newFour(t)
	w.begin()
	w.sends(0, 1, 2, 3)
	w.hosts[1].dead = true
	upper, down := w.trees[0], w.trees[0].group.Paths[2].QP()
	w.cut = func(from *tree) bool { return from == upper }
	w.hosts[2].posts = []time.Duration{w.now}
	for begun := false; !begun; {
		if w.step(); w.now > time.Second {
			t.Fatalf("the turn does not begin\n%s", w.state())
		}
		g, _ := upper.net.Switch.GroupState(upper.group.ID)
		begun = g.Source == down
	}
	upper.begin()
	w.cut = nil
	w.until(w.now + 2*time.Second)
	w.sends(2, 0, 3)
}

// A box lacks something for a while, and then no longer. The box above cannot switch before that,
// and does not hold it against it.
func TestABoxThatLacksNothingAnyMore(t *testing.T) {
	w := newFour(t)
	w.begin()
	w.sends(0, 1, 2, 3)
	lasts := func(d time.Duration) {
		for end := w.now + d; w.now < end; {
			w.step()
		}
	}
	w.hosts[1].dead, w.hosts[3].dead = true, true
	for _, x := range w.trees {
		x.begin()
	}
	w.hosts[2].posts = []time.Duration{w.now}
	lasts(400 * time.Millisecond)
	w.hosts[3].dead = false
	lasts(100 * time.Millisecond)
	w.hosts[1].dead = false
	w.until(w.now + time.Second)
	lasts(10 * time.Millisecond)
	if got, want := w.has(w.hosts[2], 0), []int{0, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("the message is at hosts %v, want %v\n%s", got, want, w.state())
	}
}

// A quorum of two has one receiver beside the source at the lower box, and needs one at the upper.
func TestTheReceiverBesideASourceIsOneOfAQuorum(t *testing.T) {
	for dead, want := range map[int]bool{1: true, 2: false} {
		w := newFour(t)
		w.needs(2)
		w.begin()
		for i := range dead {
			w.hosts[i].dead = true
		}
		w.hosts[2].posts = []time.Duration{0}
		for w.now < 100*time.Millisecond {
			w.step()
		}
		if got := w.hosts[2].done == 1; got != want {
			t.Errorf("with %d dead hosts at the upper box the message has completed: %v\n%s", dead, got, w.state())
		}
	}
}
