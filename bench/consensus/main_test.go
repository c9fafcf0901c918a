package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

func TestMain(m *testing.M) { boxes.Main(m) }

func TestConsensus(t *testing.T) {
	program := boxes.NeedProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out strings.Builder
	s, err := open(ctx, &out, program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Log(s.Daemon.Log())
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	for _, part := range []struct {
		name string
		run  func(*testing.T, context.Context, *story)
	}{
		{"leaders in turn, and replicas that die", inTurn},
		{"a replica catches up from what the box has", catchesUp},
		{"a replica is told what it lacks", isTold},
		{"a new leader, and a replica that lacks entries", lags},
		{"an entry that only one replica has", diverges},
		{"only one replica can follow", oneFollows},
		{"the box is away", withoutBox},
		{"crashes as seeds draw them", drawn},
		{"too few replicas follow", tooFew},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, ctx, s) }) {
			return
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func inTurn(t *testing.T, ctx context.Context, s *story) {
	must(t, s.all(ctx, 2))
	s.report()
	if n := len(s.refusals); n != 2*(replicas+1-quorum) || !strings.Contains(s.refusals[0], "NAK remote access") {
		t.Errorf("the leaders before heard %q", s.refusals)
	}
}

// cut cuts the link of a replica that has everything, as the box knows too. It returns how many
// entries that is.
func cut(t *testing.T, ctx context.Context, s *story, r *replica) int {
	t.Helper()
	all := len(s.now.log)
	for {
		m, err := s.now.member(ctx, r)
		must(t, err)
		if m.Acked != nil && s.now.index(*m.Acked) == all-1 {
			break
		}
	}
	must(t, r.link.Lose(1_000_000))
	return all
}

// A link that carries nothing for a while does not concern the others. When it carries packets
// again, no program has to do anything.
func catchesUp(t *testing.T, ctx context.Context, s *story) {
	const missed = 300 // fewer than the box retains
	r := s.replicas[1]
	had := cut(t, ctx, s, r)
	must(t, s.decide(ctx, missed))
	if n := len(r.log()); n != had {
		t.Fatalf("the link is cut, and the replica has %d entries instead of %d", n, had)
	}
	must(t, r.link.Lose(0))
	must(t, s.check(ctx))
	m, err := s.now.member(ctx, r)
	must(t, err)
	if m.Part != "active" || m.Repair.Repaired < missed {
		t.Errorf("the box has sent %d packets again, and the replica is %s", m.Repair.Repaired, m.Part)
	}
	events, err := s.now.api.EventsAfter(ctx, s.now.events, s.now.group(), 0)
	must(t, err)
	if slices.ContainsFunc(events.Events, func(e client.Event) bool { return e.Kind == api.MemberBehind || e.Kind == api.MemberEvicted }) {
		t.Errorf("the replica has left: %+v", events.Events)
	}
}

// A link is cut for longer than the box has memory for. Then the box names the packet, and so the
// entry, from which on the replica lacks data. That is all that the leader has to send it.
func isTold(t *testing.T, ctx context.Context, s *story) {
	r := s.replicas[2]
	had := cut(t, ctx, s, r)
	must(t, s.decide(ctx, retained+some))
	must(t, r.link.Lose(0))
	var told client.Event
	for told.Seq == 0 { // a replica is behind when it has left several packets unanswered
		must(t, s.decide(ctx, 1))
		time.Sleep(time.Millisecond) // and these must be some time apart: a load, which goes on until the event
		events, err := s.now.api.EventsAfter(ctx, s.now.events, s.now.group(), 0)
		must(t, err)
		for _, e := range events.Events {
			if e.Kind == api.MemberBehind {
				told = e
			}
		}
	}
	if told.Member != r.host.IP.String() || s.now.index(*told.PSN) != had {
		t.Errorf("%s is said to lack entry %d; %v has %d entries", told.Member, s.now.index(*told.PSN), r.host.IP, had)
	}
	if m, err := s.now.member(ctx, r); err != nil || m.State != api.LeftOut || *m.Lacks != *told.PSN {
		t.Errorf("the group says %+v, %v", m, err)
	}
	if n := len(r.log()); n != had {
		t.Errorf("it has %d entries, and had %d", n, had)
	}
	must(t, s.follow(ctx, r, len(s.now.log))) // which lets it come back
	must(t, s.decide(ctx, some))
	must(t, s.check(ctx))
}

// The new leader writes what one of the replicas lacks once more, to all of them.
func lags(t *testing.T, ctx context.Context, s *story) {
	r := s.replicas[1]
	had := cut(t, ctx, s, r)
	must(t, s.decide(ctx, some))
	must(t, s.change(ctx))
	if s.now.base != had {
		t.Errorf("the new leader begins with entry %d, and a replica has %d entries", s.now.base, had)
	}
	must(t, r.link.Lose(0))
	must(t, s.check(ctx))
}

// A leader crashes when only one replica has its last entry, and that replica does not answer the
// next leader. Another entry is decided at the same place, and the replica takes it over when it
// comes back.
func diverges(t *testing.T, ctx context.Context, s *story) {
	alone, others := s.replicas[0], s.replicas[1:]
	for _, r := range others {
		cut(t, ctx, s, r)
	}
	s.op++
	bounded, crash := context.WithTimeout(ctx, 50*time.Millisecond)
	defer crash()
	if err := s.now.decide(bounded, s.op); err == nil {
		t.Fatal("one replica is no quorum")
	}
	undecided := s.now.log[len(s.now.log)-1]
	for !slices.Contains(alone.log(), undecided) { // its link is whole
		must(t, ctx.Err())
	}
	must(t, s.now.retire(ctx))
	must(t, alone.link.Lose(1_000_000))
	alone.away = true
	for _, r := range others {
		must(t, r.link.Lose(0))
	}
	_, err := s.lead(ctx)
	must(t, err)
	must(t, s.decide(ctx, some))
	if got := s.now.log[undecided.index]; got.op == undecided.op {
		t.Errorf("the new leader knows %+v", got)
	}
	must(t, alone.link.Lose(0))
	alone.away = false
	must(t, s.comeBack(ctx, alone))
	must(t, s.check(ctx))
}

// A replica dies with its log, and the box with what it kept for another one. By connections the
// leader goes on. The box says that the other replica is behind, and so the leader knows that the
// group will decide nothing any more.
func oneFollows(t *testing.T, ctx context.Context, s *story) {
	dead, r, before := s.replicas[0], s.replicas[1], s.anew
	cut(t, ctx, s, r)
	must(t, s.decide(ctx, some))
	dead.die()
	must(t, s.Daemon.Kill())
	must(t, s.Daemon.Start(ctx, s.Box))
	must(t, r.link.Lose(0))
	must(t, s.goOn(ctx, func(ctx context.Context) error { return errors.Join(s.decide(ctx, 1), s.now.back(ctx)) }))
	if s.anew != before+1 {
		t.Errorf("%d leaders began anew", s.anew-before)
	}
	must(t, s.comeBack(ctx, dead))
	must(t, s.check(ctx))
}

// While the box is away the leader decides by a connection to each replica; an earlier leader does
// not. When the box is back, the group gets what it lacks, and carries what follows.
func withoutBox(t *testing.T, ctx context.Context, s *story) {
	old, err := s.lead(ctx)
	must(t, err)
	must(t, s.Daemon.Kill())
	const many = 300 // more than the queue pair of the group holds
	must(t, s.decide(ctx, many))
	if s.now.direct != len(s.now.log) || !s.now.away {
		t.Errorf("%d of %d entries were decided by connections", s.now.direct, len(s.now.log))
	}
	first := old.decided
	s.op++
	if err := old.decide(ctx, s.op); !errors.Is(err, errFenced) || old.decided != first {
		t.Errorf("the leader before: %v, %d entries decided instead of %d", err, old.decided, first)
	}
	must(t, s.Daemon.Start(ctx, s.Box))
	must(t, s.now.back(ctx))
	must(t, s.decide(ctx, some))
	must(t, s.now.back(ctx)) // the group carries them; connections may be quicker on a busy machine
	must(t, old.retire(ctx))
	must(t, s.check(ctx))
}

// Whatever crashes while entries are under way, with links that lose packets and without.
func drawn(t *testing.T, ctx context.Context, s *story) {
	for seed := range uint64(4) {
		must(t, s.suffer(ctx, seed, 4))
	}
	t.Logf("%d entries were not decided when something crashed, %d leaders began anew", s.open, s.anew)
	if s.open == 0 {
		t.Error("no entry was under way when something crashed")
	}
}

// By a group the leader sends each entry once, by connections once for each replica.
func TestTheFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for seconds what other tests do, too")
	}
	program := boxes.NeedProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := plan{rate: 2_000_000, rates: []int{2_000_000, 1_000_000, 0}, rounds: 1, span: 300 * time.Millisecond, replicas: []int{2}, loads: []int{10}, bursts: []int{10}, repeats: 3}
	var out strings.Builder
	f, err := measure(ctx, &out, program, p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "figures.json")
	must(t, f.save(path))
	text, err := os.ReadFile(path)
	must(t, err)
	var saved figures
	must(t, json.Unmarshal(text, &saved))
	if !reflect.DeepEqual(&saved, f) || len(f.Ratio) != 1 {
		t.Errorf("%+v is saved as %+v", f, saved)
	}
	for _, rows := range [][]measured{f.Throughput, f.Load, f.Bursts} {
		if len(rows) != 2 {
			t.Fatalf("%+v", rows)
		}
		for i, way := range []string{byGroup, byEach} {
			m := rows[i]
			if m.Replicas != 2 || m.Way != way || m.P50 <= 0 || m.P99 < m.P50 || m.LinkShare <= 0 || m.Burst == 0 && m.LinkShare > 1.1 || m.HostsCPUs <= 0 {
				t.Errorf("%+v", m)
			}
			if m.Offered > 0 && m.PerSecond*m.Seconds > m.Offered*p.span.Seconds()+2 {
				t.Errorf("more entries than were offered: %+v", m)
			}
			// Figures are rounded, and one replica of two decides: the other one may lack what is
			// under way.
			entries := m.PerSecond * m.Seconds
			least := float64(packetBytes)*(float64(i+1)*entries-float64(i*outstanding)) - 0.1*entries
			if m.Burst == 0 && float64(m.Sent) < least {
				t.Errorf("%d bytes for %.0f entries: %+v", m.Sent, entries, m)
			}
		}
	}
	for i, rate := range p.rates {
		l, of := f.Links[i], float64(rate)/8/packetBytes // entries that such a link carries once
		if l.Replicas != 2 || l.Bits != rate || l.Group <= 0 || l.Ratio != l.Group/l.Each || rate > 0 && l.Group > 1.1*of {
			t.Errorf("links of %d bit/s, which carry %.0f entries/s: %+v", rate, of, l)
		}
	}
	if n := len(f.Links); n != len(p.rates) || f.Links[0].Ratio != f.Ratio[0].Ratio || f.Links[2].Each < f.Links[1].Each {
		t.Errorf("over links: %+v", f.Links)
	}
	if group := f.Throughput[0]; float64(group.Sent)/(group.PerSecond*group.Seconds) > 2*packetBytes {
		t.Errorf("an entry is sent more than once: %+v", group)
	}
	if !strings.Contains(out.String(), "times as many entries") {
		t.Errorf("it says\n%s", out.String())
	}
}

