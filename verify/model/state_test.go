package model

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
)

// TestStateIsWhole fails when the merging's state gets a new field: check then whether
// feedback/clone.go must handle the field. If AppendState leaves out a field, the search takes two
// different states for the same one, and does not search what follows from the second.
func TestStateIsWhole(t *testing.T) {
	group := reflect.TypeFor[feedback.Group]()
	path, _ := group.FieldByName("paths")
	repair := field(group, "repair")
	leg, _ := repair.FieldByName("legs")
	shared, _ := repair.FieldByName("shared")
	for _, c := range []struct {
		of   reflect.Type
		want []string
	}{
		{group, []string{
			"replier", "away", "claim", "asking", "congestion",
		}},
		{field(group, "replier"), []string{"repair", "end", "refusal", "gap", "lull", "pace"}},
		{field(group, "stream"), []string{"receivers", "source", "again", "merged", "back", "floor", "doubts"}},
		{field(group, "receivers"), []string{"policy", "paths", "quorum", "needed", "absent", "beside", "relayed", "pending"}},
		{repair, []string{"stream", "legs", "shared", "tally", "room", "retained", "guess"}},
		{shared.Type.Elem(), []string{"on", "upTo"}},
		{field(group, "pace"), []string{"seenAt", "pause"}},
		{path.Type.Elem(), []string{
			"since", "acked", "msn", "from", "cnps", "pending", "credit", "part", "migReq", "silent", "fresh", "lack", "follows", "unheard", "told",
		}},
		{leg.Type.Elem(), []string{
			"cursor", "asked", "high", "resent", "since", "due", "backsAt", "window", "flight", "state", "attempts", "wentBack",
			"backs", "backoff", "carried", "running", "sampling", "sentAgain", "barred", "reported", "srtt", "sampleAt", "fromAt", "sample", "from",
			"varies", "quickest", "rate", "repaired", "probes", "givenUp",
		}},
		{field(repair, "retained"), []string{"oldest", "lowest", "at", "repairing", "running", "due"}},
		{field(repair, "guess"), []string{"stands", "until"}},
		{field(group, "gap"), []string{"calls", "rests", "seen", "since"}},
		{field(group, "lull"), []string{"acked", "asked", "seen", "since", "times", "spoke"}},
		{field(group, "source"), []string{"known", "inside", "asks", "told", "unsure", "first", "sent", "pos", "counted", "messages", "resentAt", "unanswered"}},
		{field(group, "again"), []string{"known", "psn", "msn"}},
		{field(group, "merged"), []string{"known", "psn", "highest", "msn", "flight"}},
		{field(group, "floor"), []string{"known", "migReq", "psn", "msn", "above", "need"}},
		{field(group, "back"), []string{"psn", "awaited", "asked", "came", "askedAt", "newest", "oneACK", "by"}},
		{field(group, "pending"), []string{"sequence", "rnr"}},
		{field(group, "refusal"), []string{"psn", "syndrome"}},
		{field(group, "end"), []string{"psn", "syndrome", "sent", "told", "cameAt"}},
		{field(group, "doubts"), []string{"recopied", "missed", "countedAt", "lowest", "began", "rounds"}},
		{field(field(group, "doubts"), "recopied"), []string{"some", "from", "to"}},
		{field(group, "asking"), []string{"turn", "begun", "calls", "from", "at"}},
		{field(group, "claim"), []string{"stands", "sent", "since"}},
	} {
		var got []string
		for i := range c.of.NumField() {
			got = append(got, c.of.Field(i).Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("fields of %v have changed: see that AppendState or AppendPath tells the new ones, then change this list\n%s",
				c.of, diff)
		}
	}
}

func field(of reflect.Type, name string) reflect.Type {
	f, _ := of.FieldByName(name)
	return f.Type
}

// TestEqualStatesActAlike computes the successors of a state each time the search finds it. States
// with the same fingerprint must have the same successors; otherwise the fingerprint is incomplete.
func TestEqualStatesActAlike(t *testing.T) {
	testlab.Long(t)
	for _, w := range []World{
		{Losses: 1, Receivers: 3},
		{Losses: 1, Receivers: 2, Policy: feedback.Policy{Nak: feedback.NakLower}, Doubles: 1},
		{Losses: 1, Receivers: 3, Policy: feedback.Policy{Ack: 2}},
		{Crashes: 1, Losses: 1, Receivers: 2},
		{Crashes: 1, Losses: 1, Receivers: 3, Late: 2, Policy: feedback.Policy{Ack: 2}},
		{Losses: 1, Deaths: 1, Receivers: 2, Ticks: 1, Policy: feedback.Policy{SilentAfter: 20e6, Evict: true}},
		{Losses: 1, Fatals: 1, Receivers: 2},
		{Read: 2, Losses: 1, Receivers: 2},
		{Losses: 1, Armed: 2, Receivers: 2},
		{Fatals: 1, Armed: 1, Receivers: 3, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
		{Crashes: 1, Armed: 1, Receivers: 3, Policy: feedback.Policy{Ack: 2}},
		{Losses: 2, Receivers: 2, Policy: repairs(1, 0)},
		{Losses: 1, Ticks: 1, Receivers: 2, Policy: repairs(2, 2)},
		{Shares: true, Losses: 1, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
		{Losses: 1, Forgets: 1, Receivers: 3, Policy: withRepair(repairs(1, 0), feedback.Policy{Ack: 2})},
		{NotReady: 1, Losses: 1, Receivers: 2, Policy: repairs(2, 0)},
		{Takes: 1, Losses: 1, Receivers: 3, Policy: force},
		{Takes: 2, Losses: 1, Receivers: 3, Next: true, Beside: 1, Policy: withRepair(repairs(1, 0), feedback.Policy{Ack: 2})},
	} {
		w.Packets, w.Message, w.First = 4, 2, 0xFFFFFE
		t.Run(w.String(), func(t *testing.T) {
			w.prepare()
			l := &look{engine: engine{World: &w}, follows: map[fingerprint]fingerprint{}}
			l.visit(t, w.start())
			t.Logf("%d states, met %d times again", len(l.follows), l.again)
		})
	}
}

// look is a search that remembers the successors of every state.
type look struct {
	engine
	encoder
	follows map[fingerprint]fingerprint
	again   int
}

func (l *look) visit(t *testing.T, s *state) {
	print := l.fingerprint(l.World, s)
	var all fingerprint // of the successors, independent of their order
	var next []*state
	for _, m := range l.moves(s, nil) {
		n := &state{}
		n.copyFrom(s)
		l.make(n, m)
		all += l.fingerprint(l.World, n)
		next = append(next, n)
	}
	was, met := l.follows[print]
	if !met {
		l.follows[print] = all
		for _, n := range next {
			l.visit(t, n)
		}
		return
	}
	l.again++
	if was != all {
		t.Fatalf("a state is met again, and something else follows from it")
	}
}
