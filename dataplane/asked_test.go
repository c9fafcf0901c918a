package dataplane_test

import (
	"context"
	"reflect"
	"sync"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// Every method of a Switch may be called while workers forward, and while captures begin and end.
// Under the race detector this finds what a method reads of a worker on another thread. Each call
// is made for a group with traffic and for one without.
func TestEverythingIsAskedWhileCapturesBeginAndEnd(t *testing.T) {
	engine := porttest.NewFanOut()
	r := newRunningWith(t, 2, false, engine)
	busy, quiet, passing := numbered(0), numbered(1), numbered(2)
	for _, g := range []*mft.Group{busy, quiet} {
		if _, err := r.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	groups := []mft.GroupID{busy.ID, quiet.ID}
	calls := map[string]func(){
		"Add": func() {
			if _, err := r.Add(passing); err != nil {
				t.Error(err)
			}
			if err := r.Remove(passing.ID); err != nil {
				t.Error(err)
			}
		},
		"Replace": func() {
			for i, id := range groups {
				if err := r.Replace(id, numbered(i)); err != nil {
					t.Error(err)
				}
			}
		},
		"GroupState": func() {
			for _, id := range groups {
				if _, ok := r.GroupState(id); !ok {
					t.Error("a group is gone")
				}
			}
		},
		"Trace": func() {
			for i := range groups {
				if _, err := r.Trace(0, dataOf(t, i)); err != nil {
					t.Error(err)
				}
			}
		},
		"TakePort": func() {
			port := &line{table: r.Table, pool: &porttest.Pool{}}
			r.Switch.TakePort(4, []dataplane.Port{port, port}, dataplane.Egress{})
		},
		"Astray":       func() { r.Astray() },
		"Counters":     func() { r.Counters() },
		"PortCounters": func() { r.PortCounters() },
		"RepairMemory": func() { r.RepairMemory() },
		"Retains":      func() { _ = r.Retains(feedback.Policy{Repair: feedback.RepairLocal}, 1024) },
		"Do":           func() { r.Do(1, func() {}) },
		"EndBatches":   func() { r.EndBatches() },
		"NextTurn": func() {
			for _, id := range groups {
				r.NextTurn(id)
			}
		},
		"RunningTurn": func() {
			for _, id := range groups {
				r.RunningTurn(id)
			}
		},
		"BeginTurn": func() {
			for _, id := range groups {
				r.BeginTurn(id, true)
			}
		},
		"UseFanOut": func() { r.UseFanOut(engine, nil) },
		"Table":     func() { r.Table() },
		"Capture": func() {
			for _, id := range groups {
				c, err := r.Capture(dataplane.CaptureConfig{One: true, Group: id, Kinds: dataplane.CaptureAll, Snap: dataplane.SnapLeast})
				if err != nil {
					t.Error(err)
					return
				}
				c.Read(func(*dataplane.Captured) {})
				c.Lost()
				c.Gone()
				c.Close()
			}
		},
	}
	// Remove follows Add; EndFanOut comes after Run; Workers is for those who do not call Run;
	// Notes returns a channel.
	covered := map[string]bool{"Run": true, "EndFanOut": true, "Workers": true, "Remove": true, "Notes": true}
	for i := range reflect.TypeFor[*dataplane.Switch]().NumMethod() {
		name := reflect.TypeFor[*dataplane.Switch]().Method(i).Name
		if calls[name] == nil && !covered[name] {
			t.Errorf("nothing calls %s", name)
		}
	}

	ctx, end := context.WithCancel(t.Context())
	var traffic, asking sync.WaitGroup
	traffic.Go(func() {
		for ctx.Err() == nil {
			// A worker that lags must not find more frames than its lines have room for: while it
			// waits for room, EndBatches waits for it.
			if r.lines[0][0].waiting() == 0 {
				r.lines[0][0].put(dataOf(t, 0))
			}
			r.waits[0].Wake()
			r.EndBatches()
			for _, l := range r.lines[0] {
				for len(l.out) > 0 {
					<-l.out
				}
			}
		}
	})
	for _, call := range calls {
		asking.Go(func() {
			for range 200 {
				call()
			}
		})
	}
	within(t, "asking", asking.Wait)
	end()
	traffic.Wait()
}
