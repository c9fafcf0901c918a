package address

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Run adds the addresses again that other programs remove, until ctx is done. It then calls
// restored with the place of the address and the name of the interface.
func (o *Owner) Run(ctx context.Context, restored func(p Place, ifName string)) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return o.events.Run(ctx, o.noticeLoss) })
	tasks.Go(func() error {
		// Once a second: if another program keeps removing an address, the two must not loop fast.
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				o.putBack(restored)
			}
		}
	})
	return tasks.Wait()
}

// noticeLoss records which addresses were removed. If notifications were lost, it records all
// addresses that the Owner added: adding an address that is still there does no harm.
func (o *Owner) noticeLoss(messages []syscall.NetlinkMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if messages == nil {
		for p, h := range o.held {
			if h.ours {
				o.lost[p] = struct{}{}
			}
		}
	}
	for _, m := range messages {
		a, ok := parse(m.Data)
		if !ok || m.Header.Type != unix.RTM_DELADDR {
			continue
		}
		if h := o.held[a.Place]; h != nil && h.ours {
			o.lost[a.Place] = struct{}{}
		}
	}
}

func (o *Owner) putBack(restored func(Place, string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.lost {
		// This fails while the interface is down or gone; the next tick tries again.
		switch err := o.kernel.add(p); {
		case err == nil:
			restored(p, o.held[p].note.name)
			delete(o.lost, p)
		case errors.Is(err, unix.EEXIST):
			delete(o.lost, p)
		}
	}
}
