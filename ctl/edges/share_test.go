package edges

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// world is a Book, one group, and hosts whose edges ask.
type world struct {
	t     *testing.T
	book  *Book
	drawn roce.QPN
	turn  uint32

	undrawn error // why no QPN can be drawn
	at      []Receiver
}

func newWorld(t *testing.T, hosts ...byte) *world {
	w := &world{t: t, drawn: 100}
	w.book = NewBook(Config{Addresses: []netip.Prefix{netip.MustParsePrefix("239.77.0.0/28")}}, func() (roce.QPN, error) {
		if w.undrawn == nil {
			w.drawn++
		}
		return w.drawn, w.undrawn
	})
	for _, h := range hosts {
		w.at = append(w.at, receiver(h))
	}
	return w
}

func ip(h byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, h}) }

// receiver is the receiver at host h behind port eth1.
func receiver(h byte) Receiver {
	p := &mft.Path{Leg: mft.Leg{Port: 1, L2Bytes: 14, DestQPN: roce.QPN(h), Src: ip(100), Dst: ip(h)}, RemoteQPN: 1}
	return Receiver{Path: p, Port: "eth1", AddPSN: uint32(h)}
}

// share returns the QPN of each share and who is on it, as "101: 2 3".
func (w *world) share() string {
	w.t.Helper()
	shares, sharing := w.book.Share("g1", nil, w.turn, w.at)
	var text []string
	for _, s := range shares {
		line := fmt.Sprintf("%d:", s.DestQPN)
		for _, m := range s.Members {
			b := m.IP.As4()
			line += " " + string('0'+b[3])
			if at, known := sharing.Receivers[m]; !known || at.Own != "" || at.Edge == nil {
				w.t.Errorf("%v is on a share, and stands as %+v", m.IP, at)
			}
		}
		text = append(text, line)
	}
	return strings.Join(text, ", ")
}

// ask lets the edge of a host ask, which has loaded the answer with a number.
func (w *world) ask(h byte, have uint64) (answer api.EdgeAnswer, share []string) {
	share = w.book.Ask(time.Unix(0, 0), ip(h), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: have})
	answer, _ = w.book.Answer(ip(h))
	return answer, share
}

// loads lets the edges of hosts load what they are to map.
func (w *world) loads(hosts ...byte) {
	for _, h := range hosts {
		a, _ := w.ask(h, 0)
		w.ask(h, a.Number)
	}
}

func (w *world) expect(want string) {
	w.t.Helper()
	if got := w.share(); got != want {
		w.t.Errorf("shared: %q, want %q", got, want)
	}
}

// all makes the three hosts of a world share.
func (w *world) all() {
	w.loads(2, 3, 4)
	w.share()
	w.loads(2, 3, 4)
	w.expect("101: 2 3 4")
}

func TestReceiversShareWhenTwoEdgesHaveLoadedTheirMappings(t *testing.T) {
	w := newWorld(t, 2, 3, 4)
	w.expect("")
	if _, share := w.ask(2, 0); !slices.Equal(share, []string{"g1"}) {
		t.Errorf("the first question of a host lets %v share anew", share)
	}
	w.expect("") // one edge alone spares nothing
	w.ask(3, 0)
	w.expect("") // they have mappings now, and have not loaded them
	a, share := w.ask(2, 0)
	if len(share) != 0 || len(a.Mappings) != 1 {
		t.Fatalf("answer %+v, share %v", a, share)
	}
	want := api.EdgeMapping{Group: "g1", From: ip(100), To: a.Mappings[0].To, LegQPN: 101, Host: ip(2), QPN: 2, AddPSN: 2}
	if m := a.Mappings[0]; m.To != want.To || m.From != want.From || m.LegQPN != want.LegQPN || m.Host != want.Host || m.QPN != want.QPN || m.AddPSN != want.AddPSN {
		t.Errorf("the mapping is %+v, want %+v", m, want)
	}
	if !netip.MustParsePrefix("239.77.0.0/28").Contains(want.To) {
		t.Errorf("copies go to %v", want.To)
	}
	if _, share := w.ask(2, a.Number); !slices.Equal(share, []string{"g1"}) {
		t.Errorf("a confirmation lets %v share anew", share)
	}
	w.expect("") // one alone
	w.loads(3)
	w.expect("101: 2 3")
	w.loads(4)
	w.expect("101: 2 3") // its mapping is new
	w.loads(4)
	w.expect("101: 2 3 4")
}

