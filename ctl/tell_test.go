package ctl

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/feedback"
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

// What happens while a request to the box behind a link is under way is not in that request. The
// box hears it at once all the same, and not when the next renewal is due.
func TestWhatHappensWhileABoxIsAskedIsNotForgotten(t *testing.T) {
	confirms := func(text string) string { return strings.Replace(text, "psn: 31,", "psn: 31, confirm: true,", 1) }
	const above = "the box above carries the group no more"
	for event, happens := range map[string]func(b1, b2 *box){
		"the link is left out": func(_, b2 *box) {
			l := b2.groups.Named("g1").Links[0]
			b2.news(feedback.NoteEvicted, l.Remote.IP, mftQPN(l.Local.QPN), 1007)
		},
		"the box behind it says that something has changed": func(_, b2 *box) {
			if err := b2.Branches.BranchChanged("b3", "g1"); err != nil {
				t.Error(err)
			}
		},
		above: func(b1, _ *box) {
			b1.edit("g1", func(g *groups.Group) { g.Problem = "out of slots"; g.Links[0].Due = true })
			b1.Branches.Tend(t.Context(), b1.groups.Named("g1"))
		},
		"a program confirms": func(_, b2 *box) {
			if _, err := b2.Confirm("g1", []byte(`{"ip": "10.3.0.1", "qpn": 131, "state": "RTR"}`)); err != nil {
				t.Error(err)
			}
		},
	} {
		for asked, ask := range map[string]func(b1, b2 *box){
			"a renewal": func(_, b2 *box) { b2.due("g1"); b2.Branches.Tend(t.Context(), b2.groups.Named("g1")) },
			"an update": func(b1, _ *box) {
				_, _ = b1.Update(t.Context(), "g1", []byte(confirms(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))))
			},
		} {
			if event == above && asked == "an update" {
				continue // the box above asks nothing else while it asks for that
			}
			f, b1, b2, _ := threeBoxes(t)
			f.create(confirms(groupFile("10.1.0.2", "10.3.0.1")))
			f.tendAll(time.Now())
			before := b2.groups.Named("g1").Links[0].Asked
			happened, after := false, 0
			f.cuts(func(_, to, method string) (bool, bool) {
				switch {
				case to != "b3" || method != "PUT":
				case happened:
					after++
				default:
					happened = true
					happens(b1, b2)
				}
				return true, true
			})
			ask(b1, b2)
			f.tendAll(before) // when nothing else is due
			told := after
			if f.tendAll(before); !happened || told == 0 || after != told {
				t.Errorf("%s during %s: the box behind is asked %d times after that, and then %d times", event, asked, told, after-told)
			}
		}
	}
}

// Who gives up an update while a box is asked takes nothing from what the box is to hear at once.
func TestWhoGivesUpLeavesABoxToBeAsked(t *testing.T) {
	f, _, b2, _ := threeBoxes(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1"))
	f.tendAll(time.Now())
	before := b2.groups.Named("g1").Links[0].Asked
	given, up := context.WithCancel(t.Context())
	asked := 0
	f.cuts(func(_, to, method string) (bool, bool) {
		if to != "b3" || method != "PUT" {
			return true, true
		}
		asked++
		up()
		return asked > 1, true
	})
	if err := b2.Branches.BranchChanged("b3", "g1"); err != nil {
		t.Fatal(err)
	}
	b2.Branches.Tend(given, b2.groups.Named("g1"))
	for range 2 {
		f.tendAll(before) // when nothing else is due
	}
	if asked != 2 {
		t.Errorf("the box behind is asked %d times", asked)
	}
}

// Why a box does not carry a group at all counts more than why one of its links is left out.
func TestABoxBelowHearsTheGraverReason(t *testing.T) {
	f, b1, b2 := twoBoxes(t)
	f.create(evictingFile("10.1.0.2", "10.2.0.1"))
	l := b1.groups.Named("g1").Links[0]
	b1.news(feedback.NoteEvicted, l.Remote.IP, mftQPN(l.Local.QPN), 1007)
	hears := func(problem, want string) {
		t.Helper()
		b1.edit("g1", func(g *groups.Group) { g.Problem = problem; g.Links[0].Due = true })
		b1.Branches.Tend(t.Context(), b1.groups.Named("g1"))
		if above := b2.groups.Named("g1").Branch.Above; !strings.HasPrefix(above, want) {
			t.Errorf("b2 hears %q, want %q", above, want)
		}
	}
	hears("out of slots", "out of slots")
	hears("", "box b2 takes no part in the group any more (evicted)")
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
