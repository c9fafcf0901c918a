package groups

import (
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
)

// Who confirmed behind a link is known only from a list of those that have not which names members
// and is whole.
func TestWhoHasConfirmedBehindALink(t *testing.T) {
	const who = "10.77.0.2"
	others := func(n int) []api.Absent { return slices.Repeat([]api.Absent{{Box: "b2", Member: "10.77.0.3"}}, n) }
	for _, c := range []struct {
		name string
		link Link
		want bool
	}{
		{"others have not", Link{Asked: time.Now(), Absent: others(MaxAbsent - 1)}, true},
		{"it has not", Link{Asked: time.Now(), Absent: []api.Absent{{Box: "b2", Member: who}}}, false},
		{"the list is full", Link{Asked: time.Now(), Absent: others(MaxAbsent)}, false},
		{"a box is absent", Link{Asked: time.Now(), Absent: []api.Absent{{Box: "b2"}}}, false},
		{"the box was not asked", Link{}, false},
		{"the box does not answer", Link{Asked: time.Now(), Problem: "no route"}, false},
	} {
		if got := c.link.hasConfirmed(groupfile.ID{IP: AddrOf(who)}); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
