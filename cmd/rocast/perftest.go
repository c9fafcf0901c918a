package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

func (a *app) perftestUp() *cobra.Command {
	var request api.PerftestRequest
	cmd := &cobra.Command{
		Use:   "up --group-ip IP --receivers IP,IP,...",
		Short: "Let an unmodified ib_write_bw or ib_send_bw talk to a group",
		Long: `Let an unmodified ib_write_bw or ib_send_bw talk to a group. The daemon takes the place of the server towards the client, and
of the client towards each receiver's server; a group is made when a run begins and removed when it ends.

  on each receiver   ib_write_bw -d rxe0
  on the box         rocast perftest up --group-ip 10.77.0.100 --receivers 10.77.0.2,10.77.0.3
  on the source      ib_write_bw -d rxe0 10.77.0.100

The group IP is an address of the hosts' subnet that no host has. Clients of that subnet are served, or those of the networks that
--allow names. They have their runs one after the other; perftest ls shows which ones wait. What no group can carry is refused, and
perftest ls says why: READ and atomics, latency tests, -b, -R, UD and UC.

What this command brings up ends with the daemon. The config's key perftest makes it come up with every start.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case request.GroupIP == "":
				return usage(cmd, "--group-ip IP is missing")
			case len(request.Receivers) == 0:
				return usage(cmd, "--receivers IP,IP,... is missing")
			}
			p, err := a.client().PerftestUp(cmd.Context(), request)
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer) {
				fmt.Fprintf(w, "perftest on %s is up until rocastd ends: TCP port %d, %d receivers, clients of %s\n",
					p.GroupIP, p.Port, len(p.Receivers), strings.Join(p.Allow, ", "))
			})
		},
	}
	cmd.Flags().StringVar(&request.GroupIP, "group-ip", "", "the `IP` that the client is told to connect to")
	cmd.Flags().StringSliceVar(&request.Receivers, "receivers", nil, "where perftest's servers run: `IP,IP,...`")
	cmd.Flags().Uint16Var(&request.Port, "port", 0, "perftest's TCP port here and there, its option -p (default 18515)")
	cmd.Flags().StringSliceVar(&request.Allow, "allow", nil, "networks whose clients are served: `NETWORK,...` "+
		"(default the group IP's subnet)")
	return cmd
}

func (a *app) perftestDown() *cobra.Command {
	var groupIP string
	cmd := &cobra.Command{
		Use:   "down --group-ip IP",
		Short: "End what up began, and the run that is on",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if groupIP == "" {
				return usage(cmd, "--group-ip IP is missing")
			}
			removed, err := a.client().PerftestDown(cmd.Context(), groupIP)
			if err != nil {
				return err
			}
			return a.print(removed, func(w io.Writer) { fmt.Fprintf(w, "perftest on %s is down\n", removed.Name) })
		},
	}
	cmd.Flags().StringVar(&groupIP, "group-ip", "", "the `IP` it is up on")
	return cmd
}

func (a *app) perftestList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the group IPs that perftest can talk to, with their runs",
		Long: `List the group IPs that perftest can talk to, each with the clients that are connected, or else its last run. RUN says how far
a client is: waiting means for the end of the run before. --json has the runs before, too.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Perftests(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(list, func(w io.Writer) { printPerftests(w, list) })
		},
	}
}

func printPerftests(w io.Writer, list api.Perftests) {
	row(w, "GROUP IP", "PORT", "RECEIVERS", "CLIENT", "VERSION", "QPS", "MTU", "RUN")
	for _, p := range list.Perftests {
		receivers := strings.Join(p.Receivers, ",")
		if len(p.Runs) == 0 {
			row(w, p.GroupIP, p.Port, receivers, "", "", "", "", "no client yet")
			continue
		}
		for _, run := range worthShowing(p.Runs) {
			row(w, p.GroupIP, p.Port, receivers, run.Client, run.Version, known(run.QPs), known(run.MTU), because(run.State, run.Reason))
		}
	}
}

// worthShowing returns the runs that are not over. If all runs are over, it returns the last run.
func worthShowing(runs []api.PerftestRun) []api.PerftestRun {
	var on []api.PerftestRun
	for _, run := range runs {
		if run.Ended == nil {
			on = append(on, run)
		}
	}
	if len(on) == 0 {
		on = runs[len(runs)-1:]
	}
	return on
}

// known returns an empty string for 0: a run that ended early has no such number.
func known(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
