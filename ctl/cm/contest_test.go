package cm

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// dieAfter plays a run whose source says nothing more when it has heard so many answers: its host
// is off. The receivers' programs begin anew whenever their run has ended.
func dieAfter(t *testing.T, answers int) *theatre {
	t.Helper()
	th := newTheatre(t, "b", "c")
	a := th.host("a")
	playPerftest(a, 1)
	a.isDead = answers < 0 // its REQ is under way
	step := a.step
	a.step = func(*actor) {
		if step(a); len(a.heard) == answers {
			a.isDead = true
		}
	}
	th.run(500 * time.Millisecond)
	if !a.isDead || answers < 11 && th.m.run == nil {
		t.Fatalf("the source has heard %q", a.heard)
	}
	return th
}

// restart is what users do with receivers that have failed: the programs listen anew.
func (th *theatre) restart(names ...string) {
	for _, name := range names {
		h := th.host(name)
		h.conns, h.last, h.said, h.over = map[uint32]*joint{}, 0, 0, ""
	}
}

// A source that dies without a word keeps no other host out: before the transfer, in it and behind
// it, the run has ended a second after another host has asked, and that host is served. The
// receivers' programs notice that the first run has ended.
func TestASourceThatDiedKeepsNobodyOut(t *testing.T) {
	const failed = "its receive failed"
	for _, answers := range []int{-1, 0, 1, 4, 6, 8, 9, 11} {
		th := dieAfter(t, answers)
		th.run(3 * time.Second)
		if answers == 11 {
			th.restart("b", "c")
		}
		if answers > 6 && answers < 11 && len(th.groups) != 1 {
			t.Fatalf("%d answers: groups %v", answers, th.groups)
		}
		reached := map[string]string{}
		for _, name := range []string{"b", "c"} {
			h := th.host(name)
			h.react = func(*joint, []byte) bool { return false }
			h.onFailure = func() {
				reached[name] = failed
				th.restart(name)
			}
		}
		d := th.host("d")
		playPerftest(d, 1)
		began := th.now
		for th.now < began+2*time.Second && len(d.heard) == 0 {
			th.run(50 * time.Millisecond)
		}
		want := "source 10.77.0.1 does not answer, and 10.77.0.4 waits for its receivers"
		if answers == 11 { // the receivers' programs were through
			want, reached["b"], reached["c"] = "every receiver has disconnected", failed, failed
		}
		if answers < 0 { // they were not connected yet
			reached["b"], reached["c"] = failed, failed
		}
		if len(d.heard) == 0 || reached["b"] != failed || reached["c"] != failed {
			t.Errorf("%d answers: after %v the other source is %q and has heard %q, the receivers: %v", answers, th.now-began, d.over, d.heard, reached)
			continue
		}
		if !slices.Contains(th.reasons(), want) {
			t.Errorf("%d answers: the run ended because %q", answers, th.reasons())
		}
		th.run(30 * time.Second)
		if d.over != "through" || len(th.groups) != 0 {
			t.Errorf("%d answers: the other source is %q, groups %v", answers, d.over, th.groups)
		}
	}
}

// A source whose data moves is there, although its host answers no question: it keeps its run, and
// nobody is told of it. What it sent before somebody asked proves nothing.
func TestASourceWhosePacketsMoveKeepsItsRun(t *testing.T) {
	for _, sends := range []bool{true, false} {
		th := newTheatre(t, "b", "c")
		a := th.host("a")
		playPerftest(a, 1)
		step := a.step
		a.step = func(*actor) {
			if a.isDead = len(a.heard) == 8; !a.isDead { // it transfers
				step(a)
			}
		}
		th.run(2500 * time.Millisecond) // it was asked once by then
		th.sent64 = 7                   // which the machine has not counted yet
		th.sending = sends
		th.request("d")
		if th.run(300 * time.Millisecond); !sends {
			th.sent64 = 3 // as when one of its queue pairs is not connected any more
		}
		th.run(1700 * time.Millisecond)
		want := ""
		if sends {
			want = "no resources, the run of 10.77.0.1 has not ended; it ends in 5 min unless source 10.77.0.1 goes on"
		}
		if th.refused != want || (th.m.run.control.key.addr == hostIPs["a"]) != sends {
			t.Errorf("it sends: %v, and the other one hears %q, the reasons are %q", sends, th.refused, th.reasons())
		}
		if !sends {
			continue
		}
		if th.run(time.Minute); len(th.notes) != 1 || th.m.run == nil {
			t.Errorf("told of %q, %q", th.notes, th.reasons())
		}
		th.sending = false
		if th.run(20 * time.Second); th.m.run != nil {
			t.Error("it sends nothing more, and its run is on")
		}
	}
}

