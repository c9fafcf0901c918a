package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/softcast"
)

// The hosts that copy files run rocast-cp as processes of this program.
func TestMain(m *testing.M) {
	softcast.BeHost()
	boxes.Main(m)
}

// testSite returns a site for a test.
func testSite(t *testing.T, memory int) *site {
	return testSiteAt(t, layout{receivers: receivers, memory: memory})
}

func testSiteAt(t *testing.T, p layout) *site {
	t.Helper()
	testlab.NeedRoot(t)
	p.bin, p.rate, p.timeout = programs(t), 100_000_000, calmTimeout
	s, err := open(context.Background(), p)
	testlab.Permitted(t, err)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// programs builds what a box and the receivers' hosts run, and returns its directory.
func programs(t *testing.T) string {
	t.Helper()
	dir := filepath.Dir(boxes.MustProgram(t))
	_, err := edges.Build(dir)
	testlab.Must(t, err)
	return dir
}

func allWays() []*method {
	return []*method{
		rocast(nameRocast, keyShipped), unicast(nameOne, 1), unicast(nameThree, receivers), chain(nameChain, 4), tree(), pipeline(),
	}
}

// By every way all receivers get every byte of messages of odd sizes, several at a time, and all
// times and clocks are told. The source sends each byte once to a group, and three times to three
// receivers.
func TestEveryWayDeliversEverything(t *testing.T) {
	const posted, most = 3, 300_001
	s := testSite(t, posted*most)
	for _, bytes := range []int{64, 5000, most} {
		for _, m := range allWays() {
			for _, plain := range []bool{false, true} {
				if plain && !m.group && !strings.Contains(m.name, "unicast") {
					continue // a program that passes messages on has to hear of them
				}
				r, err := s.measure(t.Context(), m, job{bytes: bytes, posted: posted, plain: plain, least: 7, drain: testlab.Patience})
				if err != nil {
					t.Fatalf("%s, %d bytes: %v", m.name, bytes, err)
				}
				told := r.messages
				if plain {
					told = 0
				}
				if r.messages != 7 || len(r.acked) != 7 || len(r.told) != told || r.seconds <= 0 || r.elapsed < r.seconds {
					t.Errorf("%s, %d bytes: %d messages, %d acknowledged, %d told, %v of %v s", m.name, bytes, r.messages, len(r.acked), len(r.told), r.seconds, r.elapsed)
				}
				if r.source <= 0 || r.receivers <= 0 || r.sourceTime <= 0 || r.busiest > 1 || r.busiest <= 0 && r.elapsed > 0.1 {
					t.Errorf("%s: CPU times %+v", m.name, r.load)
				}
				copies := r.link * float64(s.rate) / byteRate * r.elapsed / float64(7*bytes)
				want := map[string]float64{nameRocast: 1, nameOne: 1, nameThree: 3, nameChain: 1, nameTree: 2, namePipe: 1.2}[m.name]
				if bytes == most && r.resent == 0 && (copies < want || copies > 1.3*want) {
					t.Errorf("%s: the source sent %.2f bytes for each byte of a message, want %.1f", m.name, copies, want)
				}
			}
		}
	}
}

// Behind one port all receivers get every byte by every way. Eight copies of a packet leave the
// port where each receiver has its own, and fewer where they share it: one, and the copies for
// receivers that are late on a busy machine.
func TestBehindOnePort(t *testing.T) {
	const bytes, messages = 60_000, 3
	s := testSiteAt(t, layout{receivers: behind, stick: true, memory: bytes})
	copies := map[string]float64{}
	for _, m := range stickWays() {
		r, err := s.measure(t.Context(), m, job{bytes: bytes, posted: 1, least: messages, drain: testlab.Patience})
		if err != nil || r.messages != messages {
			t.Fatalf("%s: %d messages, %v", m.name, r.messages, err)
		}
		copies[m.name] = float64(r.portBytes) / messages / bytes
	}
	if copies[nameShared] < 1 || copies[nameOwn] < 8 || copies[nameShared] >= copies[nameOwn] || copies[nameEight] > 0.1 || copies[nameChain] > 0.1 {
		t.Errorf("bytes that left the port for each of a message: %v", copies)
	}
}

// Shared copies that are slower than another way, or more than one packet for each of the source's,
// do not hold.
func TestPromisesBehindOnePort(t *testing.T) {
	took := map[int]map[string]sample{4096: {}}
	for _, m := range stickWays() {
		took[4096][m.name] = fixed(200, 3)
	}
	shared, chained := fixed(100, 3), fixed(99, 3)
	shared.portBytes = 3 * 4096 * 12 / 10
	took[4096][nameShared], took[4096][nameChain] = shared, chained
	sec := stickTable(1, []int{4096}, took)
	var not []string
	for _, h := range sec.Holds {
		if !h.OK {
			not = append(not, h.What)
		}
	}
	if len(sec.Holds) != 5 || len(not) != 2 || !strings.Contains(not[0], "1.20 bytes for each byte") || !strings.Contains(not[1], nameChain) {
		t.Errorf("%q of %+v", not, sec.Holds)
	}
	shared.portBytes = 3 * 4096 * 11 / 10
	took[4096][nameShared] = shared
	if sec := stickTable(1, []int{4096}, took); !sec.Holds[0].OK {
		t.Errorf("%+v", sec.Holds[0])
	}
}

// A transfer that does not end in time is an error that says so, and so is a byte at a receiver
// that differs from what was sent.
func TestAMeasurementThatFails(t *testing.T) {
	s := testSite(t, 1<<16)
	if err := s.lose(1_000_000); err != nil {
		t.Fatal(err)
	}
	_, err := s.measure(t.Context(), unicast(nameOne, 1), job{bytes: 1000, posted: 1, least: 1, drain: 100 * time.Millisecond})
	if !errors.Is(err, errSlow) || !strings.Contains(err.Error(), "0 of 1 messages") {
		t.Errorf("nothing gets through: %v", err)
	}
	if err := s.lose(0); err != nil {
		t.Fatal(err)
	}
	tr := newTransfer(chain(nameChain, 2), s.hosts, s.mesh, 5000, 2)
	tr.posts = []*message{{}}
	for _, h := range s.hosts[1:] {
		copy(h.memory, s.hosts[0].memory[:5000])
	}
	if err := tr.verify(); err != nil {
		t.Error(err)
	}
	s.hosts[3].memory[4999]++
	if err := tr.verify(); err == nil || !strings.Contains(err.Error(), "10.77.0.4") {
		t.Errorf("a wrong byte at the last receiver: %v", err)
	}
}

// fixed is a sample whose messages all took the same time.
func fixed(took time.Duration, messages int) sample {
	r := sample{seconds: 1, messages: messages}
	for range messages {
		r.told, r.acked = append(r.told, took), append(r.acked, took)
	}
	return r
}

// The tables say by figures whether what is promised holds.
func TestPromises(t *testing.T) {
	for _, c := range []struct {
		ours int
		ok   bool
	}{{979, false}, {981, true}} {
		got := map[string]rounds{
			nameOne: {fixed(time.Millisecond, 1000), fixed(time.Millisecond, 1000), fixed(time.Millisecond, 10)}, nameThree: {fixed(1, 1), fixed(1, 1), fixed(1, 1)},
			nameRocast: {fixed(time.Millisecond, c.ours), fixed(time.Millisecond, c.ours), fixed(time.Millisecond, c.ours)},
		}
		sec := iopsTable([]*method{unicast(nameOne, 1), unicast(nameThree, 3), rocast(nameRocast, "")}, got)
		if len(sec.Holds) != 1 || sec.Holds[0].OK != c.ok {
			t.Errorf("%d of 1000: %+v", c.ours, sec.Holds)
		}
	}
	took := map[int]map[string]sample{64: {}, 4096: {}}
	for _, got := range took {
		for _, name := range []string{nameRocast, nameThree, nameTree, nameChain, namePipe, "chain, 16 slices", "chain, 64 slices"} {
			got[name] = fixed(200, 3)
		}
		got[nameRocast], got[nameTree], got["chain, 16 slices"] = fixed(100, 3), fixed(100, 3), fixed(150, 3)
	}
	sec := broadcastTable(took)
	var not []string
	for _, h := range sec.Holds {
		if !h.OK {
			not = append(not, h.What)
		}
	}
	if len(sec.Holds) != 3 || len(not) != 1 || !strings.HasPrefix(not[0], "4 KiB: a group is faster than binomial tree") {
		t.Errorf("%+v", sec.Holds)
	}
	if len(sec.Rows) != 12 || sec.Rows[4][1] != "chain, 16 slices (best)" || sec.Rows[4][4] != "1.50" {
		t.Errorf("%q", sec.Rows)
	}
	f := consensusFigures{}
	f.Ratio = append(f.Ratio, struct {
		Replicas int
		Ratio    float64
	}{2, 1.91}, struct {
		Replicas int
		Ratio    float64
	}{4, 3.79})
	if holds := f.throughput().Holds; len(holds) != 2 || !holds[0].OK || holds[1].OK {
		t.Errorf("%+v", holds)
	}
}

// A row is marked when a CPU was busy for more than 80 % of the time. A box that spins marks it
// only if the link was not full.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		busiest, spinner, link float64
		want                   string
	}{
		{0.79, 0, 1, ""}, {0.81, 0, 1, "**CPU**"}, {0.81, 0.9, 0.1, "**CPU**"},
		{0.79, 0.79, 0.5, ""}, {0.79, 0.81, 0.94, "**box**"}, {0.79, 0.81, 0.96, ""}, {0.79, 0.81, 0, "**box**"},
	} {
		r := rounds{{load: load{busiest: c.busiest, spinner: c.spinner, link: c.link, source: 0.2}}, {load: load{busiest: 0.1, link: c.link, source: 0.4}}}
		l := r.load()
		if cells := l.cells(); len(cells) != len(loadColumns) || cells[5] != c.want || cells[0] != "30 %" {
			t.Errorf("%+v: %q", c, cells)
		}
	}
}

