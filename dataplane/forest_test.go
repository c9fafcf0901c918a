package dataplane_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
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
}

const (
	slotBytes = 3000
	woodVA    = 0x1000
	woodKey   = 7
)

// newWood draws a tree of boxes with one group.
func newWood(t *testing.T, seed uint64, keys func(*feedback.Policy)) *wood {
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
	w.begin()
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
	next.Restored, next.Turn = x.net != nil, x.stored
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
		if c.Status != rnic.Success {
			w.t.Fatalf("at %v: a WRITE ended with %v\n%s", w.now, c.Status, w.state())
		}
		at, data := h.slots[h.done]*slotBytes, h.data[h.done]
		h.done++
		for i, other := range w.hosts {
			if other != h && !bytes.Equal(other.memory[at:][:len(data)], data) {
				w.t.Fatalf("at %v: a WRITE has completed, and host %d lacks it\n%s", w.now, i, w.state())
			}
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
			}
			x.net.Switch.BeginTurn(x.group.ID, stored)
		}
	}
	var buf [rnic.MaxFrameBytes]byte
	for i, p := range x.net.Ports {
		for _, f := range p.Take() {
			w.moved = true
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

// done reports whether all messages have completed.
func (w *wood) done() bool {
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
	for n := range uint64(*forests) {
		seed := *forest + n
		w := newWood(t, seed, func(p *feedback.Policy) {
			if seed%2 == 0 {
				p.Repair = feedback.RepairLocal
			}
		})
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
}