// A source that dies behind its last packets keeps nobody out, although the box counts them while
// others come: what it sent before they asked proves nothing, whenever it is counted.
func TestACountThatIsUnderWayProvesNothing(t *testing.T) {
	for _, c := range []struct {
		name     string
		sent     uint64 // after the Count that is under way, before the others come
		later    bool   // packets move on when they have come
		hasEnded bool
	}{
		{"counted before the last packets", 7, false, true},
		{"counted behind them", 0, false, true},
		{"it sends", 7, true, false},
	} {
		th := dieAfter(t, 8)
		th.counted = func() {}
		th.sent64 = 5
		th.run(2 * time.Second) // until it is asked
		if !th.m.run.control.counting {
			t.Fatal("nothing is counted")
		}
		th.sent64 += c.sent
		th.request("d")
		late := th.counted
		th.counted = nil
		th.sending = c.later
		th.run(100 * time.Millisecond) // it is asked again later
		late()
		th.run(time.Second)
		if ended := slices.Contains(th.reasons(), "source 10.77.0.1 does not answer, and 10.77.0.4 waits for its receivers"); ended != c.hasEnded {
			t.Errorf("%s: the run is over %v, the other one hears %q, %q", c.name, ended, th.refused, th.reasons())
		}
	}
}

// Nor does what it has sent between two that came for its receivers, of whom the first gave up.
func TestWhatASourceSentBetweenTwoThatCame(t *testing.T) {
	th := dieAfter(t, 8)
	th.request("d")
	info := [72]byte{7: 4}
	th.step(Heard{hostIPs["d"], wire.MAD{Message: &wire.REJ{Pair: wire.Pair{Local: other}, Reason: wire.Timeout, InfoBytes: 8, Info: info}}})
	th.run(1100 * time.Millisecond)
	if r := th.m.run; r == nil || r.due != 0 {
		t.Fatalf("%+v", r)
	}
	th.sent64 = 7
	playPerftest(th.host("e"), 1)
	th.run(1100 * time.Millisecond)
	if got, want := th.reasons(), "source 10.77.0.1 does not answer, and 10.77.0.5 waits for its receivers"; !slices.Contains(got, want) {
		t.Errorf("the run ended because %q", got)
	}
}

// A run that no receiver is in any more ends at once, although its source says nothing.
func TestARunWithoutReceiversEnds(t *testing.T) {
	for _, answers := range []int{1, 8} {
		th := dieAfter(t, answers)
		for _, name := range []string{"b", "c"} {
			if th.m.run == nil {
				t.Fatalf("%d answers: the run has ended with receiver b", answers)
			}
			for _, j := range th.host(name).conns {
				j.disconnect()
			}
			th.run(0)
		}
		if c := th.m.all()[0]; th.m.run != nil || c.reason != "every receiver has disconnected" {
			t.Errorf("%d answers: the run is on, %q", answers, c.reason)
		}
	}
}

// Who speaks after the end of a run would wait for an answer: its receive fails.
func TestASourceThatSpeaksAfterTheEndOfItsRun(t *testing.T) {
	th := newTheatre(t, "b", "c")
	a := th.host("a")
	playPerftest(a, 1)
	step := a.step
	a.step = func(*actor) {
		if len(a.heard) == 8 {
			for _, name := range []string{"b", "c"} {
				for _, j := range th.host(name).conns {
					j.disconnect()
				}
			}
			th.queue = append(th.queue, func() { step(a) })
			return
		}
		step(a)
	}
	th.run(time.Second)
	if a.over != "its receive failed" {
		t.Errorf("the source is %q", a.over)
	}
}

