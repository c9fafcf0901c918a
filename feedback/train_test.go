package feedback

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rocast/rocast/roce"
)

// While a group is plain, one Train event leaves the group in exactly the state in which one Data
// event for each packet leaves it, and its copies stand for theirs.
func TestTrainEqualsData(t *testing.T) {
	long, asked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const paths = 3
		repair := rapid.SampledFrom([]RepairPolicy{RepairOff, RepairLocal}).Draw(t, "repair")
		a, b := drawGroups(t, paths, repair, AckAll, 2)
		now, acts := Tick(0), []Action(nil)
		for range rapid.IntRange(0, 25).Draw(t, "events") {
			now += Tick(rapid.IntRange(0, 6000).Draw(t, "us")) * microsecond
			acts, _ = a.Step(now, drawEvent(t, a, paths), acts[:0])
			active := a.Plain()
			if active == 0 {
				continue
			}
			if rapid.Bool().Draw(t, "carried") {
				a.Step(now, Event{Kind: Carried, PSN: a.NextPSN(), MSN: 1, Last: true}, nil)
				if active = a.Plain(); active == 0 {
					continue
				}
			}
			b.CopyFrom(a)
			now += Tick(rapid.IntRange(0, 2000).Draw(t, "pause")) * microsecond
			train := Event{Kind: Train, PSN: a.NextPSN().Prev()}
			want := map[int]roce.PSN{} // the first packet of each path's copies
			packets := rapid.IntRange(1, 6).Draw(t, "packets")
			for range packets {
				data := Event{Kind: Data, PSN: a.NextPSN(), AckReq: rapid.Bool().Draw(t, "asks"), Last: rapid.Bool().Draw(t, "last")}
				data.First = !a.Inside()
				train.Add(data.AckReq, data.Last)
				acts, _ = a.Step(now, data, acts[:0])
				if len(acts) != active {
					t.Fatalf("a packet of a plain group with %d active paths causes %+v", active, acts)
				}
				for _, act := range acts {
					if _, has := want[act.Path]; !has {
						want[act.Path] = act.PSN
					}
				}
			}
			if packets > 2 {
				long++
			}
			if train.AckReq && train.FirstAsked != train.Asked {
				asked++
			}
			acts, outcome := b.Step(now, train, nil)
			got := map[int]roce.PSN{}
			for _, act := range acts {
				if act.Kind != Copy {
					t.Fatalf("a train causes %+v", act)
				}
				got[act.Path] = act.PSN
			}
			if outcome != Forwarded || len(acts) != active || !reflect.DeepEqual(got, want) {
				t.Fatalf("a train is %v and causes copies %v, want %v", outcome, got, want)
			}
			if a.quorum != nil {
				a.quorum.ranked, b.quorum.ranked = nil, nil // scratch space
			}
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("a train leaves\n%+v\n%+v\nand its packets leave\n%+v\n%+v", b, b.repair, a, a.repair)
			}
		}
	})
	if long == 0 || asked == 0 {
		t.Errorf("%d trains had three packets or more, and %d asked more than once", long, asked)
	}
}

// A train may end a lull in which the source was asked for its newest packet, and paces the source
// as its packets would.
func TestTrainPacesTheSource(t *testing.T) {
	g := New(Config{Policy: Policy{Repair: RepairLocal}, Paths: 1, FirstPSN: 10})
	g.Step(0, Event{Kind: Data, PSN: 10, First: true}, nil)
	g.Step(Tick(time.Millisecond), Event{Kind: Train, PSN: 12, MSN: 1, Last: true}, nil)
	if want := Tick(time.Millisecond) * 7 / 8; g.pace.pause != want {
		t.Errorf("the longest pause is %v, want %v: two packets came inside the message, one of them at once", g.pace.pause, want)
	}
}
