package client

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var epoch = time.Unix(1_000_000, 0)

// play steps a Fallback. Each word is a signal at a second: "9:bad". The result has the orders:
// unicast or multicast, probe, and the second of the next tick.
func play(f *Fallback, script string) string {
	signals := map[string]Signal{"tick": Tick, "failed": SendFailed, "bad": WentBad, "well": WentWell, "works": ProbeWorked, "dead": ProbeFailed}
	var said []string
	for _, word := range strings.Fields(script) {
		var second int
		var name string
		fmt.Sscanf(strings.Replace(word, ":", " ", 1), "%d %s", &second, &name)
		o := f.Step(epoch.Add(time.Duration(second)*time.Second), signals[name])
		text := o.Way.String()
		if o.Probe {
			text += " probe"
		}
		if !o.Look.IsZero() {
			text += fmt.Sprint(" ", int(o.Look.Sub(epoch)/time.Second))
		}
		said = append(said, text)
	}
	return strings.Join(said, ", ")
}

func TestFallback(t *testing.T) {
	pace := Pace{First: 2 * time.Second, Most: 10 * time.Second, Settled: 20 * time.Second}
	for _, c := range []struct{ what, script, want string }{
		{"it begins with a probe", "0:tick 1:tick 3:works 4:tick",
			"unicast probe, unicast, multicast, multicast"},
		{"a send that fails makes it fall back, and later it returns", "0:tick 0:works 30:failed 31:tick 32:tick 33:works",
			"unicast probe, multicast, unicast 32, unicast 32, unicast probe, multicast"},
		{"so does a degraded group", "0:tick 0:works 30:bad 31:failed 32:tick 33:works",
			"unicast probe, multicast, unicast 32, unicast 32, unicast probe, multicast"},
		{"pauses double up to the most", "0:tick 0:dead 2:tick 2:dead 6:tick 6:dead 14:tick 14:dead 24:tick 24:dead 33:tick 34:tick",
			"unicast probe, unicast 2, unicast probe, unicast 6, unicast probe, unicast 14, unicast probe, unicast 24, unicast probe, unicast 34, unicast 34, unicast probe"},
		{"a return that does not last counts as a failure", "0:tick 0:works 5:failed 7:tick 7:works 26:failed 30:tick 30:works 49:failed 57:tick",
			"unicast probe, multicast, unicast 7, unicast probe, multicast, unicast 30, unicast probe, multicast, unicast 57, unicast probe"},
		{"one that has settled does not", "0:tick 0:dead 2:tick 2:works 22:failed 24:tick 24:dead 28:tick 28:works 48:bad",
			"unicast probe, unicast 2, unicast probe, multicast, unicast 24, unicast probe, unicast 28, unicast probe, multicast, unicast 50"},
		{"a group that becomes bad while it is probed does not work", "0:tick 1:bad 2:works 4:tick 5:works",
			"unicast probe, unicast, unicast 4, unicast probe, multicast"},
		{"unless it is well again, as after it was created anew", "0:tick 1:bad 1:well 2:works",
			"unicast probe, unicast, unicast, multicast"},
		{"what was bad before the probe does not count", "0:tick 0:dead 1:bad 2:tick 3:works",
			"unicast probe, unicast 2, unicast 2, unicast probe, multicast"},
		{"a good word is no reason to return early", "0:tick 0:works 1:bad 1:well 2:well 3:tick",
			"unicast probe, multicast, unicast 3, unicast 3, unicast 3, unicast probe"},
		{"results of no probe change nothing", "0:tick 0:works 1:dead 2:works 3:failed 3:works 4:dead",
			"unicast probe, multicast, multicast, multicast, unicast 5, unicast 5, unicast 5"},
		{"failures in unicast are none of its business", "0:tick 0:failed 1:failed 1:works",
			"unicast probe, unicast, unicast, multicast"},
	} {
		if got := play(NewFallback(pace), c.script); got != c.want {
			t.Errorf("%s:\n%s\ngot  %s\nwant %s", c.what, c.script, got, c.want)
		}
	}
}

func TestTheDefaultPace(t *testing.T) {
	script := "0:tick"
	at := 0
	for _, pause := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		script += fmt.Sprintf(" %d:dead %d:tick", at, at+pause)
		at += pause
	}
	if got := play(NewFallback(Pace{}), script); strings.Count(got, "probe") != 9 {
		t.Error(got)
	}
	f := NewFallback(Pace{First: time.Hour})
	if got := play(f, "0:tick 0:dead 3600:dead"); got != "unicast probe, unicast 3600, unicast probe" {
		t.Error(got)
	}
	f = NewFallback(Pace{})
	if got := play(f, "0:tick 0:dead 1:tick 1:works 31:failed 60:works"); !strings.Contains(got, "unicast 32,") {
		t.Error(got)
	}
}

// A group that works for a moment whenever it is tried must not make a program go to and fro: in an
// hour it returns about once in a minute, and each fallback has its probe before.
func TestAFlappingGroupIsTriedLessOften(t *testing.T) {
	f, returns := NewFallback(Pace{}), 0
	way := Unicast
	random := rand.New(rand.NewPCG(1, 2))
	for ms := 0; ms < 3_600_000; ms += 100 {
		now := epoch.Add(time.Duration(ms) * time.Millisecond)
		s := Tick
		switch {
		case way == Multicast && random.IntN(5) == 0:
			s = []Signal{SendFailed, WentBad}[random.IntN(2)]
		case random.IntN(5) == 0:
			s = ProbeWorked
		case random.IntN(50) == 0:
			s = WentWell
		}
		o := f.Step(now, s)
		if o.Way == Multicast && way == Unicast {
			returns++
			if s != ProbeWorked {
				t.Fatalf("%v made it return", s)
			}
		}
		if o.Probe && o.Way == Multicast {
			t.Fatal("it probes what it uses")
		}
		way = o.Way
	}
	if returns < 55 || returns > 68 {
		t.Errorf("it returned %d times in an hour", returns)
	}
}