// The time of the source's timeout is told in packets of the link, by its rate.
func TestTheTimeoutInPackets(t *testing.T) {
	if text := lossTextAt(100_000_000); !strings.Contains(text, "is 67 ms, in which a link of 100 Mb/s carries 775 packets.") {
		t.Error(text)
	}
	if text := lossTextAt(12_500_000); !strings.Contains(text, "a link of 12.5 Mb/s carries 96 packets.") {
		t.Error(text)
	}
}

// Beside each ratio of shaped links stand that of another rate and that without a limit, each of
// its own rounds. A mark is that of its link, and the page hears where ours is behind.
func TestOverOtherLinks(t *testing.T) {
	b := &bench{rate: 100_000_000, plan: plan{linkSizes: []int{4 * kib}}}
	ways := []*method{unicast(nameOne, 1), rocast(nameRocast, "")}
	iops := byLink{}
	for rate, n := range map[int]int{100_000_000: 990, 50_000_000: 490, 0: 600} {
		busy := fixed(time.Millisecond, n)
		busy.busiest = map[int]float64{0: 1}[rate]
		one := max(1000-500*(rate%100_000_000)/50_000_000, 1)
		iops[rate] = map[string]rounds{nameOne: {fixed(time.Millisecond, one)}, nameRocast: {busy}}
	}
	sec := b.iopsOverLinks(ways, iops)
	want := [][]string{{nameOne, "1000", "1.00", "500", "1.00", "1000", "1.00"}, {nameRocast, "990", "0.99", "490", "0.98", "600 **CPU**", "0.60"}}
	if diff := cmp.Diff(want, sec.Rows); diff != "" || len(sec.Behind) != 1 || !strings.Contains(sec.Behind[0], "not shaped: a group of 3 does 0.60") {
		t.Errorf("%q\n%s", sec.Behind, diff)
	}
	if columns := []string{"", "IOPS, 100 Mb/s", "of 1 unicast, 100 Mb/s", "IOPS, 50 Mb/s", "of 1 unicast, 50 Mb/s", "IOPS, not shaped", "of 1 unicast, not shaped"}; !slices.Equal(sec.Columns, columns) {
		t.Errorf("%q", sec.Columns)
	}
	took := byLink{}
	for rate, group := range map[int]time.Duration{100_000_000: 100, 50_000_000: 200, 0: 90} {
		took[rate] = map[string]rounds{}
		for _, name := range []string{nameThree, nameTree, nameChain, namePipe, chainName(16), chainName(64)} {
			took[rate][name] = rounds{fixed(180*time.Microsecond, 3)}
		}
		took[rate][nameRocast] = rounds{fixed(group*time.Microsecond, 3)}
		took[rate][chainName(64)] = rounds{fixed(210*time.Microsecond, 3)}
	}
	took[50_000_000][chainName(64)] = rounds{fixed(150*time.Microsecond, 3)}
	sec = b.broadcastLinksTable([]int{4 * kib}, map[int]byLink{4 * kib: took})
	if len(sec.Rows) != len(broadcastRows) || !slices.Equal(sec.Rows[4], []string{"4 KiB", nameBestChain, "180", "1.80", "150", "0.75", "180", "2.00"}) {
		t.Errorf("%q", sec.Rows)
	}
	if len(sec.Behind) != 5 || !strings.HasPrefix(sec.Behind[3], "50 Mb/s, 4 KiB: chain, best of 16 and 64 slices takes 0.75") {
		t.Errorf("%q", sec.Behind)
	}
	f := consensusFigures{Rounds: 3, Links: []consensusLink{{2, 4_000_000, 3600, 1800, 2}, {2, 0, 9000, 9000, 1}, {4, 4_000_000, 3600, 900, 4}, {4, 0, 9000, 2000, 4.5}}}
	sec = f.overLinks()
	want = [][]string{{"2", "group", "3600", "2.00", "9000", "1.00"}, {"2", "each", "1800", "1.00", "9000", "1.00"}, {"4", "group", "3600", "4.00", "9000", "4.50"}, {"4", "each", "900", "1.00", "2000", "1.00"}}
	if diff := cmp.Diff(want, sec.Rows); diff != "" || len(sec.Behind) != 1 || !strings.HasPrefix(sec.Behind[0], "not shaped, 2 replicas: a group decides 1.00 times") {
		t.Errorf("%q\n%s", sec.Behind, diff)
	}
}

