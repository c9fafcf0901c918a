package feedback

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rocast/rocast/roce"
)

// state returns everything that determines how a group acts.
func (g *Group) state(now Tick) []byte {
	b := g.AppendState(nil, 0, now)
	for i := range g.paths {
		b = g.AppendPath(b, i, 0, now)
	}
	return b
}

// drawGroups returns two groups with the same policy and first PSN.
func drawGroups(t *rapid.T, paths int, repair RepairPolicy, acks ...AckPolicy) (a, b *Group) {
	policy := Policy{
		Repair: repair,
		Ack:    rapid.SampledFrom(acks).Draw(t, "ack"),
		Nak:    rapid.SampledFrom([]NakPolicy{NakHold, NakLower}).Draw(t, "nak"),
	}
	if rapid.Bool().Draw(t, "silence") {
		policy.SilentAfter, policy.Evict = 20*time.Millisecond, rapid.Bool().Draw(t, "evict")
	}
	first := roce.PSN(rapid.SampledFrom([]uint32{0, 0xFFFFF8}).Draw(t, "first"))
	a = New(Config{Policy: policy, Paths: paths, FirstPSN: first, Restored: rapid.Bool().Draw(t, "restored")})
	return a, New(Config{Policy: policy, Paths: paths, FirstPSN: first})
}

// While a group is plain, one Carried event has exactly the effect of one Data event for each
// packet, and such a Data event causes only a copy for every active path.
func TestCarriedEqualsData(t *testing.T) {
	plain := 0
	rapid.Check(t, func(t *rapid.T) {
		const paths = 3
		a, b := drawGroups(t, paths, RepairOff, AckAll, 2)
		now, acts := Tick(0), []Action(nil)
		for range rapid.IntRange(0, 25).Draw(t, "events") {
			now += Tick(rapid.IntRange(0, 12).Draw(t, "ms")) * Tick(time.Millisecond)
			acts, _ = a.Step(now, drawEvent(t, a, paths), acts[:0])
			active := a.Plain()
			if active == 0 {
				continue
			}
			plain++
			b.CopyFrom(a)
			carried := Event{Kind: Carried}
			for range rapid.IntRange(1, 5).Draw(t, "packets") {
				data := Event{Kind: Data, PSN: a.NextPSN(), AckReq: rapid.Bool().Draw(t, "asks"), Last: rapid.Bool().Draw(t, "last")}
				data.First = !a.Inside()
				carried.PSN, carried.Last = data.PSN, data.Last
				if data.Last {
					carried.MSN++
				}
				acts, _ = a.Step(now, data, acts[:0])
				copies := 0
				for _, act := range acts {
					if act.Kind != Copy {
						t.Fatalf("a packet of a plain group causes %+v", act)
					}
					copies++
				}
				if copies != active {
					t.Fatalf("%d copies for %d active paths", copies, active)
				}
			}
			if acts, _ = b.Step(now, carried, acts[:0]); len(acts) != 0 {
				t.Fatalf("carried packets cause %+v", acts)
			}
			b.doubts.countedAt = a.doubts.countedAt // only paths in doubt are counted by it, and a plain group has none
			b.unprove(a)
			if !bytes.Equal(a.state(now), b.state(now)) {
				t.Fatalf("carried packets leave\n%+v\nand data packets\n%+v", b, a)
			}
		}
	})
	if plain == 0 {
		t.Error("no group was ever plain")
	}
}

// unprove copies to g what other knows about the order of copies: the order of an engine's copies
// is not known.
func (g *Group) unprove(other *Group) {
	g.doubts.recopied = other.doubts.recopied
	for i := range g.paths {
		g.paths[i].follows = other.paths[i].follows
	}
}

