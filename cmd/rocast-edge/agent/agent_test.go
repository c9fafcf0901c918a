package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/bpf/edge"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/asking"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

var (
	box1, box2 = netip.MustParseAddrPort("10.77.3.254:7472"), netip.MustParseAddrPort("10.77.3.253:7472")
	ip1, ip2   = netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.78.0.2")
	group      = netip.MustParseAddr("10.77.3.100")
	shared     = netip.MustParseAddr("239.77.0.1")
	eth0       = device{name: "eth0", index: 2, mac: roce.MAC{2, 0, 0, 0, 0, 2}, joins: 2}
)

// twin is a host in memory.
type twin struct {
	mu       sync.Mutex
	ips      map[netip.Addr]device
	programs map[string]*twinProgram // pinned
	joined   map[string]int          // "239.77.0.1 at 2"
	full     bool                    // no address can be joined
	unjoined netip.Addr              // an address that cannot be joined
	closed   error                   // why no program can be attached; nil: it can
	way      netip.Addr              // the IP from which packets to boxes leave
}

// twinProgram is the program at an interface of a twin.
type twinProgram struct {
	twin     *twin
	mappings map[edge.Key]edge.Mapping
	open     int // processes that use it
}

func newTwin() *twin {
	return &twin{ips: map[netip.Addr]device{ip1: eth0}, programs: map[string]*twinProgram{}, joined: map[string]int{}, way: ip1}
}

func (h *twin) towards(netip.AddrPort) (netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.way, nil
}

func (h *twin) find(ip netip.Addr) (device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.ips[ip]; ok {
		return at, nil
	}
	return device{}, fmt.Errorf("no interface of this host has the IP %v", ip)
}

// behind finds the IPs behind the port eth0, and none behind another one. The bridge is interface
// 9, unless the IP is in a VLAN of the bridge.
func (h *twin) behind(wire string, ip netip.Addr) (device, error) {
	at, err := h.find(ip)
	if err == nil && wire != at.name {
		err = fmt.Errorf("%s is in no bridge", wire)
	}
	if at.joins == at.index {
		at.joins = 9
	}
	return at, err
}

func (h *twin) move(ip netip.Addr, to device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ips[ip] = to
}

func (h *twin) attach(at device) (mapper, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil {
		return nil, h.closed
	}
	if h.programs[at.name] == nil {
		h.programs[at.name] = &twinProgram{twin: h, mappings: map[edge.Key]edge.Mapping{}}
	}
	h.programs[at.name].open++
	return h.programs[at.name], nil
}

func (h *twin) detach(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.programs, name)
	return nil
}

func (h *twin) pinned() ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.programs)), nil
}

type twinMember func()

func (f twinMember) Close() error { f(); return nil }

func (h *twin) join(at device, to netip.Addr) (io.Closer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.full || to == h.unjoined {
		return nil, errors.New("no more addresses can be joined")
	}
	name := fmt.Sprintf("%v at %d", to, at.joins)
	h.joined[name]++
	return twinMember(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.joined[name]--; h.joined[name] == 0 {
			delete(h.joined, name)
		}
	}), nil
}

