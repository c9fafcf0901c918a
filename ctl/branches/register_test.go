package branches

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/neighbour"
)

// What an answer says is checked: a wrong box may be at the address.
func TestAnAnswerIsChecked(t *testing.T) {
	b1 := New(Options{Box: "b1", Neighbours: []neighbour.Config{{Name: "b2", Address: netip.MustParseAddr("10.9.0.2")}}})
	good := api.BranchAnswer{Version: 7, Link: api.LinkEnd{IP: "10.9.0.2", QPN: 2, PSN: 1<<24 - 1}}
	if err := b1.checkAnswer(&groups.Link{Box: "b2", Version: 7}, good); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*api.BranchAnswer){
		"box b2 answers version 8 of the branch, and version 7 was sent; is another box with the name b1 there?":                                  func(a *api.BranchAnswer) { a.Version = 8 },
		"box b2 says that its link address is 10.9.0.3, and neighbours: of box b1 says 10.9.0.2; correct one of them":                             func(a *api.BranchAnswer) { a.Link.IP = "10.9.0.3" },
		"box b2 answers with an end of the link that no queue pair can have (QPN 1, PSN 16777215); run the same version of rocast on both":        func(a *api.BranchAnswer) { a.Link.QPN = 1 },
		"box b2 answers with an end of the link that no queue pair can have (QPN 16777215, PSN 16777215); run the same version of rocast on both": func(a *api.BranchAnswer) { a.Link.QPN = 1<<24 - 1 },
		"box b2 answers with an end of the link that no queue pair can have (QPN 2, PSN 16777216); run the same version of rocast on both":        func(a *api.BranchAnswer) { a.Link.PSN = 1 << 24 },
	} {
		answer := good
		change(&answer)
		if err := b1.checkAnswer(&groups.Link{Box: "b2", Version: 7}, answer); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
}

// An error joins those of several boxes, and each is told or not.
func TestTellable(t *testing.T) {
	refusal := func(box string, kind api.Kind) error {
		return &neighbour.Refusal{Box: box, Cause: api.Errorf(kind, "%s says why", box)}
	}
	all := errors.Join(refusal("b1", api.Exists), errors.New("box b2 does not answer"), refusal("b3", api.BadFile), fmt.Errorf("so: %w", refusal("b4", api.Internal)))
	if got, want := tellable(all).Error(), "box b1 refuses: b1 says why\nbox b2 does not answer\nbox b3 refuses its part\nbox b4 refuses its part"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if e := (*api.Error)(nil); !errors.As(notSetUp("g1", all), &e) || e.Kind != api.BadFile {
		t.Errorf("kind %s", e.Kind)
	}
}
