package sim

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/testlab"
)

// small is a setting that takes no time to play.
func small(losses ...float64) setting {
	s := stream(3)
	s.messages, s.losses = 32, losses
	return s
}

func measure(t testing.TB, s Scenario, m method) outcome {
	t.Helper()
	var r tester
	o, err := r.play(s, &m)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The table has a line for each method and loss rate. Without loss nothing is resent and every link
// of a group carries each packet once; loss costs goodput. How many runs are played at the same
// time changes nothing.
func TestCompare(t *testing.T) {
	s := small(0, 1e-3)
	text := func(workers int) string {
		var out strings.Builder
		c := Comparison{Runs: 3, Workers: workers}
		if err := c.compare(&out, &s); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	table := text(1)
	if other := text(4); other != table {
		t.Errorf("with one worker:\n%s\nwith four:\n%s", table, other)
	}
	lines := strings.Split(table, "\n")
	if want := "| 0 | every policy | 1.000 | 1.000 | 351 | 359 | 1.00 | 0.000 |"; lines[4] != want {
		t.Errorf("got  %s\nwant %s", lines[4], want)
	}
	var names []string
	for _, line := range lines[4:] {
		if f := strings.Split(line, " | "); len(f) > 1 {
			name, _, _ := strings.Cut(f[1], ", best")
			names = append(names, f[0]+" "+name)
			if without := f[0] == "| 0"; without != (f[7] == "0.000 |") || !without && f[2] >= "1.000" {
				t.Error(line)
			}
		}
	}
	want := []string{"| 0 every policy", "| 0 unicast", "| 0 chain, 4 slices", "| 0 chain", "| 0 binomial tree"}
	for _, m := range policies {
		want = append(want, "| 10^-3 "+m.name)
	}
	want = append(want, "| 10^-3 unicast", "| 10^-3 chain, 4 slices", "| 10^-3 chain", "| 10^-3 binomial tree")
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
	}
}

// The table has one line for all policies without loss, because there they do the same.
func TestPoliciesDoTheSameWithoutLoss(t *testing.T) {
	s := small()
	first := measure(t, s.scenario(0, policies[0].policy, 0), policies[0])
	for _, m := range policies[1:] {
		if o := measure(t, s.scenario(0, m.policy, 0), m); !reflect.DeepEqual(o, first) {
			t.Errorf("%s: %v in place of %v", m.name, o.took, first.took)
		}
	}
}

// The latency of a message ends when the last receiver has it, and that is here the one whose link
// is four times as slow: by unicast it comes second, so the link waits for one message before.
func TestLatencyIsThatOfTheLastReceiver(t *testing.T) {
	s := oneMessage(3)
	alone := oneMessage(1)
	one := measure(t, alone.scenario(0, feedback.Policy{}, 0), policies[0]).latencies[0]
	for times, m := range map[float64]method{4: policies[0], 5: {name: "unicast", shape: relaying.Unicast, slices: 1}} {
		slow := s.scenario(0, m.policy, 0)
		slow.Hosts[2].ToHost.PicosPerByte *= 4
		wants(t, m.name, measure(t, slow, m).latencies[0], one, times)
	}
}

// Where the box repairs and has the memory for it, the source resends nothing of what the links of
// the receivers lose.
func TestRepairSparesTheSource(t *testing.T) {
	s := small()
	s.legs = true
	resent := map[feedback.RepairPolicy]uint64{}
	for _, m := range policies {
		resent[m.policy.Repair] += measure(t, s.scenario(0, m.policy, 1e-2), m).resent
	}
	if resent[feedback.RepairOff] == 0 || resent[feedback.RepairLocal] != 0 {
		t.Errorf("resent: %v", resent)
	}
}

// Packets that are lost on the way to the switch load the source's link, and no other.
func TestBusiestLinkIsTheSources(t *testing.T) {
	s := small()
	scenario := s.scenario(0, feedback.Policy{}, 0)
	scenario.Hosts[0].ToSwitch.Loss = 1e-2
	packets := uint64(s.messages * s.bytes / comparedMTU)
	for _, m := range []method{policies[0], {name: "chain", shape: relaying.Chain, slices: 1}} {
		if o := measure(t, scenario, m); o.resent == 0 || o.busiest < packets+o.resent || o.busiest > packets+o.resent+uint64(s.messages) {
			t.Errorf("%s: %d frames on the busiest link, %d packets and %d resent", m.name, o.busiest, packets, o.resent)
		}
	}
}

// A run in which an invariant does not hold is no measurement.
func TestComparedRunsMustHold(t *testing.T) {
	s := small()
	scenario := s.scenario(0, feedback.Policy{}, 0)
	scenario.Limit = time.Microsecond
	var r tester
	if _, err := r.play(scenario, &policies[0]); err == nil || !strings.HasPrefix(err.Error(), "ends: not over in time") {
		t.Error(err)
	}
}

// Each run of a cell has losses of its own.
func TestRunsDiffer(t *testing.T) {
	testlab.Long(t)
	s := small(1e-2)
	c := Comparison{Runs: 2, Workers: 1}
	cells := c.cells(&s)
	if err := c.measure(&s, cells); err != nil {
		t.Fatal(err)
	}
	for _, c := range cells[1:] {
		if reflect.DeepEqual(c.runs[0], c.runs[1]) {
			t.Errorf("%s: both runs took %v", c.name, c.runs[0].took)
		}
	}
}

// A run is the same for the same seed, and losses differ from seed to seed.
func TestOutcomesComeFromTheSeed(t *testing.T) {
	s := small()
	for _, m := range []method{policies[0], {name: "chain", shape: relaying.Chain, slices: 8}} {
		var r tester
		var outcomes [3]outcome
		for k, seed := range []uint64{1, 2, 1} {
			var err error
			if outcomes[k], err = r.play(s.scenario(seed, m.policy, 1e-3), &m); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(outcomes[0].latencies); n != s.messages {
			t.Errorf("%s: %d messages, not %d", m.name, n, s.messages)
		}
		if !reflect.DeepEqual(outcomes[0], outcomes[2]) || reflect.DeepEqual(outcomes[0], outcomes[1]) {
			t.Errorf("%s: %v", m.name, outcomes)
		}
	}
}

// Losses are where the setting has them.
func TestLossesAreOnTheLinksOfTheSetting(t *testing.T) {
	for _, legs := range []bool{false, true} {
		s := small()
		s.legs = legs
		var r tester
		if _, err := r.play(s.scenario(0, feedback.Policy{}, 1e-2), &policies[0]); err != nil {
			t.Fatal(err)
		}
		for i := range r.group.w.hosts {
			h := &r.group.w.hosts[i]
			if loses := i > 0 || !legs; (h.toHost.lost > 0) != loses || (h.toSwitch.lost > 0) != loses {
				t.Errorf("legs only: %v; %v: %d and %d frames lost", legs, h, h.toHost.lost, h.toSwitch.lost)
			}
		}
	}
}

// The mean of a cell counts all runs, the median the one in the middle; of chains the table has the
// one with four slices and the fastest.
func TestCells(t *testing.T) {
	run := func(took int, l ...time.Duration) outcome { return outcome{took: time.Duration(took), latencies: l} }
	c := cell{runs: []outcome{run(9, 3, 1), run(1, 9), run(2, 4, 5)}}
	median := c.median(func(o *outcome) float64 { return float64(o.took) })
	if l := c.latencies(); c.mean() != 4 || median != 2 || !slices.Equal(l, []time.Duration{1, 3, 4, 5, 9}) {
		t.Errorf("mean %v, median %v, latencies %v", c.mean(), median, l)
	}
	for want, p := range map[int]int{1: 20, 2: 40, 3: 50, 5: 99} {
		if got := percentile([]int{1, 2, 3, 4, 5}, p); got != want {
			t.Errorf("percentile %d is %d, not %d", p, got, want)
		}
	}
	var names []string
	of := func(name string, slices, took int, loss float64) cell {
		return cell{method{name: name, slices: slices}, loss, []outcome{run(took)}}
	}
	for _, c := range listed([]cell{
		of("hold", 0, 1, 0), of("chain", 2, 5, 0), of("chain", 4, 7, 0), of("chain", 8, 6, 0),
		of("chain", 2, 3, 1), of("chain", 4, 2, 1), of("tree", 1, 9, 1),
	}) {
		names = append(names, fmt.Sprint(c.name, " ", c.loss))
	}
	want := []string{"hold 0", "chain, 4 slices 0", "chain, best: 2 slices 0", "chain, 4 slices 1", "chain, best: 4 slices 1", "tree 1"}
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
	}
}

// The full comparison has every setting once, with every loss rate; the default one is a part of
// it.
func TestSettings(t *testing.T) {
	type key struct {
		receivers, bytes int
		legs             bool
		delay            time.Duration
		timeout          uint8
	}
	of := func(s *setting) key { return key{s.receivers, s.bytes, s.legs, s.delay, s.timeout} }
	all := map[key]setting{}
	for _, s := range fullSettings() {
		if all[of(&s)] = s; len(s.losses) != 5 {
			t.Errorf("%v: %v", &s, s.losses)
		}
		if n := s.receivers * s.messages * s.bytes; n > 512<<20 {
			t.Errorf("%v: the receivers get %d bytes in a run", &s, n)
		}
	}
	if want := len(comparedReceivers) * 2 * 3 * 2 * 2; len(all) != want || len(fullSettings()) != want {
		t.Errorf("%d settings, of which %d differ, and not %d", len(fullSettings()), len(all), want)
	}
	for _, s := range defaultSettings() {
		if full, ok := all[of(&s)]; !ok || full.messages != s.messages || full.posted != s.posted {
			t.Errorf("%v is not in the full comparison", &s)
		}
	}
}

// The best number of slices is looked for from whole messages to one packet in a slice. To one
// receiver a chain and a tree are the same as unicast.
func TestMethods(t *testing.T) {
	pieces := func(s setting) (n []int) {
		for _, m := range s.methods(1e-3) {
			if m.name == "chain" {
				n = append(n, m.slices)
			}
		}
		return n
	}
	if got := pieces(stream(3)); !slices.Equal(got, []int{1, 2, 4, 8, 16, 32, 64}) {
		t.Error(got)
	}
	s := stream(1)
	if m := s.methods(1e-3); len(m) != len(policies)+1 || m[len(policies)].name != "unicast" {
		t.Error(m)
	}
}

// An error of a run names the line of the table and the seed.
func TestCompareReportsFailures(t *testing.T) {
	s := small(1e-2)
	s.timeout = 32
	c := Comparison{Runs: 1, Workers: 1}
	err := c.compare(io.Discard, &s)
	if err == nil || err.Error() != "`hold` at loss 0, seed 0: create queue pair: timeout exponent 32 exceeds 31" {
		t.Error(err)
	}
}