// has is what the program of an interface maps, and what is joined: "QPN 0xa to 0x11 | 239.77.0.1
// at 2".
func (h *twin) has(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	if p := h.programs[name]; p != nil {
		for key, m := range p.mappings {
			text := fmt.Sprintf("%v %#x to %#x", key.To, uint32(key.QPN), uint32(m.HostQPN))
			if at := h.ips[m.Host]; m.MAC != at.mac {
				text += " at another MAC"
			}
			list = append(list, text)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ") + " | " + strings.Join(slices.Sorted(maps.Keys(h.joined)), ", ")
}

func (p *twinProgram) Mode() edge.Mode { return edge.Generic }

func (p *twinProgram) Put(m edge.Mapping) error {
	p.twin.mu.Lock()
	defer p.twin.mu.Unlock()
	p.mappings[m.Key] = m
	return nil
}

func (p *twinProgram) Delete(key edge.Key) error {
	p.twin.mu.Lock()
	defer p.twin.mu.Unlock()
	delete(p.mappings, key)
	return nil
}

func (p *twinProgram) Mappings() iter.Seq2[edge.Mapping, error] {
	p.twin.mu.Lock()
	defer p.twin.mu.Unlock()
	all := maps.Clone(p.mappings)
	return func(yield func(edge.Mapping, error) bool) {
		for _, m := range all {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (p *twinProgram) Counters() (edge.Counters, error) {
	return edge.Counters{Mapped: 7, NoMapping: 3, RefusedLength: 1, RefusedRegion: 1}, nil
}

func (p *twinProgram) Close() error {
	p.twin.mu.Lock()
	defer p.twin.mu.Unlock()
	p.open--
	return nil
}

// fakeBox is a box with an answer. It keeps a question whose asker has the answer.
type fakeBox struct {
	mu     sync.Mutex
	answer api.EdgeAnswer
	err    error
	asked  api.EdgeQuestion // last
	older  bool             // it knows of no part of an answer

	questions int // how many were asked
	change    chan struct{}
}

func newBox() *fakeBox {
	return &fakeBox{answer: api.EdgeAnswer{Number: 1}, change: make(chan struct{})}
}

func (b *fakeBox) say(number uint64, mappings ...api.EdgeMapping) {
	b.set(func() { b.answer, b.err = api.EdgeAnswer{Number: number, Mappings: mappings}, nil })
}

func (b *fakeBox) fail(err error) { b.set(func() { b.err = err }) }

func (b *fakeBox) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.change)
	b.change = make(chan struct{})
}

func (b *fakeBox) confirmed() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked.Have
}

// lacks is what the edge has said of the mappings that it cannot load, or "".
func (b *fakeBox) lacks() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked.Part == nil {
		return ""
	}
	return fmt.Sprintf("%d without %v", b.asked.Part.Number, b.asked.Part.Failed)
}

func (b *fakeBox) AskEdge(ctx context.Context, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	b.mu.Lock()
	b.asked = q
	b.questions++
	loaded := q.Loaded()
	if b.older {
		loaded = q.Have
	}
	keep, change := b.err == nil && loaded == b.answer.Number, b.change
	b.mu.Unlock()
	if keep {
		select {
		case <-ctx.Done():
			return api.EdgeAnswer{}, ctx.Err()
		case <-change:
		case <-time.After(time.Duration(q.Wait) * time.Millisecond):
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answer, b.err
}

func given(qpn, to uint32) api.EdgeMapping {
	return api.EdgeMapping{
		Group: "g", From: group, To: shared, LegQPN: qpn, Host: ip1, QPN: to, AddPSN: 5,
		Regions: []api.EdgeRegion{{VA: 1 << 16, Length: 4096, RKey: 7, AddVA: 1 << 40, ToRKey: 9}},
	}
}

// world is an agent of a host that runs.
type world struct {
	*twin
	boxes map[netip.AddrPort]*fakeBox
	ips   []netip.Addr
	wire  string
	from  atomic.Value // the address from which a box was asked last; each partner asks by itself
	state State
	stop  func()
}

func newWorld() *world {
	return &world{twin: newTwin(), boxes: map[netip.AddrPort]*fakeBox{box1: newBox()}, ips: []netip.Addr{ip1}}
}

func (w *world) start(t *testing.T) {
	t.Helper()
	a := newAgent(Config{
		Boxes: slices.SortedFunc(maps.Keys(w.boxes), netip.AddrPort.Compare), IPs: w.ips, Wire: w.wire, Log: zap.NewNop(),
		Ask:     func(box netip.AddrPort, from netip.Addr) Asker { w.from.Store(from); return w.boxes[box] },
		Changed: func(s State) { w.state = s },
	}, w.twin)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
}

func (w *world) expect(t *testing.T, when, want string) {
	t.Helper()
	synctest.Wait()
	if got := w.has("eth0"); got != want {
		t.Errorf("%s: the program maps %q, want %q", when, got, want)
	}
}

func play(t *testing.T, story func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		story(t, w)
		w.stop()
		for name, p := range w.programs {
			if p.open != 0 {
				t.Errorf("%s has %d users after the end", name, p.open)
			}
		}
		if len(w.joined) != 0 {
			t.Errorf("still joined after the end: %v", w.joined)
		}
	})
}

// A host has exactly the mappings of the answer, and the next question confirms them.
func TestAnswersAreLoadedAndConfirmed(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		w.expect(t, "after the first answer", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		want := api.EdgeQuestion{Protocol: 1, Have: 5, Wait: 4000, Attach: "xdp generic", Mapped: 7, NoMapping: 3, Refused: 2}
		if got := w.boxes[box1].asked; got != want {
			t.Errorf("the next question is %+v, want %+v", got, want)
		}
		loaded := slices.Collect(maps.Values(w.programs["eth0"].mappings))[0]
		if fmt.Sprint(loaded.Regions) != fmt.Sprint([]edge.Region{{VA: 1 << 16, Length: 4096, RKey: 7, AddVA: 1 << 40, ToRKey: 9}}) || loaded.AddPSN != 5 {
			t.Errorf("%+v", loaded)
		}
		w.boxes[box1].say(6, given(0xb, 0x11), given(0xc, 0x12))
		w.expect(t, "after a new generation", "239.77.0.1 0xb to 0x11, 239.77.0.1 0xc to 0x12 | 239.77.0.1 at 2")
		w.boxes[box1].say(8, given(0xb, 0x11), given(0xc, 0x13))
		w.expect(t, "after the group was made anew", "239.77.0.1 0xb to 0x11, 239.77.0.1 0xc to 0x13 | 239.77.0.1 at 2")
		w.boxes[box1].say(7)
		w.expect(t, "after the end of the group", " | ")
		if got := w.boxes[box1].confirmed(); got != 7 {
			t.Errorf("answer %d is confirmed", got)
		}
	})
}

