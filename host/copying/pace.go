package copying

import (
	"context"
	"time"
)

// pace is a Sender with a rate. It waits between messages, so what a message holds goes at the rate
// of the link.
type pace struct {
	Sender
	rate   int64      // bytes a second
	copies func() int // of a message, on the source's link
	free   time.Time  // when the next message may go
}

func (p *pace) Send(ctx context.Context, message []byte) error {
	if wait := time.Until(p.free); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	lasts := float64(len(message)*p.copies()) / float64(p.rate)
	p.free = time.Now().Add(time.Duration(lasts * float64(time.Second)))
	return p.Sender.Send(ctx, message)
}