// By both ways an entry is decided when the majority has it, of which the leader is one: of two
// replicas one may be lost.
func TestAMajorityDecides(t *testing.T) {
	program := boxes.NeedProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := raise(ctx, program, plan{rate: 2_000_000}, 2)
	must(t, err)
	defer func() { must(t, r.Close()) }()
	for _, way := range []string{byGroup, byEach} {
		w, err := r.open(ctx, way)
		must(t, err)
		w.Receivers[1].Destroy()
		for range 10 {
			must(t, r.append(ctx, w, time.Now()))
		}
		if err := w.WaitFor(ctx, 10); err != nil {
			t.Errorf("by %s, with one of two replicas: %v", way, err)
		}
		must(t, r.close(ctx, way, w))
	}
}

// A replica that has lost its log promises nothing, and a leader needs the promises of a quorum.
func tooFew(t *testing.T, ctx context.Context, s *story) {
	s.replicas[0].die()
	s.replicas[1].die()
	old, err := s.lead(ctx)
	if err == nil || !strings.Contains(err.Error(), "only 1 replicas follow") || !strings.Contains(err.Error(), "has lost its log") {
		t.Errorf("the new leader says %v", err)
	}
	if s.now != old {
		t.Error("the new leader leads")
	}
}

// logOf is a log with these terms and ops.
func logOf(entries ...[2]uint64) (log []entry) {
	for _, e := range entries {
		log = append(log, after(log, e[0], e[1]))
	}
	return log
}

