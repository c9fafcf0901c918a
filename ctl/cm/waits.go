package cm

import (
	"fmt"
	"time"

	"github.com/rocast/rocast/ctl/groupip"
)

// waits says what a connection waits for, and when it ends if that does not come.
type waits struct {
	ends   time.Duration // 0: it does not end by itself
	unless string        // what puts the end off; "": nothing does
}

// waits goes by how far a connection is, while a run is on or none. No connection that waits for
// one of its sides does so for ever.
func (r *run) waits(c *connection, l *limits) (w waits) {
	switch c.state {
	case Waiting:
		return waits{r.due + time.Duration(r.left)*l.ask, fmt.Sprintf("%v answers, whose run is on", r.control.source)}
	case Asking:
		for _, s := range c.receivers {
			at, unless := s.givesUp(l), "%v answers"
			if s.isDeaf {
				at, unless = r.listens, "%v listens"
			}
			if s.at == asked && (w.ends == 0 || at < w.ends) {
				w = waits{min(at, c.deadline), fmt.Sprintf(unless, s)}
			}
		}
	case Offered:
		return waits{c.source.givesUp(l), fmt.Sprintf("%v confirms", c.source)}
	case Ending:
		for _, s := range c.sides {
			if s.at == closing {
				w.ends = max(w.ends, s.givesUp(l))
			}
		}
	case Established:
		return r.waitsConnected(c, l)
	}
	return w
}

// givesUp returns when a side that is sent a message counts as dead without an answer.
func (s *side) givesUp(l *limits) time.Duration { return s.due + time.Duration(s.tries)*l.again }

func (r *run) waitsConnected(c *connection, l *limits) waits {
	switch {
	case c.unheard >= firstDoubt:
		return waits{c.probe + time.Duration(l.probes-c.unheard)*r.interval(c, l), fmt.Sprintf("%v answers", c.source)}
	case c.deadline == 0:
		return waits{}
	case r.answers == nil:
		return waits{c.deadline, fmt.Sprintf("%v goes on", c.source)}
	default:
		return waits{c.deadline, fmt.Sprintf("%v answers", r.unanswered())}
	}
}

// text says when it ends, at a time; "": it does not end by itself.
func (w waits) text(now time.Duration) string {
	switch {
	case w.ends == 0:
		return ""
	case w.unless == "":
		return "it ends in " + groupip.InWords(w.ends-now)
	}
	return fmt.Sprintf("it ends in %s unless %s", groupip.InWords(w.ends-now), w.unless)
}
