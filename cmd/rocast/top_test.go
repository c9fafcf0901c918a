package main

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// readings are two answers of a daemon, two seconds apart: g1 runs and its last receiver has
// stalled; g2 was made anew; g4 ends; another group is new, with a receiver that takes no part.
func readings() (before, now api.Traffic) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	receivers := func(a, b, c uint64) []api.ReceiverTraffic {
		return []api.ReceiverTraffic{
			{IP: "10.77.0.2", RemoteQPN: 1, Port: "eth2", State: api.Ready, Acknowledged: a, Lag: 12, LagSeconds: 0.00012},
			{IP: "10.77.0.3", RemoteQPN: 1, Port: "eth3", State: api.Ready, Acknowledged: b, Lag: 900, LagSeconds: 0.035, NAKs: b / 1000, CNPs: b / 500, Repaired: b / 100},
			{IP: "10.77.0.4", RemoteQPN: 1, Box: "leaf2", Port: "eth4", State: api.Ready, Acknowledged: c, Lag: 250000, LagSeconds: 2.13, RNRs: 7,
				Trouble: api.TroubleStalled, Reason: "it has stalled: it acknowledges nothing, and others are further"},
		}
	}
	twins := func(a, b uint64) []api.ReceiverTraffic {
		return []api.ReceiverTraffic{
			{IP: "10.77.0.5", RemoteQPN: 1, State: api.Ready, Acknowledged: a}, {IP: "10.77.0.5", RemoteQPN: 2, State: api.Ready, Acknowledged: b},
		}
	}
	out := api.ReceiverTraffic{IP: "10.77.0.9", RemoteQPN: 1, State: api.LeftOut, Trouble: api.TroubleEvicted, Reason: "evicted: it lacks the source's PSN 7"}
	before = api.Traffic{At: at, Groups: []api.GroupTraffic{
		{Name: "g1", Packets: 1000, Bytes: 4096000, Copies: 3000, CopyBytes: 12288000, Drops: api.Counters{"wrong-vlan": 2, "over-mtu": 5}, Receivers: receivers(1000, 1000, 500),
			Shares: []api.Share{{IP: "239.77.0.3", QPN: 77, Members: 3, Working: 3, Packets: 1000, Saved: 2000}}},
		{Name: "g2", Packets: 9000, Bytes: 9000},
		{Name: "g4", Packets: 10, Bytes: 1000, Receivers: twins(5, 7)},
	}}
	now = api.Traffic{At: at.Add(2 * time.Second), More: 3, Groups: []api.GroupTraffic{
		{
			Name: "g1", State: api.Degraded, Reason: "box leaf2: it has stalled: it acknowledges nothing, and others are further; and 4 more receivers of it",
			Carrier: api.CarrierKernel, Packets: 601000, Bytes: 4096000 + 600000*4096, Copies: 1803000, CopyBytes: 12288000 + 3*600000*4096, Resent: 4,
			Drops: api.Counters{"wrong-vlan": 22, "over-mtu": 5}, Receivers: receivers(600000, 560000, 500),
			Shares: []api.Share{{IP: "239.77.0.3", QPN: 77, Members: 3, Working: 2, Packets: 601000, Saved: 900000}, {IP: "239.77.0.3", QPN: 78, Members: 2, Working: 2, Packets: 7}},
		},
		{Name: "g2", State: api.Ready, Carrier: api.CarrierAFXDP, Packets: 8000, Bytes: 8000},
		{Name: "g4", State: api.Ready, Packets: 10, Bytes: 1000, Receivers: twins(5, 9)}, // it sends no more, and is acknowledged
		{Name: "a-group-with-a-long-name", State: api.Ready, Carrier: api.CarrierAFXDP, Packets: 8, Bytes: 800, Receivers: []api.ReceiverTraffic{out}},
	}}
	return before, now
}