// A mapping for another host's address is refused, and the box hears so. The others of the answer
// are loaded and confirmed.
func TestMappingsToOtherHostsAreRefused(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		stranger := given(0xb, 0x12)
		stranger.Host = netip.MustParseAddr("10.77.0.3")
		w.boxes[box1].say(6, stranger, given(0xc, 0x13))
		time.Sleep(asking.LongestPause) // until it has asked again
		w.expect(t, "with a stranger's", "239.77.0.1 0xc to 0x13 | 239.77.0.1 at 2")
		want := "the box gives a mapping of group g to 10.77.0.3, which is not the IP for which it was asked"
		if got, lacks := w.boxes[box1].confirmed(), w.boxes[box1].lacks(); got != 5 || lacks != "6 without [{11 "+want+"}]" {
			t.Errorf("answer %d is confirmed, and %s", got, lacks)
		}
		if got := w.state.Partners[0].Problem; got != want {
			t.Errorf("the state says %q", got)
		}
		w.boxes[box1].say(7, given(0xc, 0x13))
		time.Sleep(asking.LongestPause) // it asks again by itself
		synctest.Wait()
		if s := w.state.Partners[0]; w.boxes[box1].confirmed() != 7 || w.boxes[box1].lacks() != "" || s.Problem != "" {
			t.Errorf("later it says %+v", s)
		}
	})
}

// What cannot be joined is not confirmed: the switch would not forward it.
func TestAddressesThatCannotBeJoined(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.full = true
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		time.Sleep(asking.LongestPause) // until it has asked again
		synctest.Wait()
		if got := w.boxes[box1].confirmed(); got != 0 {
			t.Errorf("answer %d is confirmed", got)
		}
		w.mu.Lock()
		w.full = false
		w.mu.Unlock()
		time.Sleep(asking.LongestPause)
		w.expect(t, "when it can be joined", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		if got := w.boxes[box1].confirmed(); got != 5 {
			t.Errorf("answer %d is confirmed", got)
		}
	})
}

