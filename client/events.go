package client

import (
	"context"
	"iter"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// askAgainAfter is the pause before a daemon that did not answer is asked again.
const askAgainAfter = time.Second

// Follow yields the events after a cursor as they happen, and with each the cursor to go on from,
// in this program or in its next run. It ends with ctx, or with an error that asking again does not
// mend. A daemon that does not answer is asked again: its error is yielded once, with no events.
//
// If Events.Missed is set, more has happened than the daemon keeps, or it has started again: look
// at the groups.
func (c *Client) Follow(ctx context.Context, at Cursor, group string) iter.Seq2[Events, error] {
	return func(yield func(Events, error) bool) {
		silent := false
		for ctx.Err() == nil {
			events, err := c.EventsAfter(ctx, at, group, api.MaxEventWait)
			switch {
			case ctx.Err() != nil:
				return
			case isUnreachable(err):
				if !silent && !yield(Events{Cursor: at}, err) {
					return
				}
				silent = true
				if pause(ctx, askAgainAfter) != nil {
					return
				}
			case err != nil:
				yield(Events{Cursor: at}, err)
				return
			default:
				silent, at = false, events.Cursor
				if (len(events.Events) > 0 || events.Missed) && !yield(events, nil) {
					return
				}
			}
		}
	}
}

// isUnreachable reports whether a request failed because no daemon answers, or only for the moment.
func isUnreachable(err error) bool {
	kind := KindOf(err)
	return kind == api.Unreachable || kind == api.Unavailable
}

// pause waits, and returns the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
