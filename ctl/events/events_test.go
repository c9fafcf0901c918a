package events

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newLog() *Log { return New(func() time.Time { return noon }) }

func (l *Log) add(groups ...string) {
	for _, g := range groups {
		l.Add(api.Event{Kind: api.GroupCreated, Group: g})
	}
}

// read returns the numbers of the events.
func read(a api.Events) (seqs []uint64) {
	for _, e := range a.Events {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

func expect(t *testing.T, a api.Events, missed bool, seqs ...uint64) {
	t.Helper()
	if got := read(a); !slices.Equal(got, seqs) || a.Missed != missed {
		t.Errorf("events %v, missed %v; want %v, %v", got, a.Missed, seqs, missed)
	}
}

func TestAReaderGoesOnWhereItWas(t *testing.T) {
	l := newLog()
	first := l.After(api.Cursor{}, "")
	expect(t, first, false)
	if first.Events == nil {
		t.Error("no events are null in JSON")
	}
	l.add("a", "b")
	second := l.After(first.Cursor, "")
	expect(t, second, false, 1, 2)
	if e := second.Events[1]; e.Group != "b" || e.Kind != api.GroupCreated || !e.Time.Equal(noon) {
		t.Errorf("%+v", e)
	}
	expect(t, l.After(second.Cursor, ""), false)
	l.add("c")
	expect(t, l.After(second.Cursor, ""), false, 3)
	expect(t, l.After(api.Cursor{}, ""), false, 1, 2, 3)
	expect(t, l.After(api.Cursor{Run: second.Cursor.Run, Seq: 1}, ""), false, 2, 3)
}

// The cursor moves over the events of other groups, so that they do not count as missed later.
func TestOneGroupsEvents(t *testing.T) {
	l := newLog()
	l.add("a", "b", "a")
	got := l.After(api.Cursor{}, "a")
	expect(t, got, false, 1, 3)
	if got = l.After(got.Cursor, "b"); got.Cursor.Seq != 3 {
		t.Errorf("the cursor is %+v", got.Cursor)
	}
	expect(t, got, false)
}

func TestWhatIsNoLongerKeptIsSaidToBeMissed(t *testing.T) {
	l := newLog()
	for i := range Kept {
		l.add(fmt.Sprint(i))
	}
	begin := api.Cursor{Run: l.run}
	if got := l.After(begin, ""); got.Missed || len(got.Events) != Kept || got.Events[0].Seq != 1 {
		t.Errorf("%d events, missed %v", len(got.Events), got.Missed)
	}
	l.add("one more")
	got := l.After(begin, "")
	if !got.Missed || len(got.Events) != Kept || got.Events[0].Seq != 2 || got.Events[Kept-1].Group != "one more" {
		t.Errorf("%d events, missed %v", len(got.Events), got.Missed)
	}
	if got := l.After(api.Cursor{Run: l.run, Seq: 1}, ""); got.Missed || len(got.Events) != Kept {
		t.Errorf("%d events, missed %v", len(got.Events), got.Missed)
	}
	if got := l.After(api.Cursor{}, ""); got.Missed || len(got.Events) != Kept {
		t.Errorf("who has read nothing yet has missed nothing: %d events, missed %v", len(got.Events), got.Missed)
	}
}

// The daemon has started again, and its numbers begin again.
func TestAPlaceOfAnotherRun(t *testing.T) {
	was, l := newLog(), newLog()
	was.add("a", "b", "c")
	l.add("d")
	expect(t, l.After(was.After(api.Cursor{}, "").Cursor, ""), true, 1)
	expect(t, l.After(api.Cursor{Run: l.run, Seq: 9}, ""), true, 1)
}

func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		l.add("a")
		at := l.After(api.Cursor{}, "").Cursor
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan api.Events, 2)
		for _, group := range []string{"", "b"} {
			go func() { got <- l.Wait(ctx, at, group) }()
		}
		synctest.Wait()
		l.add("c")
		expect(t, <-got, false, 2)
		synctest.Wait()
		if len(got) != 0 {
			t.Error("it waited for group b")
		}
		l.add("b")
		expect(t, <-got, false, 3)
		go func() { got <- l.Wait(ctx, l.After(at, "").Cursor, "") }()
		synctest.Wait()
		cancel()
		expect(t, <-got, false)
		expect(t, l.Wait(ctx, api.Cursor{Run: "another"}, "none"), true)
	})
}