// What is left out is said at once, and not again before a pause: a box of an older release keeps
// no question that does not confirm its whole answer.
func TestWhatIsLeftOutIsSaidAtOnce(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.start(t)
		w.mu.Lock()
		w.full = true
		w.mu.Unlock()
		began := time.Now()
		w.boxes[box1].say(5, given(0xa, 0x11))
		synctest.Wait()
		if got := w.boxes[box1].lacks(); got != "5 without [{10 no more addresses can be joined}]" || time.Since(began) != 0 {
			t.Errorf("after %v it says %q", time.Since(began), got)
		}
		w.boxes[box1].say(6, given(0xa, 0x11), given(0xb, 0x12))
		time.Sleep(asking.Wait + asking.LongestPause)
		synctest.Wait()
		if got := w.boxes[box1].lacks(); got != "6 without [{10 no more addresses can be joined} {11 no more addresses can be joined}]" {
			t.Errorf("it says %q", got)
		}
		w.boxes[box1].set(func() { w.boxes[box1].older, w.boxes[box1].questions = true, 0 })
		time.Sleep(10 * asking.LongestPause)
		synctest.Wait()
		if n := w.boxes[box1].questions; n > 11 {
			t.Errorf("it has asked a box of an older release %d times", n)
		}
	})
}

// An edge that cannot load most of an answer confirms nothing: what it has taken away may be wanted
// again, by an answer that it had loaded.
func TestTooManyFailuresConfirmNothing(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		var strangers []api.EdgeMapping
		for i := range uint32(api.MaxEdgeFailures + 1) {
			m := given(0x100+i, 0x12)
			m.Host = netip.MustParseAddr("10.77.0.3")
			strangers = append(strangers, m)
		}
		w.boxes[box1].say(6, strangers...)
		time.Sleep(asking.LongestPause) // until it has asked again
		w.expect(t, "with too many", " | ")
		if got, lacks := w.boxes[box1].confirmed(), w.boxes[box1].lacks(); got != 0 || lacks != "" {
			t.Errorf("answer %d is confirmed, and %q", got, lacks)
		}
		w.boxes[box1].say(5, given(0xa, 0x11))
		time.Sleep(asking.LongestPause)
		w.expect(t, "with the first answer again", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
	})
}

// Two boxes that share by the same address, QPN and source would take each other's mapping away.
func TestTwoBoxesWithTheSameLeg(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box2] = newBox()
		w.start(t)
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.expect(t, "with one", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		w.boxes[box2].say(6, given(0xa, 0x12))
		w.expect(t, "with two", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		if got := w.boxes[box2].confirmed(); got != 1 {
			t.Errorf("answer %d of the second box is confirmed", got)
		}
		w.boxes[box2].say(7, given(0xb, 0x12))
		time.Sleep(asking.LongestPause)
		w.expect(t, "with another QPN", "239.77.0.1 0xa to 0x11, 239.77.0.1 0xb to 0x12 | 239.77.0.1 at 2")
		w.boxes[box1].say(8)
		w.expect(t, "without the first", "239.77.0.1 0xb to 0x12 | 239.77.0.1 at 2")
	})
}

// Two boxes may have one multicast address: their groups differ by source, and also have QPNs of
// their own. When one box gives it up, the host goes on to listen for the other.
func TestTwoBoxesWithTheSameAddress(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box2] = newBox()
		w.start(t)
		theirs := given(0xa, 0x12)
		theirs.From = netip.MustParseAddr("10.77.0.201")
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.boxes[box2].say(6, theirs)
		w.expect(t, "with both", "239.77.0.1 0xa to 0x11, 239.77.0.1 0xa to 0x12 | 239.77.0.1 at 2")
		if a, b := w.boxes[box1].confirmed(), w.boxes[box2].confirmed(); a != 5 || b != 6 {
			t.Errorf("the answers %d and %d are confirmed", a, b)
		}
		w.boxes[box1].say(7)
		w.expect(t, "without the first", "239.77.0.1 0xa to 0x12 | 239.77.0.1 at 2")
	})
}

// A box of another release refuses the question. The host says what the box says, and its mappings
// stay: they are right until the box takes them back.
func TestABoxOfAnotherVersion(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		const says = "the edge speaks version 1 and this box version 2; install the same release of both"
		w.boxes[box1].fail(errors.New(says))
		w.expect(t, "with another version", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		if s := w.state.Partners[0]; s.Problem != says {
			t.Errorf("status says %q", s.Problem)
		}
	})
}

