package dataplane_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// lowerTwins are two boxes below another one, which has both do the same for receivers c and d. To
// the first it sends copies of its own, and to the second what it shares between several boxes.
type lowerTwins struct {
	t    *testing.T
	nets [2]*porttest.Net
	now  feedback.Tick
}

const addPSN = 0xFFFFF0

func newLowerTwins(t *testing.T, edit func(*mft.Group)) *lowerTwins {
	t.Helper()
	w := &lowerTwins{t: t}
	for i := range w.nets {
		g := group()
		g.Policy.Repair, g.Policy.RepairWindow = feedback.RepairLocal, 64
		g.Source = mft.Source{Leg: leg(linkDown, ipUpper, qpnUpper), RemoteQPN: qpnLower, FirstPSN: psnUpper}
		g.Source.Src = ipLower
		g.Paths = []mft.Path{receiver(2, ipC), receiver(3, ipD)}
		if i == 1 {
			g.Mappings = []mft.Mapping{{To: ipAll, QPN: generation - 1}, {To: ipAll, QPN: generation, AddPSN: addPSN}}
		}
		if edit != nil {
			edit(g)
		}
		w.nets[i] = porttest.NewRetaining(5, 64, nil, func() feedback.Tick { return w.now })
		if _, err := w.nets[i].Switch.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// own is a packet of the box above for this one alone.
func own(psn roce.PSN, payload []byte) packet {
	p := write(psn, payload)
	p.src, p.dst, p.bth.DestQPN = ipUpper, ipLower, qpnLower
	return p
}

// shared is the same packet, for several boxes.
func shared(p packet) packet {
	p.dst, p.bth.DestQPN, p.bth.PSN = ipAll, generation, p.bth.PSN.Add(-addPSN)
	return p
}

// hears gives both boxes packets of the box above at once.
func (w *lowerTwins) hears(packets ...packet) {
	w.t.Helper()
	for _, p := range packets {
		w.nets[0].Ports[linkDown].Put(p.frame(w.t))
		w.nets[1].Ports[linkDown].Put(shared(p).frame(w.t))
	}
	w.same()
}

// answers gives both boxes a receiver's answer.
func (w *lowerTwins) answers(p packet) {
	w.t.Helper()
	for _, net := range w.nets {
		net.Ports[portOf[p.src]].Put(p.frame(w.t))
	}
	w.same()
}

// same fails the test if the boxes do not send the same, byte for byte. It returns how many frames
// they sent.
func (w *lowerTwins) same() (sent int) {
	w.t.Helper()
	for _, net := range w.nets {
		net.Poll()
	}
	for port := range w.nets[0].Ports {
		a, b := w.nets[0].Ports[port].Take(), w.nets[1].Ports[port].Take()
		if len(a) != len(b) {
			w.t.Fatalf("at port %d the boxes send %d and %d frames; counters %v and %v", port, len(a), len(b), moved(w.nets[0].Switch), moved(w.nets[1].Switch))
		}
		for i := range a {
			if port == linkDown { // the second box may say that shared copies have come
				if x, y := decode(w.t, a[i]), decode(w.t, b[i]); x != y {
					w.t.Fatalf("answer %d:\n%+v\n%+v", i, x, y)
				}
			} else if !bytes.Equal(a[i], b[i]) {
				w.t.Fatalf("frame %d at port %d:\n%x\n%x", i, port, a[i], b[i])
			}
		}
		sent += len(a)
	}
	if a, b := fmt.Sprint(moved(w.nets[0].Switch)), fmt.Sprint(moved(w.nets[1].Switch)); a != b {
		w.t.Fatalf("the boxes count\n%s\n%s", a, b)
	}
	return sent
}

// What a box makes of shared copies is what it makes of copies of its own, to the byte: alone and
// in trains, where the PSN wraps, lost and repaired, and when the box above sends again by copies
// of its own what it has shared.
func TestSharedCopiesAreAsCopiesOfItsOwn(t *testing.T) {
	w := newLowerTwins(t, nil)
	psn := roce.PSN(psnUpper)
	payload := bytes.Repeat([]byte("rack"), 256)
	at := func(n int) roce.PSN { return psn.Add(int32(n)) }
	w.hears(own(at(0), payload))
	acks := func(n int) {
		for _, p := range []mft.Path{receiver(2, ipC), receiver(3, ipD)} {
			w.answers(ack(p.Dst, p.FirstPSN.Add(int32(n)), roce.SyndromeUnlimited))
		}
	}
	acks(0)
	for n := 1; n < 41; n += 8 { // trains
		var train []packet
		for k := range 8 {
			train = append(train, own(at(n+k), payload[:1024-4*k]))
		}
		w.hears(train...)
		acks(n + 7)
	}
	// c has lost packet 42, and gets it again from this box.
	w.hears(own(at(41), payload), own(at(42), payload), own(at(43), payload))
	c := receiver(2, ipC)
	w.answers(ack(ipC, c.FirstPSN.Add(42), roce.NAKSequence))
	acks(43)
	// The link has lost packets 44 and 45, and the receivers say so. The box above sends them by
	// copies of their own, among shared ones.
	w.hears(own(at(46), payload))
	for _, p := range []mft.Path{receiver(2, ipC), receiver(3, ipD)} {
		w.answers(ack(p.Dst, p.FirstPSN.Add(44), roce.NAKSequence))
	}
	for _, n := range []int{44, 45} {
		for _, net := range w.nets {
			net.Ports[linkDown].Put(own(at(n), payload).frame(t))
		}
		w.same()
	}
	w.hears(own(at(46), payload), own(at(47), payload))
	acks(47)
	if got := snapshot(t, w.nets[1].Switch, w.nets[1].Switch.Table().Group(0)); got.Merged != at(47) {
		t.Errorf("all have %d, want %d; counters %v", got.Merged, at(47), moved(w.nets[1].Switch))
	}
}

// Frames to the multicast address that are no shared copies for this box are refused as such frames
// of the link are, or are the kernel's.
func TestWhatIsNoSharedCopy(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*packet)
		port int
		want string // the counter; "": the kernel's
	}{
		"another generation":         {func(p *packet) { p.bth.DestQPN++ }, linkDown, ""},
		"of a stranger":              {func(p *packet) { p.src = ipB }, linkDown, ""},
		"to another address":         {func(p *packet) { p.dst = ipAll.Next() }, linkDown, ""},
		"by another port":            {func(*packet) {}, 4, "wrong-port"},
		"an answer":                  {func(p *packet) { p.bth.Opcode, p.reth, p.aeth = roce.OpAck, nil, &roce.AETH{} }, linkDown, "not-receiver"},
		"larger than the path MTU":   {func(p *packet) { p.payload = make([]byte, 1028) }, linkDown, "over-mtu"},
		"at the end of its way":      {func(p *packet) { p.hopLimit = 1 }, linkDown, "hop-limit-exceeded"},
		"a WRITE outside the memory": {func(p *packet) { p.reth.RKey++ }, linkDown, "refused-memory"},
		"tagged":                     {func(p *packet) { p.tags = []uint16{5} }, linkDown, "wrong-vlan"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLowerTwins(t, nil)
			p := shared(own(psnUpper, []byte("data")))
			tt.edit(&p)
			net := w.nets[1]
			net.Ports[tt.port].Put(p.frame(t))
			net.Poll()
			for _, port := range []int{2, 3} {
				if out := net.Ports[port].Take(); len(out) > 0 {
					t.Errorf("port %d sends %d frames", port, len(out))
				}
			}
			got := moved(net.Switch)
			if tt.want == "" && len(got) > 0 || tt.want != "" && got[tt.want] != 1 {
				t.Errorf("counters %v, want %q", got, tt.want)
			}
		})
	}
}

