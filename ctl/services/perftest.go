package services

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
func (s *Services) PerftestUp(ctx context.Context, request []byte) (api.Perftest, error) {
	config, err := readRequest(ctx, s, request, perftest.ReadConfig)
	if err != nil {
		return api.Perftest{}, err
	}
	if err := s.perftest.Up(ctx, config); err != nil {
		return api.Perftest{}, api.Errorf(api.BadRequest, "%v", err)
	}
	return listed(s.Perftests().Perftests, func(p api.Perftest) string { return p.GroupIP }, "perftest", config.GroupIP)
}

// PerftestDown stops the helper that PerftestUp started, and its current run.
func (s *Services) PerftestDown(groupIP string) error {
	return takeDown(groupIP, s.perftest.Down, "perftest")
}

// Perftests lists the helpers and their runs.
func (s *Services) Perftests() api.Perftests {
	list := api.Perftests{Perftests: []api.Perftest{}}
	for _, up := range s.perftest.List() {
		p := api.Perftest{GroupIP: up.GroupIP.String(), Port: up.Port, Runs: []api.PerftestRun{}}
		p.Allow, p.Receivers = texts(up.Allow), texts(up.Receivers)
		for _, run := range up.Sessions {
			p.Runs = append(p.Runs, s.perftestRun(&run))
		}
		list.Perftests = append(list.Perftests, p)
	}
	return list
}

// perftestRun is a run for the operator. While it is running, its reason is what the box sees of
// its groups: the programs of perftest wait for ever, whatever happens to their packets.
func (s *Services) perftestRun(run *perftest.Session) api.PerftestRun {
	reason := run.Reason
	for _, name := range run.Groups {
		if sees := s.Control.Sees(name); sees != "" {
			reason = sees
			break
		}
	}
	return api.PerftestRun{
		Client: run.Client.String(), State: run.State.String(), Reason: reason, Version: run.Version, QPs: run.QPs, MTU: run.PathMTU,
		Groups: run.Groups, Ends: ended(run.Ends), Unless: run.Unless, Began: run.Began.UTC().Truncate(time.Millisecond), Ended: ended(run.Ended),
	}
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