// At an interface that takes no program nothing is asked for: no mapping could be loaded. It is
// tried again.
func TestAnInterfaceThatTakesNoProgram(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.closed = errors.New("no way to attach the program works: xdp native: operation not supported")
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		time.Sleep(asking.LongestPause)
		synctest.Wait()
		want := "attach the program to eth0: no way to attach the program works: xdp native: operation not supported"
		if s := w.state.Partners[0]; s.Problem != want || s.Answered || w.boxes[box1].asked.Protocol != 0 {
			t.Errorf("status says %q, and the box was asked %+v", s.Problem, w.boxes[box1].asked)
		}
		w.mu.Lock()
		w.closed = nil
		w.mu.Unlock()
		time.Sleep(asking.LongestPause)
		w.expect(t, "when it takes one", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
	})
}

// The next run has the mappings and the addresses at once, and confirms nothing that it has not
// been told itself. Those of a box that is no longer asked go.
func TestMappingsOutliveARun(t *testing.T) {
	for _, named := range []bool{true, false} {
		play(t, func(t *testing.T, w *world) {
			if !named {
				w.ips = nil
			}
			w.boxes[box2] = newBox()
			w.boxes[box1].say(5, given(0xa, 0x11))
			w.boxes[box2].say(9, given(0xb, 0x12))
			w.start(t)
			w.stop()
			w.expect(t, "without a run", "239.77.0.1 0xa to 0x11, 239.77.0.1 0xb to 0x12 | ")
			delete(w.boxes, box2)
			w.boxes[box1].fail(errors.New("the box is away"))
			w.start(t)
			w.expect(t, "before an answer", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
			if got := w.boxes[box1].confirmed(); got != 0 {
				t.Errorf("answer %d is confirmed", got)
			}
			w.boxes[box1].say(6, given(0xc, 0x11))
			time.Sleep(asking.LongestPause)
			w.expect(t, "after an answer", "239.77.0.1 0xc to 0x11 | 239.77.0.1 at 2")
		})
	}
}

// A box that is away may come back: its mappings stay for an hour, and not for ever.
func TestABoxThatIsAway(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		stranger := given(0xb, 0x12)
		stranger.Host = netip.MustParseAddr("10.77.0.3")
		w.boxes[box1].say(5, given(0xa, 0x11), stranger)
		w.start(t)
		w.boxes[box1].fail(errors.New("the box is away"))
		time.Sleep(Kept - time.Minute)
		w.expect(t, "before the hour is over", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		time.Sleep(2 * time.Minute)
		w.expect(t, "afterwards", " | ")
		if got, part := w.boxes[box1].confirmed(), w.boxes[box1].lacks(); got != 0 || part != "" {
			t.Errorf("answer %d is still confirmed, %s", got, part)
		}
		w.boxes[box1].say(5, given(0xa, 0x11))
		time.Sleep(asking.LongestPause)
		w.expect(t, "when it is back", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
	})
}

// The mappings follow the IP to another interface, and an interface to another MAC.
func TestTheIPMoves(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		another := eth0
		another.mac[5]++
		w.move(ip1, another)
		time.Sleep(asking.Wait)
		w.expect(t, "with another MAC", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		anew := another
		anew.index, anew.joins = 7, 7
		w.move(ip1, anew)
		time.Sleep(asking.Wait)
		w.expect(t, "made anew", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 7")
		w.move(ip1, device{name: "eth1", index: 3, mac: roce.MAC{2, 9}, joins: 3})
		time.Sleep(asking.Wait)
		w.expect(t, "at another interface, the first one", " | 239.77.0.1 at 3")
		if got, want := w.has("eth1"), "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 3"; got != want {
			t.Errorf("the other interface: %q", got)
		}
		w.mu.Lock()
		delete(w.twin.ips, ip1)
		w.mu.Unlock()
		time.Sleep(asking.Wait)
		synctest.Wait()
		if got, want := w.state.Partners[0].Problem, "no interface of this host has the IP 10.77.0.2"; got != want {
			t.Errorf("without the IP: %q", got)
		}
	})
}

// What cannot be made at another interface is tried again, and is not confirmed until it is there.
func TestTheIPMovesToWhereNothingCanBeJoined(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		w.mu.Lock()
		w.full = true
		w.mu.Unlock()
		w.move(ip1, device{name: "eth1", index: 3, mac: roce.MAC{2, 9}, joins: 3})
		time.Sleep(asking.Wait + asking.LongestPause)
		synctest.Wait()
		if w.state.Partners[0].Problem == "" {
			t.Error("nobody says that an address cannot be joined")
		}
		w.boxes[box1].set(func() { w.boxes[box1].asked = api.EdgeQuestion{Have: 99} })
		w.mu.Lock()
		w.full = false
		w.mu.Unlock()
		time.Sleep(2 * asking.LongestPause)
		synctest.Wait()
		if got, want := w.has("eth1"), "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 3"; got != want {
			t.Errorf("when it can: %q, want %q", got, want)
		}
		if got := w.boxes[box1].confirmed(); got != 5 {
			t.Errorf("answer %d is confirmed", got)
		}
	})
}