// A damaged copy leaves damaged, or is refused.
func TestADamagedSharedCopy(t *testing.T) {
	w := newLowerTwins(t, nil)
	for _, n := range []int{0, 2} { // the next one, which is not checked, and another, which is
		f := shared(own(roce.PSN(psnUpper).Add(int32(n)), []byte("data"))).frame(t)
		f[len(f)-6] ^= 1
		w.nets[1].Ports[linkDown].Put(f)
		w.nets[1].Poll()
		for _, port := range []int{2, 3} {
			for _, out := range w.nets[1].Ports[port].Take() {
				if decode(t, out).ICRCValid {
					t.Errorf("packet %d leaves undamaged", n)
				}
			}
		}
	}
	if got := moved(w.nets[1].Switch); got["bad-icrc"] == 0 {
		t.Errorf("counters %v", got)
	}
}

// What the box above hears tells whether the packet that is answered came as a shared copy: by a
// bit of the UDP source port, which a box that knows nothing of it does not read.
func TestABoxTellsThatSharedCopiesCome(t *testing.T) {
	w := newLowerTwins(t, nil)
	net := w.nets[1]
	for n, isShared := range []bool{true, false, true, true, false, false} {
		psn := roce.PSN(psnUpper).Add(int32(n))
		p := own(psn, []byte("data"))
		if isShared {
			p = shared(p)
		}
		net.Ports[linkDown].Put(p.frame(t))
		net.Poll()
		for _, r := range []mft.Path{receiver(2, ipC), receiver(3, ipD)} {
			net.Ports[r.Port].Put(ack(r.Dst, r.FirstPSN.Add(int32(n)), roce.SyndromeUnlimited).frame(t))
			net.Poll()
		}
		out := net.Ports[linkDown].Take()
		if len(out) != 1 {
			t.Fatalf("packet %d: %d answers", n, len(out))
		}
		var v roce.View
		if err := v.Decode(out[0], len(out[0])); err != nil {
			t.Fatal(err)
		}
		port := uint16(0xC000 | qpnUpper)
		if isShared {
			port ^= 1
		}
		if got := v.UDPSrcPort(out[0]); got != port || !v.ICRCValid([][]byte{out[0]}) {
			t.Errorf("packet %d: UDP source port %#x, want %#x", n, got, port)
		}
	}
	st, _ := net.Switch.GroupState(net.Switch.Table().Group(0).ID)
	if st.Traffic.Mapped != 3 {
		t.Errorf("%d packets are mapped, want 3", st.Traffic.Mapped)
	}
}