// Without a QPN that nobody has used receivers have copies of their own.
func TestNothingIsSharedWithoutAQPN(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.loads(2, 3)
	w.undrawn = errors.New("the disk is full")
	w.expect("")
	_, sharing := w.book.Share("g1", nil, w.turn, w.at)
	if own := sharing.Receivers[w.at[0].Path.QP()].Own; own != "the disk is full" {
		t.Errorf("it has copies of its own because %q", own)
	}
	w.undrawn = nil
	w.share()
	w.loads(2, 3)
	w.expect("101: 2 3")
}

func TestAnAnswerThatWasNeverGivenConfirmsNothing(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.loads(2, 3)
	w.share()
	w.ask(2, 7)
	w.ask(3, 7)
	w.expect("")
}

// What a mapping says, or who has one, never changes in a generation.
func TestAChangeOfAMappingBeginsAnotherGeneration(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a receiver leaves":          func(w *world) { w.at = w.at[:2] },
		"another PSN":                func(w *world) { w.at[0].AddPSN++ },
		"another QP":                 func(w *world) { p := *w.at[0].Path; p.DestQPN++; w.at[0].Path = &p },
		"another turn":               func(w *world) { w.turn++ },
		"one gets no data any more":  func(w *world) { w.at[2].Idle = "it is behind" },
		"one may not share any more": func(w *world) { w.at[2].Unfit = "it is behind" },
		"all are behind another port": func(w *world) {
			for i := range w.at {
				w.at[i].Port = "eth2"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, 3, 4)
			w.all()
			change(w)
			w.expect("") // until the edges have confirmed
			a, _ := w.ask(2, 0)
			if len(a.Mappings) != 1 || a.Mappings[0].LegQPN != 102 {
				t.Errorf("the edge is to map %+v", a.Mappings)
			}
			w.loads(2, 3, 4)
			if got := w.share(); !strings.HasPrefix(got, "102: 2 3") {
				t.Errorf("shared: %q", got)
			}
		})
	}
}

// A receiver that is not reached at present has its mapping when it is again.
func TestAReceiverThatIsNotReachedKeepsItsGeneration(t *testing.T) {
	w := newWorld(t, 2, 3, 4)
	w.all()
	w.at[2].Path.Port, w.at[2].Port = mft.NoPort, ""
	w.expect("101: 2 3")
	w.at[2].Path.Port, w.at[2].Port = 1, "eth1"
	w.expect("101: 2 3 4")
}

func TestAnEdgeThatHasLostItsMappingsDoesNotShare(t *testing.T) {
	w := newWorld(t, 2, 3, 4)
	w.all()
	if _, share := w.ask(3, 0); !slices.Equal(share, []string{"g1"}) {
		t.Errorf("it lets %v share anew", share)
	}
	w.expect("101: 2 4")
}

func TestAnEdgeIsToldWhenItsGroupEnds(t *testing.T) {
	w := newWorld(t, 2, 3, 4)
	w.all()
	a, changed := w.book.Answer(ip(2))
	w.book.Forget("g1")
	select {
	case <-changed:
	default:
		t.Error("nobody says that the answer is another one")
	}
	b, _ := w.ask(2, 0)
	if len(b.Mappings) != 0 || b.Number == a.Number || b.Number == 0 {
		t.Errorf("the answer is %+v, and was %+v", b, a)
	}
}

func TestOneReceiverOfAHostShares(t *testing.T) {
	w := newWorld(t, 2, 3)
	second := receiver(3)
	second.Path.RemoteQPN, second.Path.DestQPN = 2, 33
	w.at = append(w.at, second)
	w.loads(2, 3)
	w.share()
	w.loads(2, 3)
	w.expect("101: 2 3")
	_, sharing := w.book.Share("g1", nil, w.turn, w.at)
	if own := sharing.Receivers[second.Path.QP()].Own; !strings.Contains(own, "another receiver of its host") {
		t.Errorf("the second one has copies of its own because %q", own)
	}
}

// A receiver comes to a host of which another one shares, and is before it in the file. The edge
// has loaded the mapping of the other one, which does not change.
func TestAnotherReceiverOfAHostGetsNoMappingOfThisGeneration(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.loads(2, 3)
	w.share()
	w.loads(2, 3)
	w.expect("101: 2 3")
	first := receiver(3)
	first.Path.RemoteQPN, first.Path.DestQPN = 2, 33
	w.at = []Receiver{first, w.at[0], w.at[1]}
	w.expect("") // until the edges have confirmed
	for _, m := range w.mappings(3) {
		if m.LegQPN == 101 || m.QPN != 33 {
			t.Errorf("the edge is to map %+v", m)
		}
	}
	w.loads(2, 3)
	w.expect("102: 3 2")
}