// Without an IP that is named the agent speaks for the one from which it reaches the box, also when
// that becomes another.
func TestTheWayToTheBox(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.ips = nil
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		w.expect(t, "at first", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		w.mu.Lock()
		w.twin.ips[ip2] = eth0
		w.way = ip2
		w.mu.Unlock()
		anew := given(0xb, 0x11)
		anew.Host = ip2
		w.boxes[box1].say(6, anew)
		time.Sleep(asking.LongestPause)
		w.expect(t, "from another IP", "239.77.0.1 0xb to 0x11 | 239.77.0.1 at 2")
	})
}

// What an earlier run has left at an interface without any of the IPs is removed, but only when it
// is known where all IPs are.
func TestInterfacesOfEarlierRuns(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.ips = []netip.Addr{ip1, ip2}
		_, _ = w.attach(device{name: "old"})
		w.programs["old"].open = 0
		w.start(t)
		if w.programs["old"] == nil {
			t.Error("removed while the second IP may be there")
		}
		w.move(ip2, device{name: "eth1", index: 3, joins: 3})
		time.Sleep(asking.LongestPause)
		synctest.Wait()
		if names, _ := w.pinned(); !slices.Equal(names, []string{"eth0", "eth1"}) {
			t.Errorf("pinned are %q", names)
		}
	})
}

// In the wire the agent asks from an address of its own for the host behind it. It maps to the MAC
// of that host at the port towards the box, and joins the addresses at the bridge.
func TestAHostBehindTheWire(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.wire, w.way = "eth0", ip2
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		w.expect(t, "after the first answer", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 9")
		want := api.EdgeQuestion{Protocol: 1, Host: ip1, Have: 5, Wait: 4000, Attach: "xdp generic", Mapped: 7, NoMapping: 3, Refused: 2}
		if got := w.boxes[box1].asked; got != want || w.from.Load() != ip2 {
			t.Errorf("the next question is %+v from %v, want %+v from %v", got, w.from.Load(), want, ip2)
		}
		another := eth0
		another.mac[5]++
		w.move(ip1, another)
		time.Sleep(asking.Wait)
		w.expect(t, "when the host has another MAC", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 9")
		stranger := given(0xb, 0x12)
		stranger.Host = ip2
		w.boxes[box1].say(6, stranger)
		w.expect(t, "after a mapping to its own IP", " | ")
		if got := w.boxes[box1].confirmed(); got != 5 {
			t.Errorf("answer %d is confirmed", got)
		}
	})
}

// Where the bridge becomes another interface, the addresses are joined there.
func TestTheBridgeIsMadeAnew(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.boxes[box1].say(5, given(0xa, 0x11))
		w.start(t)
		w.expect(t, "at first", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 2")
		anew := eth0
		anew.joins = 8
		w.move(ip1, anew)
		time.Sleep(asking.Wait)
		w.expect(t, "made anew", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 8")
	})
}

