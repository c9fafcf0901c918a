package ctl

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/yamldoc"
)

// tryAgainAfter is the pause before the daemon starts a failed helper of the config again: at boot,
// routes may appear after the daemon starts.
const tryAgainAfter = 5 * time.Second

// readRequest reads a request whose text is one item of a key of the config.
func readRequest[C any](ctx context.Context, c *Controller, request []byte, read func(yamldoc.Value) (C, error)) (config C, err error) {
	err = c.alone(ctx, func() error {
		document, err := yamldoc.Parse(request, "the request")
		if err == nil {
			config, err = read(document)
		}
		return withoutLine(err)
	})
	return config, err
}

// withoutLine removes the line number from an error: the client sent a request, not a file.
func withoutLine(err error) error {
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return api.Errorf(api.BadRequest, "%s", e.Message)
	}
	return err
}

// listed returns the service that has just been started at a group IP, from the list of what is up.
func listed[L any](list []L, at func(L) string, kind string, groupIP netip.Addr) (l L, err error) {
	for _, up := range list {
		if at(up) == groupIP.String() {
			return up, nil
		}
	}
	return l, api.Errorf(api.NotFound, "%s on %v was taken down meanwhile", kind, groupIP)
}

// takeDown stops the service at a group IP. noun is the command that lists what is up.
func takeDown(groupIP string, down func(netip.Addr) error, noun string) error {
	ip, err := netip.ParseAddr(groupIP)
	if err != nil {
		return api.Errorf(api.BadRequest, "%q is not an IP address; write one such as 10.77.0.100", groupIP)
	}
	if err := down(ip); err != nil {
		return api.Errorf(api.NotFound, "%v; rocast %s ls lists what is up", err, noun)
	}
	return nil
}

// helper is one of the config: a service at a group IP.
type helper struct {
	service string
	groupIP netip.Addr
	up      func(context.Context) error
}

// helpers returns those of the config.
func (c *Controller) helpers() (l []helper) {
	for _, config := range c.Perftest {
		l = append(l, helper{"perftest", config.GroupIP, func(ctx context.Context) error { return c.perftest.Up(ctx, config) }})
	}
	for _, config := range c.CM {
		l = append(l, helper{"RDMA-CM", config.GroupIP, func(context.Context) error { return c.cmUp(config) }})
	}
	return l
}

// keepUp starts the helpers of the config, and retries each failed one until it starts or ctx is
// done.
func (c *Controller) keepUp(ctx context.Context) error {
	missing := c.bringUp(ctx, c.helpers(), true)
	again := time.NewTicker(tryAgainAfter)
	defer again.Stop()
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			missing = c.bringUp(ctx, missing, false)
		}
	}
	return nil
}

// bringUp starts helpers and returns those that failed to start.
func (c *Controller) bringUp(ctx context.Context, helpers []helper, tell bool) (missing []helper) {
	for _, h := range helpers {
		err := h.up(ctx)
		if err == nil {
			c.Log.Info("a service of the config is up", zap.String("service", h.service), zap.Stringer("groupIP", h.groupIP))
			continue
		}
		missing = append(missing, h)
		if tell {
			c.Log.Warn("a service of the config could not start yet; rocastd tries again",
				zap.Error(err), zap.Duration("every", tryAgainAfter))
		}
	}
	return missing
}

func texts[T interface{ String() string }](values []T) (l []string) {
	for _, v := range values {
		l = append(l, v.String())
	}
	return l
}

func ended(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC().Truncate(time.Millisecond)
	return &at
}
