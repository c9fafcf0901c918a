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
	if err := c.alone(ctx, func() (err error) { config, err = parsePerftest(request); return err }); err != nil {
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

func parsePerftest(request []byte) (perftest.Config, error) {
	document, err := yamldoc.Parse(request, "the request")
	if err != nil {
		return perftest.Config{}, withoutLine(err)
	}
	config, err := perftest.ReadConfig(document)
	return config, withoutLine(err)
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
	ip, err := netip.ParseAddr(groupIP)
	if err != nil {
		return api.Errorf(api.BadRequest, "%q is not an IP address; write one such as 10.77.0.100", groupIP)
	}
	if err := c.perftest.Down(ip); err != nil {
		return api.Errorf(api.NotFound, "%v; rocast perftest ls lists what is up", err)
	}
	return nil
}

// Perftests lists the helpers and their runs.
func (c *Controller) Perftests() api.Perftests {
	list := api.Perftests{Perftests: []api.Perftest{}}
	for _, s := range c.perftest.List() {
		p := api.Perftest{GroupIP: s.GroupIP.String(), Port: s.Port, Runs: []api.PerftestRun{}}
		for _, network := range s.Allow {
			p.Allow = append(p.Allow, network.String())
		}
		for _, ip := range s.Receivers {
			p.Receivers = append(p.Receivers, ip.String())
		}
		for _, run := range s.Sessions {
			p.Runs = append(p.Runs, perftestRun(run))
		}
		list.Perftests = append(list.Perftests, p)
	}
	return list
}

func perftestRun(s perftest.Session) api.PerftestRun {
	run := api.PerftestRun{
		Client: s.Client.String(), State: s.State.String(), Reason: s.Reason, Version: s.Version, QPs: s.QPs, MTU: s.PathMTU,
		Groups: s.Groups, Began: s.Began.UTC().Truncate(time.Millisecond),
	}
	if !s.Ended.IsZero() {
		ended := s.Ended.UTC().Truncate(time.Millisecond)
		run.Ended = &ended
	}
	return run
}

// keepUp starts the helpers of the config, and retries each failed one until it starts or ctx is
// done.
func (c *Controller) keepUp(ctx context.Context) error {
	missing := c.bringUp(ctx, c.Perftest, true)
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
func (c *Controller) bringUp(ctx context.Context, configs []perftest.Config, tell bool) (missing []perftest.Config) {
	for _, config := range configs {
		err := c.perftest.Up(ctx, config)
		if err == nil {
			c.Log.Info("perftest is up", zap.Stringer("groupIP", config.GroupIP))
			continue
		}
		missing = append(missing, config)
		if tell {
			c.Log.Warn("perftest could not start yet; rocastd tries again",
				zap.Error(err), zap.Duration("every", tryAgainAfter))
		}
	}
	return missing
}

// perftestGroups creates the groups of perftest runs. These groups end with the daemon.
type perftestGroups struct{ *Controller }

// Create fails if a member cannot be reached yet: perftest sends at once, and a run fails if a host
// does not answer.
func (p perftestGroups) Create(ctx context.Context, file *groupfile.File) error {
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

func (p perftestGroups) Remove(_ context.Context, name string) error {
	return p.Controller.remove(name)
}

func (p perftestGroups) Traffic(name string) (perftest.Traffic, bool) {
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

// perftestAddresses adds the group IPs of the helpers to the box.
type perftestAddresses struct{ *Controller }

// Own adds ip to the interfaces through which the hosts are reached. Those behind other boxes are
// left out: such a box answers for ip where its hosts are.
func (p perftestAddresses) Own(ip netip.Addr, towards []netip.Addr) (subnets []netip.Prefix, release func(), err error) {
	var held []address.Place
	release = func() {
		for _, place := range held {
			if err := p.Addresses.Release(place); err != nil {
				p.Log.Error("perftest could not remove the group IP from an interface",
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
func (p perftestAddresses) placesFor(ip netip.Addr, towards []netip.Addr) (places []address.Place, err error) {
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
