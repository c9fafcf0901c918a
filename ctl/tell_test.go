package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/internal/testlab"
)

// failWith lets a box come back with a state of its members that an earlier release has stored
// after its source had switched.
func (b *box) failWith(state string) {
	b.f.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "groups", "g1.state"), []byte(state), 0o600); err != nil {
		b.f.t.Fatal(err)
	}
	b.restart(false, false)
}

func (b *box) state() (state, reason string) {
	g, err := b.Group("g1")
	if err != nil {
		return "", err.Error()
	}
	return g.State, g.Reason
}

// The box in the middle of a tree fails a group. Its neighbours hear it at once, not with the next
// renewal; and when it carries the group again, they hear that too.
func TestABoxThatFailsAGroupTellsItsNeighbours(t *testing.T) {
	const why = "the source had switched before the daemon ended"
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1", "10.4.0.1"))
	b1, b2, b3 := f.box("b1"), f.box("b2"), f.box("b3")
	now := time.Now() // no renewal is due
	f.tendAll(now)
	for _, b := range []*box{b1, b3} {
		if state, reason := b.state(); state != api.Ready {
			t.Fatalf("%s: %s (%s)", b.name, state, reason)
		}
	}
	b2.failWith(`{"sourceSwitched": true}`)
	f.tendAll(now)
	f.tendAll(now)
	for _, b := range []*box{b1, b3, f.box("b4")} {
		if state, reason := b.state(); state == api.Ready || !strings.Contains(reason, why) || !strings.Contains(reason, "b2") {
			t.Errorf("%s: %s (%s)", b.name, state, reason)
		}
	}
	if b2.isUnsettled() {
		t.Error("b2 tells them again and again")
	}
	b2.failWith(`{}`)
	testlab.Eventually(t, 20*time.Second, "all boxes carry the group", func() bool {
		f.tendAll(time.Now())
		for _, b := range f.boxes {
			if state, _ := b.state(); state != api.Ready {
				return false
			}
		}
		return true
	}, func() string { s, r := b1.state(); s3, r3 := b3.state(); return s + r + s3 + r3 })
}

// A neighbour that does not answer is told again.
func TestANeighbourIsToldAgain(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	f.cuts(func(from, to, method string) (arrives, answered bool) { return from != "b2", true })
	b2 := f.box("b2")
	b2.failWith(`{"sourceSwitched": true}`)
	f.tendAll(time.Now())
	f.cuts(nil)
	f.tendAll(time.Now())
	if state, _ := f.box("b3").state(); state != api.Degraded {
		t.Errorf("b3: %s", state)
	}
}

// Only the box that asked for a branch is told of it.
func TestAStrangerHasNoNews(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	if err := f.box("b1").Branches.BranchChanged("b3", "g1"); kindOf(err) != api.NotFound {
		t.Error(err)
	}
	if err := f.box("b1").Branches.BranchChanged("b2", "g9"); kindOf(err) != api.NotFound {
		t.Error(err)
	}
}

// A box that has lost its state cannot begin again with its part of a group whose source has
// switched: the PSNs of its receivers are those of all turns.
func TestABoxWithoutItsStateRefusesAGroupWhoseSourceHasSwitched(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	b1, b2 := f.box("b1"), f.box("b2")
	b1.edit("g1", func(g *groups.Group) { g.Past.Switched = true })
	b2.restart(false, true)
	b1.due("g1")
	f.tendAll(time.Now())
	if b2.groups.Named("g1") != nil {
		t.Error("b2 carries the group")
	}
	if state, reason := b1.state(); state != api.Degraded || !strings.Contains(reason, "no box can begin to carry a part of it") {
		t.Errorf("b1: %s (%s)", state, reason)
	}
}
