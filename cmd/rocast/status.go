package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

// errUnhealthy ends rocast status and rocast doctor with exitUnhealthy. The answer has been printed
// already.
var errUnhealthy = errors.New("the box is not healthy")

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether the box works, and what does not",
		Long: `Show whether the box works: the daemon's version and how long it has run, its forwarding threads, its ports and groups by
state, and a line for each one that is not as it should be, with the reason. The box is healthy if every port is up and every
group is ready, and if the box is set up for the frames of groups that come. A note says what strangers send: that makes no
box unhealthy. The box is not ready as long as a port is gone or failed, a group of an operator is not clear to send,
etcd (store: etcd) does not answer, or a forwarding thread is stuck: a group that hosts have made, a link that is down or a group that is degraded leaves the box ready,
but not healthy. Groups that hosts have made and not confirmed yet count nowhere; a note says how many there are.

Exit status: 0 the box is healthy; 4 it is not; 3 no daemon answers.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.print(s, func(w io.Writer) { printStatus(w, &s) }); err != nil {
				return err
			}
			if !s.Healthy {
				return errUnhealthy
			}
			return nil
		},
	}
}

func printStatus(w io.Writer, s *api.Status) {
	row(w, "rocastd", fmt.Sprintf("%s, up %v", build(s.Version), time.Duration(s.Uptime)*time.Second))
	row(w, "workers", s.Workers)
	row(w, "ports", byState(s.Ports, api.PortUp, api.PortDown, api.PortGone, api.PortFailed))
	row(w, "groups", byState(s.Groups, api.Ready, api.Waiting, api.Degraded, api.Failed))
	row(w, "ready", yesNo(s.Ready))
	row(w, "healthy", yesNo(s.Healthy))
	if s.Config != nil {
		row(w, "config", configState(s.Config))
	}
	if s.Config != nil && s.Config.Refused != "" {
		row(w, "last reload", "refused: "+s.Config.Refused)
	}
	for _, note := range s.Notes {
		row(w, "note", note)
	}
	if s.Healthy {
		return
	}
	fmt.Fprintln(w)
	row(w, "PROBLEM", "NAME", "STATE", "REASON")
	for _, p := range s.Problems {
		row(w, p.Of, p.Name, p.State, p.Reason)
	}
	if s.More > 0 {
		fmt.Fprintf(w, "and %d more\n", s.More)
	}
}

func configState(c *api.ConfigState) string {
	if c.Stale {
		return "is not what runs: " + c.Reason
	}
	return c.File + " is what runs"
}

// byState writes numbers by state, in the order of states: 3 up, 1 gone. No answer has counts while
// a worker is stuck.
func byState(count map[string]int, states ...string) string {
	if count == nil {
		return "unknown"
	}
	var parts []string
	for _, state := range states {
		if n := count[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