// When an engine begins or ends to carry packets, its copies and those of the core may overtake
// each other. If a receiver asks for one of these packets, in any round, one NAK does not prove
// that the receiver is behind.
func TestCarriedPacketsProveNothing(t *testing.T) {
	const b, c = 0, 1
	data := func(psn roce.PSN) Event { return Event{Kind: Data, PSN: psn, First: true, Last: true} }
	ack := func(path int, psn roce.PSN) Event {
		return Event{Kind: Response, Path: path, PSN: psn, Syndrome: roce.SyndromeUnlimited}
	}
	nak := func(path int, psn roce.PSN) Event {
		return Event{Kind: Response, Path: path, PSN: psn, Syndrome: roce.NAKSequence}
	}
	carried := func(psn roce.PSN) Event { return Event{Kind: Carried, PSN: psn, MSN: 1, Last: true} }
	for name, tt := range map[string]struct {
		events []Event
		want   Part // of c
	}{
		"a packet of the core's":         {[]Event{data(0), data(1), ack(b, 1), nak(c, 0)}, PartBehind},
		"the engine's behind the core's": {[]Event{data(0), ack(b, 0), ack(c, 0), data(1), ack(b, 1), carried(2), nak(c, 1)}, PartActive},
		"the core's behind the engine's": {[]Event{data(0), ack(b, 0), carried(1), data(2), ack(b, 2), nak(c, 1)}, PartActive},
		"the engine's last one":          {[]Event{data(0), carried(2), ack(c, 1), data(3), ack(b, 3), nak(c, 2)}, PartActive},
		"the core's alone again":         {[]Event{data(0), carried(1), ack(b, 1), ack(c, 1), data(2), data(3), ack(b, 3), nak(c, 2)}, PartBehind},
		"in a round that served its NAK": {[]Event{
			data(0), data(1), nak(c, 0), data(0), data(1), ack(b, 1), ack(c, 1), carried(2), data(3), ack(b, 3), nak(c, 2),
		}, PartActive},
		"in such a round, all copies the core's": {[]Event{
			data(0), data(1), nak(c, 0), data(0), data(1), ack(b, 1), ack(c, 1), data(2), data(3), ack(b, 3), nak(c, 2),
		}, PartBehind},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Config{Policy: Policy{Ack: 1}, Paths: 2})
			for _, ev := range tt.events {
				if ev.Kind == Carried && g.Plain() == 0 {
					t.Fatalf("the group is not plain before %+v", ev)
				}
				g.Step(0, ev, nil)
			}
			if got := g.Part(c); got != tt.want {
				t.Errorf("c is %v, want %v", got, tt.want)
			}
		})
	}
}

func drawEvent(t *rapid.T, g *Group, paths int) Event {
	near := func(psn roce.PSN) roce.PSN { return psn.Add(int32(rapid.IntRange(-3, 1).Draw(t, "away"))) }
	switch rapid.IntRange(0, 9).Draw(t, "event") {
	case 0:
		return Event{Kind: Timer}
	case 1:
		return Event{Kind: Data, PSN: near(g.NextPSN()), AckReq: rapid.Bool().Draw(t, "asks"), First: true, Last: rapid.Bool().Draw(t, "last")}
	case 2, 3, 4:
		return Event{Kind: Data, PSN: g.NextPSN(), First: !g.Inside(), Last: rapid.Bool().Draw(t, "last")}
	case 5:
		return Event{Kind: Response, Path: rapid.IntRange(0, paths-1).Draw(t, "path"), PSN: near(g.NextPSN()), Syndrome: roce.NAKSequence}
	case 6:
		return Event{Kind: Response, Path: rapid.IntRange(0, paths-1).Draw(t, "path"), PSN: near(g.NextPSN()), Syndrome: roce.SyndromeRNR(1)}
	}
	return Event{Kind: Response, Path: rapid.IntRange(0, paths-1).Draw(t, "path"), PSN: g.NextPSN().Prev(), Syndrome: roce.SyndromeUnlimited}
}

// After an engine has carried any number of packets, the core accepts the source's next packet and
// its resent packets.
func TestWindowFollowsWhatIsCarried(t *testing.T) {
	const first, step = roce.PSN(0xFFFF00), 1 << 20
	g := New(Config{Policy: Policy{Ack: 1}, Paths: 1, FirstPSN: first})
	sent := first
	g.Step(0, Event{Kind: Data, PSN: sent, First: true, Last: true}, nil)
	outcome := func(psn roce.PSN) Outcome {
		var alike Group
		alike.CopyFrom(g)
		_, outcome := alike.Step(0, Event{Kind: Data, PSN: psn}, nil)
		return outcome
	}
	for range 20 { // more packets than there are PSNs
		g.Step(0, Event{Kind: Response, PSN: sent, Syndrome: roce.SyndromeUnlimited}, nil)
		if g.Plain() != 1 {
			t.Fatalf("the group is not plain at PSN %d", sent)
		}
		sent = sent.Add(step)
		g.Step(0, Event{Kind: Carried, PSN: sent, MSN: step, Last: true}, nil)
		if o := outcome(sent.Next()); o != Forwarded {
			t.Fatalf("behind PSN %d the next packet is %v", sent, o)
		}
		if o := outcome(sent); o != Resent {
			t.Fatalf("PSN %d again is %v", sent, o)
		}
		if o := outcome(sent.Add(-Window - 1)); o != OutsideWindow {
			t.Fatalf("a packet %d below PSN %d is %v", Window+1, sent, o)
		}
		if d := sent.Sub(g.doubts.recopied.from); d < 0 || d > Window {
			t.Fatalf("packets from %d below PSN %d on are taken for copied again", d, sent)
		}
	}
}