// Rates and ways take turns at one site. A rate is that of the links while its rounds are measured:
// shaped ones carry no more, and what nothing limits is faster than the slowest of them.
func TestLinksTakeTurns(t *testing.T) {
	const bytes = 40_000
	s := testSite(t, bytes)
	ways, rates := []*method{rocast(nameRocast, ""), unicast(nameThree, receivers)}, []int{8_000_000, 4_000_000, 0}
	got, err := s.interleaved(t.Context(), 2, rates, ways, job{bytes: bytes, posted: 1, least: 3, drain: testlab.Patience})
	if err != nil {
		t.Fatal(err)
	}
	for _, rate := range rates {
		for _, m := range ways {
			if len(got[rate][m.name]) != 2 {
				t.Fatalf("%s, %s: %d rounds", linkName(rate), m.name, len(got[rate][m.name]))
			}
			for _, r := range got[rate][m.name] {
				if carried := float64(r.sent) * byteRate / r.elapsed; r.sent < 3*bytes || rate > 0 && (carried > 1.1*float64(rate) || r.link <= 0) || rate == 0 && r.link != 0 {
					t.Errorf("%s, %s: %d bytes in %.3f s, %.2f of the link", linkName(rate), m.name, r.sent, r.elapsed, r.link)
				}
			}
		}
	}
	if free, slow := got[0][nameThree].median(toldP50), got[4_000_000][nameThree].median(toldP50); free >= slow {
		t.Errorf("without a limit a broadcast takes %.0f us, over links of 4 Mb/s %.0f", free, slow)
	}
}