// A source whose host answers and whose program does nothing ends its run by a time that fits: at
// its turn before the transfer, and without packets in it.
func TestASourceThatDoesNothing(t *testing.T) {
	for _, c := range []struct {
		answers int
		after   time.Duration
		sends   bool
		reason  string
	}{
		{1, usual.asking, false, "source 10.77.0.1 was silent for 30s at its turn"},
		{5, usual.asking, false, "source 10.77.0.1 was silent for 30s at its turn"},
		{8, usual.idle, false, "source 10.77.0.1 has sent nothing for 5m0s, and others may wait for its receivers"},
		{8, 0, true, ""},
	} {
		th := newTheatre(t, "b", "c")
		a := th.host("a")
		playPerftest(a, 1)
		step := a.step
		a.step = func(*actor) {
			if len(a.heard) < c.answers {
				step(a)
			}
		}
		th.sending = c.sends
		th.run(time.Second)
		th.run(c.after - 2*time.Second)
		if th.m.run == nil {
			t.Errorf("%d answers: the run has ended too early, %q", c.answers, th.reasons())
			continue
		}
		if th.run(3 * time.Second); c.sends {
			th.run(2 * usual.idle)
		}
		if (th.m.run == nil) != (c.reason != "") || c.reason != "" && !slices.Contains(th.reasons(), c.reason) {
			t.Errorf("%d answers: the run is on: %v, the reasons are %q", c.answers, th.m.run != nil, th.reasons())
		}
	}
}

// Nobody has to ask: the source of a run is asked every two seconds whether it is still there.
func TestASourceOfARunThatDies(t *testing.T) {
	th := dieAfter(t, 9)
	th.host("b").over, th.host("c").over = "", ""
	th.run(4 * time.Second)
	if want := []string{"1 a: it ends in 10 s unless source 10.77.0.1 answers"}; !slices.Equal(th.notes, want) {
		t.Errorf("told of %q, want %q", th.notes, want)
	}
	c := th.m.seen(th.m.all()[0])
	if ends := c.Ends.Sub(th.m.start).Truncate(time.Second); !c.HoldsRun || c.Unless != "source 10.77.0.1 answers" || ends != 14*time.Second {
		t.Errorf("%+v, ends after %v", c, ends)
	}
	th.run(9 * time.Second)
	if th.m.run == nil || len(th.notes) != 1 {
		t.Errorf("the run has ended too early, or is told of too often: %q", th.notes)
	}
	th.run(time.Second)
	if b, c := th.host("b").over, th.host("c").over; th.m.run != nil || b != "its receive failed" || c != b {
		t.Errorf("the run is on, receiver b is %q, c is %q", b, c)
	}
}

// A source that was silent for a while goes on, and the operator hears of both.
func TestASourceThatIsSilentForAWhile(t *testing.T) {
	th := dieAfter(t, 9)
	th.run(5 * time.Second)
	th.host("a").step, th.host("a").isDead = func(*actor) {}, false
	th.run(5 * time.Second)
	if want := []string{"1 a: it ends in 10 s unless source 10.77.0.1 answers", "2 a: it answers again"}; !slices.Equal(th.notes, want) || th.m.run == nil {
		t.Errorf("told of %q, want %q", th.notes, want)
	}
	if c := th.m.seen(th.m.all()[0]); c.Unless != "source 10.77.0.1 goes on" {
		t.Errorf("%+v", c)
	}
}

// While the source is asked, those that wait may give up, and the service may end. A source that is
// silent then keeps its run, because nobody waits.
func TestThoseThatWaitForARun(t *testing.T) {
	th := dieAfter(t, 9)
	th.request("d")
	th.request("d") // again: it is asked to wait
	if c := th.m.all()[2]; c.state != Waiting || th.m.counts[Repeated] != 1 || th.m.seen(c).Unless != "source 10.77.0.1 answers, whose run is on" {
		t.Errorf("%+v, %d again", c, th.m.counts[Repeated])
	}
	var info [72]byte
	info[7] = 4
	th.step(Heard{hostIPs["d"], wire.MAD{Message: &wire.REJ{Pair: wire.Pair{Local: other}, Reason: wire.Timeout, InfoBytes: 8, Info: info}}})
	th.run(2 * time.Second)
	if th.m.run == nil || th.m.run.due != 0 {
		t.Errorf("the run has ended for nobody: %q", th.reasons())
	}

	th = dieAfter(t, 9)
	th.request("d")
	th.step(Down{"taken down"})
	if th.refused != "consumer defined, taken down" || th.m.run != nil {
		t.Errorf("the host that waits hears %q; the run is on: %v", th.refused, th.m.run != nil)
	}
}

