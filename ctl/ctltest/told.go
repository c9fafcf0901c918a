package ctltest

import (
	"fmt"
	"strings"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/events"
)

// Told returns the events of a log behind a place, as lines without their times, and the place of
// the last one.
func Told(log *events.Log, at api.Cursor) (lines []string, next api.Cursor) {
	got := log.After(at, "")
	for _, e := range got.Events {
		words := []string{string(e.Kind)}
		for _, name := range []string{e.Group, e.Member, e.Port, e.Neighbour} {
			if name != "" {
				words = append(words, name)
			}
		}
		line := strings.Join(words, " ") + ": " + e.Cause
		if e.PSN != nil {
			line += fmt.Sprintf(" (PSN %d)", *e.PSN)
		}
		lines = append(lines, line)
	}
	return lines, got.Cursor
}
