package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// tryAgainAfter is the pause before the daemon starts a failed helper of the config again: at boot,
// routes may appear after the daemon starts.
const tryAgainAfter = 5 * time.Second

// PerftestUp starts to serve perftest clients on a group IP. The request is one item of the config
// key perftest.
func (c *Controller) PerftestUp(ctx context.Context, request []byte) (api.Perftest, error) {
	var config perftest.Config
	if err := c.alone(ctx, func() (err error) { config, err = parseRequest(request, perftest.ReadConfig); return err }); err != nil {
		return api.Perftest{}, err
	}
	if err := c.perftest.Up(ctx, config); err != nil {
		return api.Perftest{}, api.Errorf(api.BadRequest, "%v", err)
	}
	for _, p := range c.Perftests().Perftests {
		if p.GroupIP == config.GroupIP.String() {
			return p, nil
		}
	}
	return api.Perftest{}, api.Errorf(api.NotFound, "perftest on %v was taken down meanwhile", config.GroupIP)
}

// withoutLine removes the line number from an error: the client sent a request, not a file.
func withoutLine(err error) error {
	if e := (*yamldoc.Error)(nil); errors.As(err, &e) {
		return api.Errorf(api.BadRequest, "%s", e.Message)
	}
	return err
}

// PerftestDown stops the helper that PerftestUp started, and its current run.
func (c *Controller) PerftestDown(groupIP string) error {
	return takeDown(groupIP, c.perftest.Down, "perftest")
}

// Perftests lists the helpers and their runs.
func (c *Controller) Perftests() api.Perftests {
	list := api.Perftests{Perftests: []api.Perftest{}}
	for _, s := range c.perftest.List() {
		p := api.Perftest{GroupIP: s.GroupIP.String(), Port: s.Port, Runs: []api.PerftestRun{}}
		p.Allow, p.Receivers = texts(s.Allow), texts(s.Receivers)
		for _, run := range s.Sessions {
			p.Runs = append(p.Runs, perftestRun(run))
		}
		list.Perftests = append(list.Perftests, p)
	}
	return list
}

func perftestRun(s perftest.Session) api.PerftestRun {
	return api.PerftestRun{
		Client: s.Client.String(), State: s.State.String(), Reason: s.Reason, Version: s.Version, QPs: s.QPs, MTU: s.PathMTU,
		Groups: s.Groups, Began: s.Began.UTC().Truncate(time.Millisecond), Ended: ended(s.Ended),
	}
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
		l = append(l, helper{"RDMA-CM", config.GroupIP, func(context.Context) error { return c.cm.Up(config) }})
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

// helperGroups creates the groups of perftest runs and RDMA-CM connections. These groups end with
// the daemon.
type helperGroups struct{ *Controller }

// Create fails if a member cannot be reached yet: the source sends at once, and its queue pair
// fails if a host does not answer.
func (p helperGroups) Create(ctx context.Context, file *groupfile.File) error {
	g, err := p.create(ctx, file, nil)
	if err != nil {
		return err
	}
	var waiting []string
	for _, m := range g.Members {
		if m.State == api.Waiting {
			waiting = append(waiting, fmt.Sprintf("%s is not reached: %s", m.IP, m.Reason))
		}
	}
	for _, l := range g.Links {
		if l.State != api.Ready {
			waiting = append(waiting, fmt.Sprintf("a receiver behind box %s is not reached: %s", l.Box, l.Reason))
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return errors.Join(errors.New(strings.Join(waiting, "; ")), p.Controller.remove(g.Name))
}

func (p helperGroups) Remove(_ context.Context, name string) error {
	return p.Controller.remove(name)
}

func (p helperGroups) Traffic(name string) (perftest.Traffic, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[name]
	if g == nil { // a run's group that cannot be published is not kept
		return perftest.Traffic{}, false
	}
	state, ok := p.Switch.GroupState(g.id)
	return traffic(counters(state.Counters)), ok
}

func traffic(counts api.Counters) perftest.Traffic {
	t := perftest.Traffic{
		FromReceivers: counts[dataplane.NotSource.String()],
		Refused:       counts[feedback.Refused.String()],
	}
	t.FromSource = t.Refused
	for _, outcome := range []feedback.Outcome{feedback.Forwarded, feedback.Resent, feedback.Filtered, feedback.OutsideWindow} {
		t.FromSource += counts[outcome.String()]
	}
	return t
}

// helperAddresses adds the group IPs of the helpers to the box.
type helperAddresses struct{ *Controller }

// Own adds ip to the interfaces through which the hosts are reached. Those behind other boxes are
// left out: such a box answers for ip where its hosts are.
func (p helperAddresses) Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error) {
	var held []address.Place
	release = func() {
		for _, place := range held {
			if err := p.Addresses.Release(place); err != nil {
				p.Log.Error("could not remove the group IP of a service from an interface",
					zap.Stringer("groupIP", ip), zap.Error(err))
			}
		}
	}
	places, err := p.placesFor(ip, towards)
	if err != nil {
		return nil, nil, err
	}
	if err := p.refuseIP(context.Background(), ip, places); err != nil {
		return nil, nil, err
	}
	all, err := p.subnetsAt(ip, places)
	if err != nil {
		return nil, nil, err
	}
	for _, place := range places {
		if err := p.Addresses.Hold(place); err != nil {
			release()
			return nil, nil, err
		}
		held = append(held, place)
	}
	return containing(ip, all), release, nil
}

// placesFor returns the interfaces through which the hosts are reached. Where all hosts are behind
// other boxes, that is the interface in whose subnet ip is: the client is there.
func (p helperAddresses) placesFor(ip netip.Addr, towards []netip.Addr) (places []address.Place, err error) {
	var unreached []error
	add := func(host netip.Addr) {
		hop := p.NextHops.Track(host)
		defer p.NextHops.Untrack(host)
		boxes, err := p.through(&groupfile.Member{IP: host}, nil)
		place := address.Place{IfIndex: hop.Interface, IP: ip}
		switch {
		case err != nil:
			unreached = append(unreached, err)
		case len(boxes) > 0:
		case hop.Interface == 0:
			unreached = append(unreached, fmt.Errorf("%v is not reached: %s", host, hop.Reason))
		case !slices.Contains(places, place):
			places = append(places, place)
		}
	}
	for _, host := range towards {
		add(host)
	}
	if len(places) == 0 && len(unreached) == 0 {
		add(ip)
	}
	return places, errors.Join(unreached...)
}