// One that waited and cannot be served leaves the receivers to the next one.
func TestOneThatWaitsAndCannotBeServed(t *testing.T) {
	th := dieAfter(t, 9)
	th.m.ways.(*wayTest).mtu = map[netip.Addr]int{hostIPs["e"]: 512}
	th.request("e")
	playPerftest(th.host("d"), 1)
	th.run(1100 * time.Millisecond)
	if th.refused != "invalid path MTU, e is reached by packets of 512, not of 1024" {
		t.Errorf("the first one hears %q", th.refused)
	}
	if d := th.host("d"); d.over == "" || len(d.heard) == 0 {
		t.Errorf("the next one is %q, and has heard %q", d.over, d.heard)
	}
}

// Of several that wait the first one is served, and the others hear of whose run they wait for now.
func TestSeveralWaitForARun(t *testing.T) {
	th := dieAfter(t, 9)
	playPerftest(th.host("d"), 1)
	th.run(0)
	th.request("e")
	th.run(1100 * time.Millisecond)
	if want := "no resources, the run of 10.77.0.4 has not ended; it ends in 8 s unless receiver 10.77.0.2 answers"; th.refused != want {
		t.Errorf("the second one hears %q, want %q", th.refused, want)
	}
}

// The source is asked five times in a second, also if several ask for its receivers. One that has
// given up is neither refused nor served.
func TestHowOftenASourceIsAsked(t *testing.T) {
	m := newMachine(testConfig("b"), newWays(), inBand, testSeed, usual, time.Time{})
	m.config.Memory = Perftest
	a, b, d, e := hostIPs["a"], hostIPs["b"], hostIPs["d"], hostIPs["e"]
	now := time.Duration(0)
	questions := 0
	step := func(e Event) {
		for _, action := range m.Step(now, e) {
			if send, ok := action.(Send); ok && send.MAD.Message.Attribute() == wire.AttrREP {
				questions++
			}
		}
	}
	req := func(from netip.Addr) { step(Heard{from, wire.MAD{Message: testREQ(from, 1, 1, 9, 0)}}) }
	givesUp := func(from netip.Addr) {
		info := [72]byte{7: 1}
		step(Heard{from, wire.MAD{Message: &wire.REJ{Pair: wire.Pair{Local: 1}, Reason: wire.Timeout, InfoBytes: 8, Info: info}}})
	}
	req(a)
	receiver := m.conns[1].receivers[0]
	step(Heard{b, wire.MAD{Message: &wire.REP{Pair: wire.Pair{Local: 2, Remote: receiver.pair.Local}, QPN: 7, RNRRetry: 7}}})
	rtu := Heard{a, wire.MAD{Message: &wire.RTU{Pair: wire.Pair{Local: 1, Remote: m.conns[1].source.pair.Local}}}}
	step(rtu)
	questions = 0

	req(d)
	req(e)
	if w := m.run.waits(m.conns[3], &m.limits); questions != 1 || w.ends != time.Second {
		t.Errorf("asked %d times at once, and those that wait do so for %v", questions, w.ends)
	}
	for range usual.asks - 1 {
		now += usual.ask
		step(nil)
	}
	now += usual.ask - 1
	if step(nil); questions != usual.asks || m.run.control.id != 1 {
		t.Errorf("asked %d times, the run is on: %v", questions, m.run.control.id == 1)
	}
	givesUp(d)
	if step(rtu); m.counts[TooMany] != 1 || len(m.notes) != 1 || m.notes[0].Source != e {
		t.Errorf("%d are refused, told of %+v", m.counts[TooMany], m.notes)
	}

	now += time.Minute / 4 // what has ended is forgotten
	step(nil)
	step(rtu)
	req(d)
	givesUp(d)
	step(Heard{b, wire.MAD{Message: &wire.DREQ{Pair: wire.Pair{Local: 2, Remote: receiver.pair.Local}, RemoteQPN: m.conns[1].qpn}}})
	if m.run != nil {
		t.Errorf("one that has given up is served: %+v", m.run.control)
	}
}

