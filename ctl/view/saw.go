package view

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
)

// Saw says what the box sees of a group that does not get on, or of a member that is in trouble,
// and since when, by the group's events, oldest first; "": nothing. What was before the group was
// restored is another trouble.
func Saw(g *groups.Version, events []api.Event) string {
	what := Trouble(g)
	if what == "" && g.Found.Degraded {
		what = SlowBecause(g)
	}
	if what == "" {
		return ""
	}
	since := ""
	for _, e := range events {
		switch e.Kind {
		case api.GroupRestored:
			since = ""
		case api.MemberRefused, api.MemberStalled, api.MemberBehind, api.MemberEvicted, api.MemberUnreachable, api.MemberRepairing, api.GroupDegraded:
			since = cmp.Or(since, fmt.Sprintf(" (since %s)", e.Time.UTC().Format(time.TimeOnly)))
		}
	}
	return what + since
}
