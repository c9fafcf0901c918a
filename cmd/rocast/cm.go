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

func (a *app) cmUp() *cobra.Command {
	var request api.CMRequest
	cmd := &cobra.Command{
		Use:   "up --group-ip IP --port N --receivers IP,IP,...",
		Short: "Let programs connect to a group by RDMA-CM, as to a host",
		Long: `Let programs connect to a group by RDMA-CM, as to a host. One connection of a source becomes one of each receiver; the box makes
a group for it, and removes the group when a side disconnects.

  on each receiver   a program that listens on port 7174 (rdma_listen)
  on the box         rocast cm up --group-ip 10.77.0.100 --port 7174 --receivers 10.77.0.2,10.77.0.3
  on the source      a program that connects to 10.77.0.100, port 7174 (rdma_connect)

The group IP is an address of the hosts' subnet that no host has. A group carries SEND and WRITE from the source to
the receivers; READ, atomics and what receivers send are refused. A source may WRITE with --memory private-data, if each receiver's
program accepts with private data that begins with 16 bytes, big-endian: VA (8), R_Key (4), length (4). The source then gets the VA,
R_Key and length of the group in their place. With --memory regions the group has no memory at first; rocast region add says where the
receivers have a region, and rocast cm ls names the group.

With --memory perftest the programs are ib_write_bw or ib_send_bw, with -R on all hosts. The box follows what they say to each other:

  on each receiver   ib_write_bw -R
  on the box         rocast cm up --group-ip 10.77.0.100 --port 18515 --receivers 10.77.0.2,10.77.0.3 --memory perftest
  on the source      ib_write_bw -R 10.77.0.100

The service ends with the daemon. The key cm in the daemon's config starts a service whenever the daemon starts.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case request.GroupIP == "":
				return usage(cmd, "--group-ip IP is missing")
			case request.Port == 0:
				return usage(cmd, "--port N is missing")
			case len(request.Receivers) == 0:
				return usage(cmd, "--receivers IP,IP,... is missing")
			}
			up, err := a.client().CMUp(cmd.Context(), request)
			if err != nil {
				return err
			}
			return a.print(up, func(w io.Writer) {
				fmt.Fprintf(w, "RDMA-CM on %s is up until rocastd ends: port %d, %d receivers, sources of %s\n",
					up.GroupIP, up.Port, len(up.Receivers), strings.Join(up.Allow, ", "))
				for _, note := range up.Notes {
					fmt.Fprintln(w, "  note:", note)
				}
			})
		},
	}
	cmd.Flags().StringVar(&request.GroupIP, "group-ip", "", "the `IP` to which the source connects")
	cmd.Flags().StringSliceVar(&request.Receivers, "receivers", nil, "the hosts whose programs listen: `IP,IP,...`")
	cmd.Flags().Uint16Var(&request.Port, "port", 0, "the port of rdma_bind_addr, at the group IP and at the receivers")
	cmd.Flags().StringVar(&request.Ack, "ack", "", "the receivers that must be there, and must have a packet: `POLICY`: all, or \"quorum N\" (default all)")
	cmd.Flags().StringVar(&request.Memory, "memory", "", "`PLACE`, where the box learns what memory the receivers have: private-data, perftest or regions (default: no memory)")
	cmd.Flags().BoolVar(&request.Choose, "choose", false, "the private data of a source's request names which of the receivers it connects to")
	cmd.Flags().StringSliceVar(&request.Allow, "allow", nil, "networks whose sources are served: `NETWORK,...` "+
		"(default the group IP's subnet)")
	policyFlag(cmd, &request.PolicyKeys)
	completeFlag(cmd, "memory", words("private-data", "perftest", "regions"))
	return cmd
}

func (a *app) cmDown() *cobra.Command {
	return down(a, "Stop answering RDMA-CM at a group IP, and disconnect its hosts", "RDMA-CM", (*client.Client).CMDown,
		(*client.Client).CMs, cmIPs)
}

func cmIPs(l api.CMs) []string { return of(l.CMs, func(up api.CM) string { return up.GroupIP }) }

func (a *app) cmList() *cobra.Command {
	return list(a, "List the group IPs that answer RDMA-CM, with their connections",
		`List the group IPs that answer RDMA-CM, each with its connections, or with the last one if there are none. CONNECTION says what a
connection waits for and when it ends without that; with --memory perftest it names the one whose run keeps other sources out.
--json has earlier connections too, and counts by name what was refused or did not fit.`, (*client.Client).CMs, printCMs)
}

// connectionState is how far a connection is, and what it waits for.
func connectionState(c *api.CMConnection, now time.Time) string {
	if c.HoldsRun {
		return endsUnless(c.State+", holds the run", c.Ends, c.Unless, now)
	}
	return endsUnless(c.State, c.Ends, c.Unless, now)
}

func printCMs(w io.Writer, list api.CMs) {
	row(w, "GROUP IP", "PORT", "ACK", "SOURCE", "CONNECTED", "GROUP", "CONNECTION")
	for _, up := range list.CMs {
		if len(up.Connections) == 0 {
			row(w, up.GroupIP, up.Port, up.Ack, "", "", "", "none yet")
		} else {
			for _, c := range notOver(up.Connections, func(c api.CMConnection) bool { return c.Ended != nil }) {
				row(w, up.GroupIP, up.Port, up.Ack, c.Source, known(c.Receivers), c.Group, because(connectionState(&c, time.Now()), c.Reason))
			}
		}
		fmt.Fprintf(w, "  receivers %s\n", strings.Join(up.Receivers, ","))
	}
}