// Who waits for a source that is asked before it has confirmed hears when its run ends. If that
// source disconnects, the one that waits is served.
func TestASourceThatIsAskedBeforeItHasConfirmed(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		th := dieAfter(t, -1)
		th.request("d")
		control := th.m.run.control
		pair := wire.Pair{Local: control.source.pair.Remote, Remote: control.source.pair.Local}
		message, want := wire.Message(&wire.RTU{Pair: pair}), "no resources, the run of 10.77.0.1 has not ended; it ends in 30 s unless source 10.77.0.1 goes on"
		if leaves {
			message, want = &wire.DREQ{Pair: pair, RemoteQPN: control.qpn}, ""
		}
		if th.step(Heard{hostIPs["a"], wire.MAD{Message: message}}); th.refused != want {
			t.Errorf("it leaves: %v, the other one hears %q", leaves, th.refused)
		}
		if r := th.m.run; r == nil || (r.control.key.addr == hostIPs["d"]) != leaves {
			t.Errorf("it leaves: %v, and the run is %+v", leaves, r)
		}
	}
}

// A source that asks for more time before it confirms is there.
func TestASourceThatAsksForTimeKeepsItsRun(t *testing.T) {
	th := dieAfter(t, -1)
	th.request("d")
	source := th.m.run.control.source
	th.step(Heard{hostIPs["a"], wire.MAD{Message: &wire.MRA{Pair: wire.Pair{Local: source.pair.Remote, Remote: source.pair.Local}, ServiceTimeout: 24}}})
	if !strings.HasPrefix(th.refused, "no resources, the run of 10.77.0.1 has not ended; it ends in ") || !strings.HasSuffix(th.refused, " unless source 10.77.0.1 confirms") {
		t.Errorf("%q", th.refused)
	}
}

// Others that ask do not change the time that a slow program has to confirm: its kernel answers
// each question by asking for time, as it does when the REP comes again.
func TestOthersDoNotChangeTheTimeToConfirm(t *testing.T) {
	th := dieAfter(t, -1)
	source := th.m.run.control.source
	needsTime := Heard{hostIPs["a"], wire.MAD{Message: &wire.MRA{Pair: wire.Pair{Local: source.pair.Remote, Remote: source.pair.Local}, ServiceTimeout: 24}}}
	for i := range uint32(usual.tries) {
		th.step(Heard{hostIPs["d"], wire.MAD{Message: testREQ(hostIPs["d"], 100+i, 4, roce.QPN(100+i), 1)}})
		th.step(needsTime)
	}
	const want = "it ends in 8 s unless source 10.77.0.1 confirms"
	if got := th.m.run.waits(th.m.run.control, &usual).text(th.now); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	th.run(time.Second)
	th.step(needsTime)
	if want, got := "it ends in 26 s unless source 10.77.0.1 confirms", th.m.run.waits(th.m.run.control, &usual).text(th.now); got != want {
		t.Errorf("when the REP has come again: %q, want %q", got, want)
	}
}

// Packets of the source do not put the end off while its receivers have to answer.
func TestAReceiverThatDoesNotAnswerAfterTheTransfer(t *testing.T) {
	th := newTheatre(t, "b", "c")
	th.sending = true
	th.after("c", 9, func(*joint) {})
	playPerftest(th.host("a"), 1)
	th.run(time.Minute)
	const want = "receiver 10.77.0.3 was silent for 30s at its turn"
	if got := th.reasons(); th.m.run != nil || !slices.Contains(got, want) {
		t.Errorf("the run is on: %v, the reasons are %q", th.m.run != nil, got)
	}
}

// Others hear whose answer the run waits for, and that its group is being made.
func TestWhatOthersHearOfARun(t *testing.T) {
	th := newTheatre(t, "b", "c")
	th.after("c", 3, func(j *joint) { j.isDead = true })
	playPerftest(th.host("a"), 1)
	th.run(time.Second)
	th.request("d")
	th.run(time.Second)
	if want := "no resources, the run of 10.77.0.1 has not ended; it ends in 29 s unless receiver 10.77.0.3 answers"; th.refused != want {
		t.Errorf("%q, want %q", th.refused, want)
	}
	th = slowRun(t)
	th.request("d")
	th.run(time.Second)
	if want := "no resources, the run of 10.77.0.1 has not ended; its group is being made"; th.refused != want {
		t.Errorf("%q, want %q", th.refused, want)
	}
}

