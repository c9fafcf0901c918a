package address

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Run puts back what others take off, until ctx is done. told hears of each such event as a sentence.
func (o *Owner) Run(ctx context.Context, told func(string)) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return o.events.Run(ctx, o.noticeLoss) })
	tasks.Go(func() error {
		// Once a second, so that a fight over an address stays a slow one.
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				o.putBack(told)
			}
		}
	})
	return tasks.Wait()
}

// noticeLoss keeps what was taken off. When notifications were lost everything may have been: putting back what is there
// does no harm.
func (o *Owner) noticeLoss(messages []syscall.NetlinkMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if messages == nil {
		for p, h := range o.held {
			if h.ours {
				o.lost[p] = true
			}
		}
	}
	for _, m := range messages {
		a, ok := parse(m.Data)
		if !ok || m.Header.Type != unix.RTM_DELADDR {
			continue
		}
		if h := o.held[a.Place]; h != nil && h.ours {
			o.lost[a.Place] = true
		}
	}
}

func (o *Owner) putBack(told func(string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.lost {
		// While the interface is down or gone this fails; the next second tries again.
		switch err := o.kernel.add(p); {
		case err == nil:
			told(fmt.Sprintf("somebody took %v off %s; it is back", p.IP, o.held[p].note.name))
			delete(o.lost, p)
		case errors.Is(err, unix.EEXIST):
			delete(o.lost, p)
		}
	}
}