// Every row has as many cells as the table has columns, every section a command, and a section that
// there is not is refused.
func TestTheShortFormRuns(t *testing.T) {
	testlab.NeedRoot(t)
	tiny := plan{rounds: 1, span: 20 * time.Millisecond, latency: time.Millisecond, latencySizes: []int{64}, broadcast: time.Millisecond,
		broadcastSize: []int{64, 4096}, linkSizes: []int{4096}, linkRounds: 1, rates: []int{0, 3906}, loss: 20 * time.Millisecond,
		stickRate: 100_000_000, stickSizes: []int{64, 4096}}
	b := &bench{plan: tiny, bin: programs(t), rate: 100_000_000}
	if err := b.run(t.Context(), "iops,latency,broadcast,loss,stick"); err != nil {
		t.Fatal(err)
	}
	if len(b.part.Left) > 0 || len(b.part.Sections) != 8 {
		t.Errorf("%d sections; left out: %+v", len(b.part.Sections), b.part.Left)
	}
	for _, s := range b.part.Sections {
		for _, row := range s.Rows {
			if len(row) != len(s.Columns) {
				t.Errorf("%s: %q has columns %q", s.Title, row, s.Columns)
			}
		}
		if len(s.Rows) == 0 || s.Command == "" {
			t.Errorf("%s has %d rows, by %q", s.Title, len(s.Rows), s.Command)
		}
	}
	if err := b.run(t.Context(), "iop"); err == nil || !strings.Contains(err.Error(), `no section "iop"`) {
		t.Error(err)
	}
	b.part.Sections[0].Holds = []report.Bound{{What: "x", OK: false}}
	if err := b.write(t.TempDir(), "", "", true); err == nil || !strings.Contains(err.Error(), "does not hold: x") {
		t.Error(err)
	}
}