// The programs of the receivers have ended with the run before, and are started again a moment
// later. A host that has waited, or comes then, does not fail because they do not listen yet.
func TestReceiversThatListenAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration // since the end of the run; 0: it waits for it
		deaf  int           // so many requests meet no listener, 100 ms apart
		over  string
	}{
		{"it has waited", 0, 25, "through"},
		{"it comes a second later", time.Second, 15, "through"},
		{"they do not listen in time", 0, 1000, "rejected: invalid service ID"},
		{"it comes later, and they do not listen in time", time.Second, 25, "rejected: invalid service ID"},
		{"it comes much later", 3 * time.Second, 1, "rejected: invalid service ID"},
	} {
		th := dieAfter(t, 9)
		if c.after > 0 {
			th.request("e")
			th.run(time.Second)
			th.step(Down{"all end"}) // that of e too
			th.m.isDown = false
			th.run(c.after)
		}
		th.restart("b", "c")
		th.host("c").deaf = c.deaf
		d := th.host("d")
		playPerftest(d, 1)
		if th.run(1500 * time.Millisecond); c.deaf > 1 && d.over == "" {
			l := th.m.all()
			if got := th.m.seen(l[len(l)-1]).Unless; c.after == 0 && got != "receiver 10.77.0.3 listens" {
				t.Errorf("%s: it ends unless %q", c.name, got)
			}
		}
		if c.deaf == 1 && d.over == "" {
			t.Errorf("%s: it waits, and nobody has reason to listen again", c.name)
		}
		th.run(4 * time.Second)
		if d.over != c.over {
			t.Errorf("%s: it is %q, and has heard %q", c.name, d.over, d.heard)
		}
	}
}

// Nobody listens, and nobody has: each request is refused at once.
func TestReceiversThatNeverListened(t *testing.T) {
	th := newTheatre(t, "b", "c")
	th.host("c").deaf = 1000
	th.run(time.Second)
	for range 2 {
		a := th.host("a")
		a.over = ""
		playPerftest(a, 1)
		if th.run(0); a.over != "rejected: invalid service ID" {
			t.Errorf("it is %q", a.over)
		}
	}
}

// What a connection waits for has a name and a time in every state.
func TestWhatAConnectionWaitsFor(t *testing.T) {
	m := newMachine(testConfig("b", "c"), newWays(), inBand, testSeed, usual, time.Time{})
	now := time.Second
	a, b, c := hostIPs["a"], hostIPs["b"], hostIPs["c"]
	expect := func(about, want string) {
		t.Helper()
		if got := m.run.waits(m.conns[1], &m.limits).text(now); got != want {
			t.Errorf("%s: %q, want %q", about, got, want)
		}
	}
	step := func(e Event) []Action { return m.Step(now, e) }
	reply := func(from *side, psn uint32) {
		step(Heard{from.addr, wire.MAD{Message: &wire.REP{Pair: wire.Pair{Local: psn, Remote: from.pair.Local}, QPN: 7, RNRRetry: 7}}})
	}
	step(Heard{a, wire.MAD{Message: testREQ(a, 1, 1, 9, 0)}})
	expect("asked", "it ends in 8 s unless receiver 10.77.0.2 answers")
	sides := m.conns[1].receivers
	if sides[0].addr != b || sides[1].addr != c {
		t.Fatal(sides)
	}
	reply(sides[0], 11)
	expect("one has answered", "it ends in 8 s unless receiver 10.77.0.3 answers")
	step(Heard{c, wire.MAD{Message: &wire.MRA{Pair: wire.Pair{Local: 12, Remote: sides[1].pair.Local}, ServiceTimeout: 24}}})
	expect("the other one needs time", "it ends in 27 s unless receiver 10.77.0.3 answers")
	reply(sides[1], 12)
	expect("a group is made", "")
	step(Made{Connection: 1})
	expect("offered", "it ends in 8 s unless source 10.77.0.1 confirms")
	source := wire.Pair{Local: 1, Remote: m.conns[1].source.pair.Local}
	step(Heard{a, wire.MAD{Message: &wire.RTU{Pair: source}}})
	expect("established", "")
	for range 2 {
		now += usual.probe
		step(nil)
	}
	expect("silent", "it ends in 50 s unless source 10.77.0.1 answers")
	step(Heard{a, wire.MAD{Message: &wire.DREQ{Pair: source, RemoteQPN: 0x200}}})
	expect("the receivers are told", "it ends in 67 s")
}

