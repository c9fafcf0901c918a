package bed

import (
	"context"
	"fmt"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/roce"
)

// QP returns the settings of a host's queue pair whose first packet has the given PSN.
func QP(qpn roce.QPN, psn roce.PSN, mtuBytes int) rnic.Config {
	c := rnic.Defaults()
	c.QPN, c.SendPSN, c.MTUBytes = qpn, psn, mtuBytes
	return c
}

// outstanding is how many work requests of one queue pair are posted at a time.
const outstanding = 16

// Post posts work requests 0 to all-1 and waits for their completions. After each one it calls done
// with their number so far; nil: nothing.
func Post(ctx context.Context, qp *endpoint.QP, all int, post, done func(n int) error) error {
	for posted, completed := 0, 0; completed < all; {
		for ; posted < all && posted-completed < outstanding; posted++ {
			if err := post(posted); err != nil {
				return err
			}
		}
		c, err := qp.Wait(ctx)
		if err != nil {
			return fmt.Errorf("after %d of %d completions: %w", completed, all, err)
		}
		if c.Status != rnic.Success {
			return fmt.Errorf("work request %d of %d ended with %v", completed, all, c.Status)
		}
		completed++
		if done == nil {
			continue
		}
		if err := done(completed); err != nil {
			return err
		}
	}
	return nil
}
