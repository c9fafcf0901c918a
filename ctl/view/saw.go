package view

import (
	"fmt"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
)

// Saw says what the box sees of a group that does not get on, or of a member that is in trouble,
// and since when, by the group's events; "": nothing.
func Saw(g *groups.Version, events []api.Event) string {
	what := Trouble(g)
	if what == "" && g.Found.Degraded {
		what = SlowBecause(g)
	}
	if what == "" {
		return ""
	}
	for _, e := range events {
		switch e.Kind {
		case api.MemberRefused, api.MemberStalled, api.MemberBehind, api.MemberEvicted, api.MemberUnreachable, api.MemberRepairing, api.GroupDegraded:
			return fmt.Sprintf("%s (since %s)", what, e.Time.UTC().Format(time.TimeOnly))
		}
	}
	return what
}
