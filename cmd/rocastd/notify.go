package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// statusEvery is how often systemctl status gets a new line if the unit has no watchdog.
const statusEvery = 5 * time.Second

// notify sends the state to systemd, if systemd started the daemon.
func (s *service) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("could not notify systemd", zap.Error(err))
	}
}

// notifyReloading says that a reload begins. systemd needs the time to tell it from an earlier one.
func (s *service) notifyReloading() {
	s.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// withStatus adds the line of systemctl status to a state.
func (s *service) withStatus(state string) string {
	t := s.controller.Tally()
	return fmt.Sprintf("%s\nSTATUS=%d groups, %d of %d ports are open", state, t.Groups, t.Open, t.Ports)
}

// notifySystemd sends the status, and a sign of life when every forwarding thread has ended a
// batch. A thread that is stuck ends none: then systemd hears nothing, and after WatchdogSec= it
// kills the daemon and starts it again.
func (s *service) notifySystemd(ctx context.Context) error {
	every := statusEvery
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd's watchdog: %w", err)
	}
	if limit > 0 {
		every = limit / 3
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		s.controller.Beat()
		s.notify(s.withStatus(daemon.SdNotifyWatchdog))
	}
}