// A group is plain only while its next packets need no decision.
func TestPlain(t *testing.T) {
	quiet := func() *Group {
		g := New(Config{Policy: Policy{Ack: 2}, Paths: 4})
		g.Step(0, Event{Kind: Data, First: true}, nil)
		g.paths[3].part = PartGone
		return g
	}
	if active := quiet().Plain(); active != 3 {
		t.Fatalf("%d paths are active, want 3", active)
	}
	for name, change := range map[string]func(*Group){
		"the source was not heard":         func(g *Group) { g.source.known = false },
		"nothing is known of the floor":    func(g *Group) { g.floor.known = false },
		"the source resends":               func(g *Group) { g.source.pos = g.source.pos.Prev() },
		"an ACK is due":                    func(g *Group) { g.merged.psn = g.merged.psn.Prev() },
		"a request was refused":            func(g *Group) { g.refusal.syndrome = roce.NAKInvalidRequest },
		"the source's QP ends":             func(g *Group) { g.end.syndrome = roce.NAKRemoteAccess },
		"the source was called back":       func(g *Group) { g.back.awaited = true },
		"a NAK waits":                      func(g *Group) { g.pending.sequence = 1 },
		"an RNR NAK waits":                 func(g *Group) { g.pending.rnr = 1 },
		"a path certainly lacks something": func(g *Group) { g.paths[1].lack = lackProven },
		"a path is in doubt":               func(g *Group) { g.paths[1].lack = lackDoubt },
		"a path does not count yet":        func(g *Group) { g.paths[1].fresh = true },
		"a path has not answered":          func(g *Group) { g.paths[1].part = PartUnknown },
		"a path joins":                     func(g *Group) { g.paths[1].part = PartJoining },
		"too few are left":                 func(g *Group) { g.paths[0].part, g.paths[1].part = PartGone, PartWaiting },
		"a path's QP has ended":            func(g *Group) { g.paths[1].part = PartDead },
		"a path is under repair":           func(g *Group) { g.retained.repairing = 1 },
	} {
		g := quiet()
		change(g)
		if active := g.Plain(); active != 0 {
			t.Errorf("%s: plain with %d active paths", name, active)
		}
	}
}

// An engine may carry packets within the window of the path that is furthest behind. Paths that get
// no data do not count.
func TestHorizon(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 1}, Paths: 3, FirstPSN: 100})
	g.Step(0, Event{Kind: Data, PSN: 100, First: true}, nil)
	g.Step(0, Event{Kind: Data, PSN: 101}, nil)
	g.Step(0, Event{Kind: Response, Path: 0, PSN: 101, Syndrome: roce.SyndromeUnlimited}, nil)
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 100, Syndrome: roce.SyndromeUnlimited}, nil)
	g.paths[2].part = PartGone
	if got, want := g.Horizon(), roce.PSN(100).Add(Window); got != want {
		t.Errorf("%d, want %d", got, want)
	}
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 101, Syndrome: roce.SyndromeUnlimited}, nil)
	if got, want := g.Horizon(), roce.PSN(101).Add(Window); got != want {
		t.Errorf("%d, want %d", got, want)
	}
}