func memoryOf(logs ...[]entry) []byte {
	memory := make([]byte, logBytes)
	for _, log := range logs {
		for _, e := range log {
			copy(memory[entryBytes*int(e.index):], e.bytes())
		}
	}
	return memory
}

func TestALogEndsWhereItDoesNotFollow(t *testing.T) {
	old := logOf([2]uint64{1, 1}, [2]uint64{1, 2}, [2]uint64{1, 3}, [2]uint64{1, 4})
	other := logOf([2]uint64{1, 1}, [2]uint64{2, 5}, [2]uint64{2, 6}, [2]uint64{2, 7})
	hole := other[3:]
	torn := memoryOf(old)
	torn[2*entryBytes+30] ^= 1
	for name, c := range map[string]struct {
		memory []byte
		want   []entry
	}{
		"nothing":                      {memoryOf(), nil},
		"all":                          {memoryOf(old), old},
		"the tail of an older leader":  {memoryOf(old, other[:2]), other[:2]},
		"a hole with entries of older": {memoryOf(old, hole), old[:3]},
		"an entry that is not whole":   {torn, old[:2]},
		"memory that is full":          {memoryOf(old)[:2*entryBytes], old[:2]},
	} {
		if got := readLog(c.memory); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestANewLeaderGoesOnWithTheNewestLog(t *testing.T) {
	short, long := logOf([2]uint64{1, 1}), logOf([2]uint64{1, 1}, [2]uint64{1, 2})
	newer := logOf([2]uint64{1, 1}, [2]uint64{2, 3})
	for _, c := range []struct {
		logs   [][]entry
		best   []entry
		common int
	}{
		{[][]entry{nil, nil}, nil, 0},
		{[][]entry{short, long}, long, 1},
		{[][]entry{long, short, nil}, long, 0},
		{[][]entry{long, newer}, newer, 1},
		{[][]entry{append(slices.Clone(long), after(long, 1, 9)), newer}, newer, 1},
		{[][]entry{long, long}, long, 2},
	} {
		if best, n := newest(c.logs), common(c.logs); !slices.Equal(best, c.best) || n != c.common {
			t.Errorf("of %v: %v, %d in common", c.logs, best, n)
		}
	}
}

func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	good := logOf([2]uint64{1, 1}, [2]uint64{1, 2}, [2]uint64{2, 0}, [2]uint64{2, 4})
	for name, c := range map[string]struct {
		log  []entry
		want string
	}{
		"good":      {good, ""},
		"lost":      {good[:3], "entry 3, which was decided, is lost"},
		"changed":   {logOf([2]uint64{1, 1}, [2]uint64{1, 3}, [2]uint64{2, 0}, [2]uint64{2, 4}), "entry 1 is 3 and was decided as 2"},
		"reordered": {append(slices.Clone(good), after(good, 2, 3)), "entry 4 is 3, which was asked for before 4"},
		"twice":     {append(slices.Clone(good), after(good, 2, 4)), "entry 4 is 4, which was asked for before 4"},
	} {
		checks := checker{decided: map[uint64]uint64{}}
		for _, e := range good {
			checks.decide(e)
		}
		if err := checks.check(c.log); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	checks := checker{decided: map[uint64]uint64{}}
	checks.decide(good[1])
	checks.decide(entry{index: 1, op: 7})
	if err := checks.check(logOf([2]uint64{1, 1}, [2]uint64{1, 7})); err == nil || err.Error() != "entry 1 was decided as 2, and again as 7" {
		t.Errorf("decided twice: %v", err)
	}
}

// A leader that was replaced gets a replica neither by asking again, nor by letting it join again.
func TestAReplicaFollowsNoEarlierLeader(t *testing.T) {
	r := &replica{host: &bed.Host{}, term: 5, rkey: 7, seats: map[uint64]*seat{4: {rkey: 1}, 5: {rkey: 2}}}
	for _, term := range []uint64{4, 5} {
		if _, err := r.grant(term); err == nil || !strings.Contains(err.Error(), "follows the leader of term 5") {
			t.Errorf("term %d: %v", term, err)
		}
	}
	if _, err := r.restart(4); err == nil || !strings.Contains(err.Error(), "not that of term 4") {
		t.Errorf("it joins the group of the leader of term 4 again: %v", err)
	}
	if r.term != 5 || r.rkey != 7 {
		t.Errorf("%+v", r)
	}
}