// mappings returns what the edge of a host is to map.
func (w *world) mappings(h byte) []api.EdgeMapping {
	a, _ := w.book.Answer(ip(h))
	return a.Mappings
}

// Hosts that have the same mappings as before a restart of the box need not load them again.
func TestTheNumberOfAnAnswerIsThatOfItsMappings(t *testing.T) {
	a, b := newWorld(t, 2, 3), newWorld(t, 2, 3)
	for _, w := range []*world{a, b} {
		w.loads(2, 3)
		w.share()
	}
	x, _ := a.ask(2, 0)
	y, _ := b.ask(2, 0)
	if x.Number != y.Number || x.Number == 0 {
		t.Errorf("the numbers are %d and %d", x.Number, y.Number)
	}
	z, _ := a.ask(3, 0)
	if z.Number == x.Number {
		t.Error("two hosts have one number for other mappings")
	}
}

// Generations of several groups may have one multicast address and one source. If their QPN were
// one too, an edge would give the copies of one group to the queue pair of the other.
func TestNoTwoGenerationsHaveOneQPN(t *testing.T) {
	w := newWorld(t, 2, 3, 4)
	w.all()
	w.drawn = 100 // so 101 is drawn again
	if shares, _ := w.book.Share("g2", nil, w.turn, w.at); len(shares) != 0 {
		t.Errorf("a group shares before its edges have loaded its mappings: %+v", shares)
	}
	a, _ := w.ask(2, 0)
	var got []string
	for _, m := range a.Mappings {
		got = append(got, fmt.Sprint(m.Group, ": ", m.LegQPN))
	}
	if text := strings.Join(got, ", "); text != "g1: 101, g2: 102" {
		t.Errorf("the edge of a host is to have %q", text)
	}
}

// fails lets the edge of a host say that it cannot load some mappings of its present answer.
func (w *world) fails(h byte, legs ...uint32) (share []string) {
	a, _ := w.book.Answer(ip(h))
	part := &api.EdgePart{Number: a.Number}
	for _, leg := range legs {
		part.Failed = append(part.Failed, api.EdgeFailure{LegQPN: leg, Reason: "no \x1b[31m space" + strings.Repeat("é", 200)})
	}
	return w.book.Ask(time.Unix(0, 0), ip(h), api.EdgeQuestion{Protocol: api.EdgeProtocol, Have: a.Number, Part: part})
}

// An edge that cannot load one mapping shares the copies of the other groups, and the Book says why
// it does not those of this one.
func TestAnEdgeThatCannotLoadOneMapping(t *testing.T) {
	w := newWorld(t, 2, 3, 4)
	w.all()
	other := func() string {
		shares, _ := w.book.Share("g2", nil, w.turn, w.at)
		if len(shares) == 0 {
			return ""
		}
		return fmt.Sprint(shares[0].DestQPN, len(shares[0].Members))
	}
	other()
	w.loads(2, 3, 4)
	if got := other(); got != "102 3" {
		t.Fatal(got)
	}
	if share := w.fails(4, 101, 9999); !slices.Equal(share, []string{"g1"}) {
		t.Errorf("it lets %v share anew", share)
	}
	w.expect("101: 2 3")
	if got := other(); got != "102 3" {
		t.Errorf("of the other group %s share", got)
	}
	_, sharing := w.book.Share("g1", nil, w.turn, w.at)
	at := sharing.Receivers[w.at[2].Path.QP()]
	if want := "its edge cannot map its copies: no  [31m space" + strings.Repeat("é", 73) + " ..."; at.Own != want || at.Fails != want {
		t.Errorf("it has copies of its own because %q, fails because %q, want %q", at.Own, at.Fails, want)
	}
	w.at[2].Box = "b4"
	if _, sharing = w.book.Share("g1", nil, w.turn, w.at); !strings.HasPrefix(sharing.Receivers[w.at[2].Path.QP()].Own, "box b4 cannot map its copies: no ") {
		t.Errorf("%+v", sharing)
	}
	if share := w.fails(4, 101); len(share) != 0 {
		t.Errorf("what is no news lets %v share anew", share)
	}
	w.loads(4)
	w.expect("101: 2 3 4")
}

// A part of an answer that was never given confirms nothing.
func TestAPartOfAnotherAnswerConfirmsNothing(t *testing.T) {
	w := newWorld(t, 2, 3, 4)
	w.all()
	w.book.Ask(time.Unix(0, 0), ip(4), api.EdgeQuestion{Protocol: api.EdgeProtocol, Part: &api.EdgePart{Number: 7}})
	w.expect("101: 2 3")
}