// Two hosts behind one port have a MAC each, and may be in different VLANs of the bridge. Neither
// changes what the other has.
func TestTwoNetworksBehindOneWire(t *testing.T) {
	w := newTwin()
	tagged := eth0
	tagged.mac[5], tagged.joins = 7, 12
	w.move(ip2, tagged)
	a := newAgent(Config{Boxes: []netip.AddrPort{box1}, IPs: []netip.Addr{ip1, ip2}, Wire: "eth0", Log: zap.NewNop()}, w)
	for range 2 {
		for _, p := range a.partners { // both have asked when the answers come
			if _, _, err := p.prepare(); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range a.partners {
			m := given(0xa+uint32(i), 0x11)
			m.Host = p.ip
			if err := p.load(api.EdgeAnswer{Number: 5, Mappings: []api.EdgeMapping{m}}); err != nil {
				t.Fatal(err)
			}
		}
		const want = "239.77.0.1 0xa to 0x11, 239.77.0.1 0xb to 0x11 | 239.77.0.1 at 12, 239.77.0.1 at 9"
		if got := w.has("eth0"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if n := w.programs["eth0"].open; n != 1 {
		t.Errorf("the program is attached %d times", n)
	}
}

// A VLAN device of the bridge is made anew, and what was joined at the former one is left, also
// where some addresses could not be joined there. What cannot be joined is not mapped.
func TestMembershipsAreOfTheNewestVLAN(t *testing.T) {
	w := newTwin()
	a := newAgent(Config{Boxes: []netip.AddrPort{box1}, IPs: []netip.Addr{ip1}, Wire: "eth0", Log: zap.NewNop()}, w)
	p := a.partners[0]
	one, two := given(0xa, 0x11), given(0xb, 0x12)
	two.To = shared.Next()
	all := api.EdgeAnswer{Number: 5, Mappings: []api.EdgeMapping{one, two}}
	vlan := func(joins int) error {
		at := eth0
		at.joins = joins
		w.move(ip1, at)
		_, _, err := p.prepare()
		return err
	}
	testlab.Must(t, vlan(12))
	testlab.Must(t, p.load(all))
	has := func(when, want string) {
		t.Helper()
		if got := w.has("eth0"); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	has("at first", "239.77.0.1 0xa to 0x11, 239.77.0.2 0xb to 0x12 | 239.77.0.1 at 12, 239.77.0.2 at 12")
	w.unjoined = two.To
	if err := vlan(13); err == nil {
		t.Error("nobody says that an address cannot be joined")
	}
	has("when one cannot be joined", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 13")
	w.unjoined = netip.Addr{}
	testlab.Must(t, vlan(14))
	has("with the next VLAN", "239.77.0.1 0xa to 0x11, 239.77.0.2 0xb to 0x12 | 239.77.0.1 at 14, 239.77.0.2 at 14")
	w.unjoined = two.To.Next()
	more := given(0xc, 0x13)
	more.To = w.unjoined
	if err := p.load(api.EdgeAnswer{Number: 6, Mappings: []api.EdgeMapping{one, more}}); err == nil {
		t.Error("nobody says that an address cannot be joined")
	}
	testlab.Must(t, p.load(api.EdgeAnswer{Number: 7, Mappings: []api.EdgeMapping{one}}))
	has("after one that could not be had", "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 14")
}

// At one port of a machine in the wire a leg becomes the packets of one queue pair. The second host
// behind it has copies of its own, and status says why.
func TestTwoHostsBehindOneWire(t *testing.T) {
	w := newTwin()
	w.move(ip2, eth0)
	a := newAgent(Config{Boxes: []netip.AddrPort{box1}, IPs: []netip.Addr{ip1, ip2}, Wire: "eth0", Log: zap.NewNop()}, w)
	var errs []error
	for i, p := range a.partners {
		if _, _, err := p.prepare(); err != nil {
			t.Fatal(err)
		}
		m := given(0xa, 0x11+uint32(i))
		m.Host = p.ip
		errs = append(errs, p.load(api.EdgeAnswer{Number: 5, Mappings: []api.EdgeMapping{m}}))
	}
	want := "10.77.3.100 to 239.77.0.1, QPN 0xa is mapped to 10.77.0.2 already, and not to 10.78.0.2 too: a leg has one queue pair at an interface"
	if errs[0] != nil || errs[1] == nil || errs[1].Error() != want {
		t.Errorf("%v, want %q", errs, want)
	}
	if got := w.has("eth0"); got != "239.77.0.1 0xa to 0x11 | 239.77.0.1 at 9" {
		t.Error(got)
	}
}