func TestTopOfTwoReadings(t *testing.T) {
	reading := between(readings())
	var all, one strings.Builder
	printTop(&all, reading)
	golden(t, "top.txt", layout(all.String(), narrow))
	for i := range reading.Groups {
		printTopGroup(&one, &reading.Groups[i])
	}
	golden(t, "top_group.txt", layout(one.String(), narrow))
	text, err := json.MarshalIndent(reading, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "top_json.txt", string(text)+"\n")
}

func TestGroupsAreSorted(t *testing.T) {
	list := []groupRates{
		{Name: "b", InBytes: 1, OutBytes: 9, Drops: map[string]float64{"x": 2, "y": 2}},
		{Name: "c", InBytes: 3, OutBytes: 5, Receivers: []receiverRates{{IP: "1", Lag: 7}, {IP: "2", Lag: 3}}},
		{Name: "a", InBytes: 2, OutBytes: 7, Drops: map[string]float64{"x": 3}, Receivers: []receiverRates{{IP: "1", Lag: 8}}},
	}
	for order, want := range map[string]string{"in": "cab", "out": "bac", "drops": "bac", "lag": "acb", "name": "abc"} {
		sorted := slices.Clone(list)
		slices.SortStableFunc(sorted, orders[order])
		got := ""
		for _, g := range sorted {
			got += g.Name
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", order, got, want)
		}
	}
	if len(orders) != 5 {
		t.Errorf("%d orders", len(orders))
	}
}

// Where all receivers are equally far behind none is the slowest, unless one is in trouble.
func TestTheSlowestReceiver(t *testing.T) {
	r := func(ip string, lag uint64, trouble string) receiverRates {
		return receiverRates{IP: ip, Lag: lag, Trouble: trouble}
	}
	for _, c := range []struct {
		list []receiverRates
		want string
	}{
		{nil, ""},
		{[]receiverRates{r("a", 0, ""), r("b", 0, api.TroubleRefused)}, ""},
		{[]receiverRates{r("a", 7, "")}, "a"},
		{[]receiverRates{r("a", 7, ""), r("b", 8, "")}, "b"},
		{[]receiverRates{r("a", 7, ""), r("b", 7, ""), r("c", 3, "")}, "a"},
		{[]receiverRates{r("a", 7, ""), r("b", 7, "")}, everyReceiver},
		{[]receiverRates{r("a", 7, ""), r("b", 7, api.TroubleRefused), r("c", 7, "")}, "b"},
		{[]receiverRates{r("a", 7, ""), r("b", 8, ""), r("c", 7, api.TroubleRefused)}, "b"},
	} {
		g := groupRates{Receivers: c.list}
		if last, name := g.slowest(); name != c.want || (last == nil) != (name == "") {
			t.Errorf("%+v: %v %q, want %q", c.list, last, name, c.want)
		}
	}
}

