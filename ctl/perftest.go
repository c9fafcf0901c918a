package ctl

import (
	"context"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
)

// PerftestUp starts to serve perftest clients on a group IP. The request is one item of the config
// key perftest.
func (c *Controller) PerftestUp(ctx context.Context, request []byte) (api.Perftest, error) {
	config, err := readRequest(ctx, c, request, perftest.ReadConfig)
	if err != nil {
		return api.Perftest{}, err
	}
	if err := c.perftest.Up(ctx, config); err != nil {
		return api.Perftest{}, api.Errorf(api.BadRequest, "%v", err)
	}
	return listed(c.Perftests().Perftests, func(p api.Perftest) string { return p.GroupIP }, "perftest", config.GroupIP)
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
		Refused:       counts[feedback.Refused.String()] + counts[dataplane.RefusedMemory.String()],
	}
	t.FromSource = t.Refused
	for _, outcome := range []feedback.Outcome{feedback.Forwarded, feedback.Resent, feedback.Filtered, feedback.OutsideWindow} {
		t.FromSource += counts[outcome.String()]
	}
	return t
}