// After a change of members the group is plain again as soon as no NAK waits any more, and its
// floor is found without allocating.
func TestPlainAfterRearrange(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 3}, Paths: 3})
	g.Step(0, Event{Kind: Data, PSN: 0, First: true}, nil)
	g.Step(0, Event{Kind: Data, PSN: 1}, nil)
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 1, Syndrome: roce.NAKSequence}, nil)
	from := []int{0, 1, 2}
	for range 5 {
		from = append(from, -1)
	}
	g.Rearrange(from, nil, nil)
	g.Rearrange(from[:3], nil, nil)
	for i := range 3 {
		g.Step(0, Event{Kind: Response, Path: i, PSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
	}
	if g.Plain() != 3 {
		t.Errorf("not plain: %+v", g.pending)
	}
	g.Rearrange(from, nil, nil)
	if n := testing.AllocsPerRun(10, g.recount); n != 0 {
		t.Errorf("finding the floor allocates %v times", n)
	}
}

// A NAK that waited when the source switched is forgotten: an engine may carry the next source's
// packets.
func TestPlainAfterASourceSwitch(t *testing.T) {
	g := New(Config{Policy: Policy{Ack: 1, Switch: SwitchForce}, Paths: 3})
	g.Step(0, Event{Kind: Data, PSN: 0, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Data, PSN: 1, First: true, Last: true}, nil)
	g.Step(0, Event{Kind: Data, PSN: 0, First: true, Last: true}, nil) // the source is back at 0
	g.Step(0, Event{Kind: Response, Path: 0, PSN: 1, Syndrome: roce.SyndromeUnlimited}, nil)
	g.Step(0, Event{Kind: Response, Path: 1, PSN: 1, Syndrome: roce.NAKSequence}, nil)
	if g.pending.sequence != 1 {
		t.Fatalf("no NAK waits: %+v", g.pending)
	}
	g.SwitchSource(SourceSwitch{PSN: 50, OldPath: -1, NewPath: 2}, nil)
	if g.Plain() != 1 {
		t.Errorf("not plain: %+v", g.pending)
	}
}

// A receiver that left long ago has no part in what the engine makes doubtful: its PSN may compare
// the other way round by now.
func TestCarriedForgetsWhoLeft(t *testing.T) {
	const first = 1<<23 + 1000
	g := New(Config{Policy: Policy{Ack: 2}, Paths: 4, FirstPSN: first})
	g.paths[3].part, g.paths[3].acked = PartGone, 0
	g.recount()
	g.Step(0, Event{Kind: Carried, PSN: first + 5, Last: true}, nil)
	g.Step(0, Event{Kind: Data, PSN: first + 6, First: true, Last: true}, nil)
	for path, ev := range []Event{
		{PSN: first + 6, Syndrome: roce.SyndromeUnlimited},
		{PSN: first + 6, Syndrome: roce.SyndromeUnlimited},
		{PSN: first + 6, Syndrome: roce.NAKSequence},
	} {
		ev.Kind, ev.Path = Response, path
		_, outcome := g.Step(0, ev, nil)
		if path == 2 && outcome != Behind {
			t.Errorf("a NAK for a packet that the core copied once is %v", outcome)
		}
	}
}

// After a restart nothing is a gap until a packet came that was certainly sent after it. A report
// of carried packets says that they came after the report before.
func TestCarriedPacketsEndTheGuessAfterARestart(t *testing.T) {
	const life = packetLife
	for _, c := range []struct {
		carried []Tick // when it is reported that one more packet was carried
		gap     bool
	}{
		{[]Tick{life - 1, life + 1}, false},
		{[]Tick{life, life + 1}, true},
		{[]Tick{5 * life}, false},
	} {
		g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1, FirstPSN: 100, Restored: true})
		acts, _ := g.Step(0, Event{Kind: Data, PSN: 500, First: true, Last: true, AckReq: true}, nil)
		acts, _ = g.Step(1, Event{Kind: Response, PSN: 500, Syndrome: roce.SyndromeUnlimited, MSN: 1}, acts[:0])
		for _, at := range c.carried {
			if g.Plain() == 0 {
				t.Fatal("the group is not plain")
			}
			acts, _ = g.Step(at, Event{Kind: Carried, PSN: g.NextPSN(), Last: true, MSN: 1}, acts[:0])
		}
		_, outcome := g.Step(9*life, Event{Kind: Data, PSN: g.NextPSN().Next(), First: true, Last: true}, acts[:0])
		if (outcome == Gap) != c.gap {
			t.Errorf("carried at %v: the packet behind one that is missing is %v", c.carried, outcome)
		}
	}
}

// A path that has left while an engine carried packets owes no answer to them.
func TestWhoHasLeftOwesNothingForWhatWasCarried(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 2})
	g.leave(1, PartGone)
	before := g.AppendPath(nil, 1, 0, 0)
	g.Step(0, Event{Kind: Carried, PSN: 0, MSN: 1, Last: true, AckReq: true, Asked: 0}, nil)
	if after := g.AppendPath(nil, 1, 0, 0); !bytes.Equal(after, before) {
		t.Errorf("it was %x, and is %x", before, after)
	}
}
