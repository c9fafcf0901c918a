package api

import (
	"errors"
	"testing"
)

// An edge says which mappings of an answer it has left out, as long as these are few.
func TestThePartOfAnAnswer(t *testing.T) {
	a := EdgeAnswer{Number: 7}
	failed := map[uint32]error{}
	if p := a.Part(failed); p != nil {
		t.Errorf("%+v", p)
	}
	for i := range uint32(MaxEdgeFailures) {
		failed[MaxEdgeFailures-i] = errors.New("no space")
	}
	p := a.Part(failed)
	if p == nil || p.Number != 7 || len(p.Failed) != MaxEdgeFailures || p.Failed[0] != (EdgeFailure{1, "no space"}) {
		t.Errorf("%+v", p)
	}
	if q := a.Part(failed); !p.IsSame(q) || p.IsSame(nil) || !(*EdgePart)(nil).IsSame(nil) {
		t.Error("two that are made alike are not the same")
	}
	other := a.Part(failed)
	other.Failed[3].LegQPN = 900
	if another := (&EdgeAnswer{Number: 8}).Part(failed); p.IsSame(other) || p.IsSame(another) {
		t.Error("parts that differ are the same")
	}
	failed[900] = errors.New("no space")
	if p := a.Part(failed); p != nil {
		t.Errorf("%+v", p)
	}
}
