package shared

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/ports"
)

// What another program has put into etcd cannot be set up if its file has another name than its
// key.
func TestTheFileHasTheNameOfItsKey(t *testing.T) {
	s := New(Options{Parse: func(_ context.Context, text []byte) (*groupfile.File, error) { return groupfile.ParseStored(text) }})
	for name, want := range map[string]string{
		"g1": "<nil>",
		"g2": "the key names group g2, and its file group g1; delete the key, and create the group with rocast group create",
	} {
		if _, err := s.parseDesired(t.Context(), name, desired.Entry{Text: []byte(ctltest.G1)}); fmt.Sprint(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// awayEtcd does not answer for a reason; nil: it answers.
type awayEtcd struct {
	Desired
	why error
}

func (e *awayEtcd) Away() error { return e.why }

func (e *awayEtcd) Names() []string { return nil }

// However often is looked, an event tells that etcd does not answer, and one that it does again.
func TestThatEtcdIsAwayIsToldOnce(t *testing.T) {
	set := groups.NewSet(groups.Parts{Log: zap.NewNop()}, ports.Set{})
	etcd := &awayEtcd{}
	s := New(Options{Groups: set, Desired: etcd})
	var place api.Cursor
	for i, step := range []struct {
		why  error
		want []string
	}{
		{nil, nil},
		{errors.New("it is down"), []string{"etcd-away: etcd does not answer: it is down; groups that run here run on, and changes are refused"}},
		{errors.New("it is down"), nil},
		{errors.New("it is still down"), nil},
		{nil, []string{"etcd-back: etcd answers"}},
		{nil, nil},
	} {
		etcd.why = step.why
		s.lookAtEtcd()
		var got []string
		after := set.Events.After(place, "")
		for _, e := range after.Events {
			got = append(got, fmt.Sprintf("%s: %s", e.Kind, e.Cause))
		}
		if place = after.Cursor; !slices.Equal(got, step.want) {
			t.Errorf("look %d: %q, want %q", i, got, step.want)
		}
	}
}

// What is known of a group is forgotten when the group has gone.
func TestAGroupThatHasGoneIsForgotten(t *testing.T) {
	set := groups.NewSet(groups.Parts{Log: zap.NewNop()}, ports.Set{})
	s := New(Options{Groups: set, Desired: &awayEtcd{}})
	s.of(&groups.Group{}).untold = true
	if s.addUnsettled(map[string]bool{}); len(s.carried) > 0 {
		t.Errorf("%+v", s.carried)
	}
}

// A change of a group on which work is under way stays pending until the work ends, and so does
// that what was refused before is to be tried again.
func TestAChangeWaitsForTheWorkOnItsGroup(t *testing.T) {
	w := newWork()
	w.hear([]string{"g1"})
	if p, read := w.take(); !read || !p.first || len(p.names) != 1 || !w.begin("g1", p.names["g1"]) {
		t.Fatalf("%+v", p)
	}
	w.hear(nil)
	<-w.wake
	if p, _ := w.take(); p.first || len(p.names) > 0 {
		t.Errorf("%+v", p)
	}
	if w.begin("g1", true) || w.begin("g1", false) {
		t.Error("two do the same work")
	}
	w.end("g1")
	<-w.wake
	if p, _ := w.take(); !p.names["g1"] || !w.begin("g1", true) {
		t.Errorf("%+v", p)
	}
	w.end("g1")
	select {
	case <-w.wake:
		t.Error("there is no work")
	default:
	}
}