// The box above repairs by a shared copy what several other boxes lack. This one has had it, and
// what its receivers acknowledge afterwards is told at once: the box above sends it nothing again,
// and would have to probe. That is so when the box above begins to share, and when it shares no
// more.
func TestASharedRepairOfWhatOthersLackHoldsNoAnswerBack(t *testing.T) {
	for name, tt := range map[string]struct{ begins, ends bool }{
		"always shared": {}, "begins to share": {begins: true}, "shares no more": {ends: true},
	} {
		w := newLowerTwins(t, nil)
		net := w.nets[1]
		g := *net.Switch.Table().Group(0)
		maps := func(mappings []mft.Mapping) {
			next := g
			next.Mappings = mappings
			if err := net.Switch.Replace(g.ID, &next); err != nil {
				t.Fatal(err)
			}
		}
		if tt.begins {
			w = newLowerTwins(t, func(g *mft.Group) { g.Mappings = nil })
			net = w.nets[1]
		}
		at := func(n int) roce.PSN { return roce.PSN(psnUpper).Add(int32(n)) }
		hears := func(n int) {
			net.Ports[linkDown].Put(shared(own(at(n), []byte("data"))).frame(t))
			net.Poll()
		}
		acks := func(n int) {
			for _, r := range []mft.Path{receiver(2, ipC), receiver(3, ipD)} {
				net.Ports[r.Port].Put(ack(r.Dst, r.FirstPSN.Add(int32(n)), roce.SyndromeUnlimited).frame(t))
				net.Poll()
			}
		}
		net.Ports[linkDown].Put(own(at(0), []byte("data")).frame(t)) // the group runs already
		net.Poll()
		if tt.begins {
			maps(g.Mappings)
		}
		for n := 1; n < 10; n++ {
			hears(n)
		}
		acks(3)
		hears(2)
		hears(3)
		if tt.ends {
			maps(nil)
		}
		net.Ports[linkDown].Take()
		acks(9)
		var told []int
		for _, f := range net.Ports[linkDown].Take() {
			if d := decode(t, f); d.Opcode == roce.OpAck {
				told = append(told, int(d.PSN.Sub(psnUpper)))
			}
		}
		if len(told) == 0 || told[len(told)-1] != 9 {
			t.Errorf("%s: the box above is told of %v, and the receivers have 9", name, told)
		}
	}
}

// A frame from far ahead, damaged or forged, does not let the box say for long that shared copies
// come.
func TestAFrameFromFarAheadTellsNothing(t *testing.T) {
	w := newLowerTwins(t, nil)
	net := w.nets[1]
	far := shared(own(roce.PSN(psnUpper).Add(5000), []byte("data"))).frame(t)
	far[len(far)-6] ^= 1
	var told []int
	for n := range 8 {
		net.Ports[linkDown].Put(own(roce.PSN(psnUpper).Add(int32(n)), []byte("data")).frame(t))
		if n == 1 {
			net.Ports[linkDown].Put(far)
		}
		net.Poll()
		for _, r := range []mft.Path{receiver(2, ipC), receiver(3, ipD)} {
			net.Ports[r.Port].Put(ack(r.Dst, r.FirstPSN.Add(int32(n)), roce.SyndromeUnlimited).frame(t))
			net.Poll()
		}
		for _, f := range net.Ports[linkDown].Take() {
			var v roce.View
			if err := v.Decode(f, len(f)); err != nil {
				t.Fatal(err)
			}
			if v.UDPSrcPort(f) != 0xC000|qpnUpper {
				told = append(told, n)
			}
		}
	}
	if len(told) > 2 {
		t.Errorf("the answers of packets %v tell of shared copies, of which none came", told)
	}
}

// A group whose copies the box above shares stays with the core, also with what comes for this box
// alone: the kernel engine does not map.
func TestTheKernelTakesNoGroupWithMappings(t *testing.T) {
	for _, mappings := range [][]mft.Mapping{nil, {{To: ipAll, QPN: generation}}} {
		g := group()
		g.Mappings = mappings
		b := porttest.NewFanOutAt(4, nil)
		if _, err := b.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
		for i := range 3 * calmPackets {
			psn := roce.PSN(firstPSN).Add(int32(i))
			say(t, b, quiet(psn))
			for k := range g.Paths {
				p := &g.Paths[k]
				b.Ports[p.Port].Put(ack(p.Dst, p.FirstPSN.Add(int32(i)), roce.SyndromeUnlimited).frame(t))
			}
			b.Poll()
		}
		st, _ := b.Switch.GroupState(g.ID)
		if e := st.Engine; e.Kernel != (mappings == nil) || mappings != nil && e.Reason != mft.ErrBlockMappings.Error() {
			t.Errorf("mappings %v: %+v", mappings, e)
		}
	}
}
