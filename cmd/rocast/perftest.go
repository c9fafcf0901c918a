package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

func (a *app) perftestUp() *cobra.Command {
	var request api.PerftestRequest
	cmd := &cobra.Command{
		Use:   "up --group-ip IP --receivers IP,IP,...",
		Short: "Let an unmodified ib_write_bw or ib_send_bw talk to a group",
		Long: `Let an unmodified ib_write_bw or ib_send_bw talk to a group. To the client, the daemon is the server; to each receiver's
server, it is the client. It makes a group when a run begins, and removes the group when the run ends.

  on each receiver   ib_write_bw -d rxe0
  on the box         rocast perftest up --group-ip 10.77.0.100 --receivers 10.77.0.2,10.77.0.3
  on the source      ib_write_bw -d rxe0 10.77.0.100

The group IP is an address of the hosts' subnet that no host has. Clients of that subnet are served, or clients of the
networks that --allow names. The client is at this box; receivers may be behind other boxes. Runs take place one after the
other; perftest ls shows the clients that wait. A run that no group can carry is refused, and perftest ls says why: READ
and atomics, latency tests, -b, -R, UD and UC.

The service ends with the daemon. The key perftest in the daemon's config starts a service whenever the daemon starts.`,
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
	cmd.Flags().StringVar(&request.GroupIP, "group-ip", "", "the `IP` to which the client connects")
	cmd.Flags().StringSliceVar(&request.Receivers, "receivers", nil, "the hosts of perftest's servers: `IP,IP,...`")
	cmd.Flags().Uint16Var(&request.Port, "port", 0, "perftest's TCP port on the box and on the receivers, its option -p (default 18515)")
	cmd.Flags().StringSliceVar(&request.Allow, "allow", nil, "networks whose clients are served: `NETWORK,...` "+
		"(default the group IP's subnet)")
	policyFlag(cmd, &request.PolicyKeys)
	return cmd
}

func (a *app) perftestDown() *cobra.Command {
	return down(a, "Stop serving perftest at a group IP, and end its run", "perftest", (*client.Client).PerftestDown,
		(*client.Client).Perftests, perftestIPs)
}

func perftestIPs(l api.Perftests) []string {
	return of(l.Perftests, func(p api.Perftest) string { return p.GroupIP })
}

func (a *app) perftestList() *cobra.Command {
	return list(a, "List the group IPs that serve perftest, with their runs",
		`List the group IPs that serve perftest, each with the connected clients, or with its last run if there are none. RUN is the
state of a client's run, and when it ends if its sides do not go on; waiting means that the run before has not ended. --json has earlier runs too.`, (*client.Client).Perftests, printPerftests)
}

func printPerftests(w io.Writer, list api.Perftests) {
	row(w, "GROUP IP", "PORT", "CLIENT", "VERSION", "QPS", "MTU", "RUN")
	for _, p := range list.Perftests {
		if len(p.Runs) == 0 {
			row(w, p.GroupIP, p.Port, "", "", "", "", "no client yet")
		} else {
			for _, run := range notOver(p.Runs, func(r api.PerftestRun) bool { return r.Ended != nil }) {
				row(w, p.GroupIP, p.Port, run.Client, run.Version, known(run.QPs), known(run.MTU), because(endsUnless(run.State, run.Ends, run.Unless, time.Now()), run.Reason))
			}
		}
		fmt.Fprintf(w, "  receivers %s\n", strings.Join(p.Receivers, ","))
	}
}
