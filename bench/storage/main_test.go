package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/edges"
)

func TestMain(m *testing.M) { boxes.Main(m) }

// The box crashes and comes back, a replica's power fails, and the replica gets what it lacks.
func TestTheLogSurvives(t *testing.T) {
	program := boxes.NeedProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	if err := run(ctx, &out, program, t.TempDir(), 1); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"the leader goes on without 10.77.0.4", "10.77.0.4 is back", "on the disks of all 3 replicas"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	t.Log(out.String())
}

// By a group the source sends each block once, by connections once for each replica.
func TestTheFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for seconds what other tests do, too")
	}
	program := boxes.NeedProgram(t)
	_, err := edges.Build(filepath.Dir(program))
	testlab.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const size = 16 << 10
	p := plan{rate: 20_000_000, span: 300 * time.Millisecond, alone: 3, sizes: []int{size}, stick: []int{size}}
	var out strings.Builder
	rows, err := measure(ctx, &out, program, t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "figures.json")
	if err := save(rows, path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	var saved []measured
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil || !slices.Equal(saved, rows) || len(rows) != 5 {
		t.Fatalf("saved %+v, %v", saved, err)
	}
	for i, want := range []struct {
		way            string
		replicas, sent int
	}{{byGroup, 3, 1}, {byEach, 3, 3}, {byShared, 8, 1}, {byOwn, 8, 1}, {byEach, 8, 8}} {
		m, copies, way := rows[i], float64(want.sent), want.way
		if m.Replicas != want.replicas || m.Way != way || m.SourceSent < copies*size || m.PerSecond <= 0 || m.P50 <= 0 || m.P99 < m.P50 || m.LoadedP50 <= 0 || m.Fsync <= 0 ||
			m.LinkShare <= 0 || m.LinkShare > 1.1 || m.HostsCPUs <= 0 {
			t.Errorf("by %s: %+v", way, m)
		}
	}
	if rows[0].SourceSent > 2*size {
		t.Errorf("by a group the source has sent %.0f bytes for a block of %d", rows[0].SourceSent, size)
	}
}

// senderOf is a sender whose replicas have stored so many records.
func senderOf(next uint64, need int, stored ...uint64) *sender {
	o := &sender{next: next, need: need, stored: stored, away: make([]bool, len(stored)), changed: make(chan struct{})}
	for range stored {
		o.replicas = append(o.replicas, &replica{})
	}
	return o
}

// A replica is given up only when enough others have everything, and when it has stored nothing
// meanwhile.
func TestWhoIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		before, stored []uint64
		want           []bool
	}{
		"one stands still":             {[]uint64{9, 9, 4}, []uint64{9, 9, 4}, []bool{false, false, true}},
		"it has stored more meanwhile": {[]uint64{9, 9, 4}, []uint64{9, 9, 5}, []bool{false, false, false}},
		"two stand still":              {[]uint64{9, 4, 4}, []uint64{9, 4, 4}, []bool{false, false, false}},
		"all stand still":              {[]uint64{4, 4, 4}, []uint64{4, 4, 4}, []bool{false, false, false}},
		"all have everything":          {[]uint64{9, 9, 9}, []uint64{9, 9, 9}, []bool{false, false, false}},
	} {
		o := senderOf(9, quorum, c.stored...)
		o.goOn(c.before)
		if !slices.Equal(o.away, c.want) {
			t.Errorf("%s: %v are given up, want %v", name, o.away, c.want)
		}
	}
}

// A record has its place when all replicas that are not given up have stored the one that was
// there.
func TestTheRoomOfARing(t *testing.T) {
	for _, c := range []struct {
		stored []uint64
		number uint64
		room   bool
	}{
		{[]uint64{0, 0, 0}, 3, true},
		{[]uint64{0, 0, 0}, 4, false},
		{[]uint64{5, 5, 1}, 4, true},
		{[]uint64{5, 5, 1}, 5, false},
		{[]uint64{9, 9, 2}, 5, true},
	} {
		o := senderOf(c.number, quorum, c.stored...)
		o.slots = 4
		if o.hasRoom(c.number) != c.room {
			t.Errorf("%v are stored: room for record %d: %v", c.stored, c.number, !c.room)
		}
	}
	o := senderOf(8, quorum, 8, 8, 1)
	o.slots, o.away[2] = 4, true
	if !o.hasRoom(8) {
		t.Error("a replica that was given up is waited for")
	}
}

// A block is stored when enough replicas have it, whichever these are. The last one counts for the
// place of a block, unless it was given up.
func TestWhatIsStored(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := senderOf(9, quorum, 9, 4, 7)
	if o.waitStored(ctx, 7) != nil || o.waitStored(ctx, 8) == nil {
		t.Errorf("%d blocks are stored, want 7", o.best(o.need))
	}
	for need, want := range map[int]uint64{1: 9, 2: 7, 3: 4} {
		if got := o.best(need); got != want {
			t.Errorf("%d replicas have %d records, want %d", need, got, want)
		}
	}
	if o.awaitStored(ctx) == nil {
		t.Error("not all have stored everything")
	}
	o.away[1] = true
	if o.awaitStored(ctx) == nil {
		t.Error("the third one lacks blocks")
	}
	o.stored[2] = 9
	if err := o.awaitStored(ctx); err != nil {
		t.Errorf("all that are left have everything: %v", err)
	}
}