func TestAmounts(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 0.04: "0.0", 0.5: "0.5", 0.94: "0.9", 0.96: "1", 1: "1", 9.6: "10", 999: "999", 999.4: "999", 999.6: "1.0K", 1500: "1.5K", 9940: "9.9K", 9960: "10K",
		999400: "999K", 1e6: "1.0M", 9.81e9: "9.8G", 98e12: "98T", 98e15: "98000T",
	} {
		if got := amount(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
	for s, want := range map[float64]string{
		0: "0", 0.00012: "120us", 0.0009996: "1ms", 0.035: "35ms", 0.9996: "1.0s", 2.13: "2.1s", 59.9: "59.9s", 61: "1m", 7200: "120m",
	} {
		if got := seconds(s); got != want {
			t.Errorf("%v s: %s, want %s", s, got, want)
		}
	}
}

// A daemon whose groups have carried something between two questions.
func TestTop(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.4"))
	d.sw.Traffic("g1", dataplane.Traffic{Packets: 100, Bytes: 102400, Copies: 200, CopyBytes: 204800, Sent: 100})
	d.every = time.Millisecond
	shown := d.must(t, "top", "--once")
	if lines := strings.Split(shown, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "GROUP") || !strings.HasPrefix(lines[1], "g1") {
		t.Errorf("\n%s", shown)
	}
	if one := d.must(t, "top", "g1", "-n", "2"); strings.Count(one, "g1 is ready\n") != 2 || strings.Count(one, "\n10.77.0.4 ") != 2 {
		t.Errorf("\n%s", one)
	}
	var reading topReading
	d.mustJSON(t, &reading, "top", "--once")
	if len(reading.Groups) != 1 || reading.Groups[0].InBytes != 0 || reading.Seconds <= 0 || math.IsInf(reading.Seconds, 0) {
		t.Errorf("%+v", reading)
	}
	if many := d.must(t, "top", "-n", "3", "--json"); strings.Count(many, "\n") != 3 || strings.Contains(many, "\n ") {
		t.Errorf("\n%s", many)
	}
	d.refused(t, exitRefused, api.NotFound, `there is no group "g9"; rocast group ls lists the groups`, "top", "g9", "--once")
	d.refused(t, exitUsage, api.Usage, `--sort is "size"; write drops, in, lag, name, out; see rocast top --help`, "top", "--sort", "size")
}

func TestDropsAreThoseOfTheDataPath(t *testing.T) {
	var want []string
	for r := range dataplane.NumReasons {
		if r.Refuses() && r != dataplane.Reason(feedback.Stale) && r != dataplane.SourceWaits { // these are taken, at once or later
			want = append(want, r.String())
		}
	}
	others := []string{"unsent", "classifier-drop_own_source", "classifier-pass_meta_failed", "classifier-pass_no_socket", "fan-out-copy_malformed", "fan-out-copy_stale"}
	want = append(want, others...)
	got := slices.Sorted(slices.Values(dropped))
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	all := meanings()
	for _, name := range dropped {
		if all[name] == "" {
			t.Errorf("%s has no sentence", name)
		}
	}
}

func TestDrops(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.4"))
	if got := d.must(t, "drops"); got != "none\n" {
		t.Errorf("%q", got)
	}
	d.sw.Count("wrong-vlan")
	d.sw.Count(feedback.Resent.String())
	var e explained
	d.mustJSON(t, &e, "drops", "--group", "g1")
	want := explained{
		Stats: api.Stats{Counters: api.Counters{"wrong-vlan": 1}}, Ports: api.Counters{},
		Meanings: map[string]string{"wrong-vlan": meanings()["wrong-vlan"]},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	d.refused(t, exitRefused, api.NotFound, `there is no group "g9"; rocast group ls lists the groups`, "drops", "--group", "g9")
	left := onlyDrops(explain(
		api.Stats{Counters: api.Counters{"forwarded": 9, "over-mtu": 2, "bad-icrc": 0}},
		api.Ports{Ports: []api.Port{{Kernel: api.Counters{"rx-ring-full": 3, "tx-withdrawn": 1, "rx-dropped": 0}}}}))
	want = explained{
		Stats: api.Stats{Counters: api.Counters{"over-mtu": 2}}, Ports: api.Counters{"rx-ring-full": 3},
		Meanings: map[string]string{"over-mtu": meanings()["over-mtu"], "rx-ring-full": meanings()["rx-ring-full"]},
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
}

// Each table is about the time since the table before, not since the first question.
func TestTopShowsTheLastSecond(t *testing.T) {
	at, sent := time.Unix(1000, 0), []uint64{0, 4000, 4000, 5000}
	d := another(t, func(w http.ResponseWriter, _ *http.Request) {
		at = at.Add(time.Second)
		_ = json.NewEncoder(w).Encode(api.Traffic{At: at, Groups: []api.GroupTraffic{{Name: "g1", Packets: sent[0]}}})
		sent = sent[1:]
	})
	d.every = time.Millisecond
	got := []float64{}
	for line := range strings.Lines(d.must(t, "top", "-n", "3", "--json")) {
		var reading topReading
		if err := json.Unmarshal([]byte(line), &reading); err != nil {
			t.Fatal(err)
		}
		got = append(got, reading.Groups[0].InPackets)
	}
	if want := []float64{4000, 0, 1000}; !slices.Equal(got, want) {
		t.Errorf("%v packets a second, want %v", got, want)
	}
}