// One source has a part of the connections.
func TestTheShareOfASource(t *testing.T) {
	m := newMachine(testConfig("b"), newWays(), inBand, testSeed, usual, time.Time{})
	ask := func(from string, n uint32) string {
		ip := hostIPs[from]
		for _, a := range m.Step(0, Heard{ip, wire.MAD{Message: testREQ(ip, n, 1, 0x100, 0)}}) {
			if send, ok := a.(Send); ok {
				if rej, ok := send.MAD.Message.(*wire.REJ); ok {
					return fmt.Sprintf("%v, %s", rej.Reason, strings.TrimRight(string(rej.PrivateData[:]), "\x00"))
				}
			}
		}
		m.conns[uint64(len(m.conns))].state, m.conns[uint64(len(m.conns))].req.QPN = Established, 0
		return ""
	}
	for n := range uint32(MaxConnections / shareOfASource) {
		if says := ask("a", n+1); says != "" {
			t.Fatalf("connection %d: %s", n+1, says)
		}
	}
	const want = "no resources, 10.77.0.1 has 256 connections, as many as one source may have"
	if says := ask("a", 1000); says != want {
		t.Errorf("one more hears %q", says)
	}
	if says := ask("d", 1000); says != "" {
		t.Errorf("another source hears %q", says)
	}
	m.conns[1].state = Over // a line of it may still have something to say
	if says := ask("a", 1001); says != "" {
		t.Errorf("one of its connections is over, and it hears %q", says)
	}
	if all, own := (&Config{Config: testConfig("b").Config}).most(); all != MaxConnections || own != 256 {
		t.Errorf("%d and %d", all, own)
	}
}

// What the box saw of a group stands behind the reason for which its connection has ended.
func TestTheReasonHasWhatTheBoxSaw(t *testing.T) {
	for _, saw := range []string{"", "10.77.0.3: it has answered packet 7 with NAK remote access error"} {
		m := newMachine(testConfig("b"), newWays(), inBand, testSeed, usual, time.Time{})
		m.Step(0, Heard{hostIPs["a"], wire.MAD{Message: testREQ(hostIPs["a"], 1, 1, 9, 0)}})
		c := m.conns[1]
		m.Step(0, Heard{hostIPs["b"], wire.MAD{Message: &wire.REP{Pair: wire.Pair{Local: 2, Remote: c.receivers[0].pair.Local}, QPN: 7, RNRRetry: 7}}})
		m.Step(0, Made{Connection: 1})
		m.Step(0, Heard{hostIPs["a"], wire.MAD{Message: &wire.RTU{Pair: wire.Pair{Local: 1, Remote: c.source.pair.Local}}}})
		m.Step(0, Heard{hostIPs["b"], wire.MAD{Message: &wire.DREQ{Pair: wire.Pair{Local: 2, Remote: c.receivers[0].pair.Local}, RemoteQPN: c.qpn}}})
		if len(m.news) != 0 {
			t.Error("told before it is known what the box saw")
		}
		m.Step(0, Removed{1, saw})
		want := "receiver 10.77.0.2 disconnected"
		if saw != "" {
			want += "; before that the box saw: " + saw
		}
		if c.reason != want || len(m.news) != 1 {
			t.Errorf("%q, want %q; told %d times", c.reason, want, len(m.news))
		}
		if m.Step(0, Removed{1, ""}); len(m.news) != 0 {
			t.Error("told twice")
		}
		m.Step(0, Removed{99, saw}) // it is forgotten
	}
}

// The private data of a REJ ends with a 0, however long the sentence is.
func TestASentenceInPrivateData(t *testing.T) {
	if b := inPrivate(strings.Repeat("x", 200)); b[146] != 'x' || b[147] != 0 {
		t.Errorf("%q", b)
	}
}
