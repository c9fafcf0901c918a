package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

func (a *app) memberReady() *cobra.Command {
	var ready client.Confirmation
	var psn uint32
	cmd := &cobra.Command{
		Use:   "ready GROUP --ip IP --qpn N --state STATE",
		Short: "Confirm that a receiver's QP is ready",
		Long: `Confirm that a receiver's QP is ready, with what ibv_query_qp says of it. A group is clear to send once all its members are
reached and those with confirm: true in the group file have confirmed. What is given is compared with the group file, so that
a QP that would lose data is found before the source sends. Of several boxes, confirm at that of the receiver or at one above it.`,
		Args:              takes("GROUP"),
		ValidArgsFunction: completed(a.groupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case ready.IP == "":
				return usage(cmd, "--ip IP is missing")
			case ready.QPN == 0:
				return usage(cmd, "--qpn N is missing")
			case ready.State == "":
				return usage(cmd, "--state STATE is missing")
			}
			if cmd.Flags().Changed("psn") {
				ready.PSN = &psn
			}
			g, err := a.client().Confirm(cmd.Context(), args[0], ready)
			if err != nil {
				return err
			}
			return a.print(g, func(w io.Writer) {
				printReached(w, g, fmt.Sprintf("has the confirmation of %s", ready.IP))
			})
		},
	}
	cmd.Flags().StringVar(&ready.IP, "ip", "", "the receiver's `IP`")
	cmd.Flags().Uint32Var(&ready.QPN, "qpn", 0, "the number `N` of its QP")
	cmd.Flags().StringVar(&ready.State, "state", "", "the QP's `STATE`: RTR or RTS")
	cmd.Flags().Uint32Var(&psn, "psn", 0, "the PSN that the QP expects first (rq_psn)")
	cmd.Flags().Uint32Var(&ready.RemoteQPN, "remote-qpn", 0, "the QPN of the QP's peer (dest_qp_num)")
	cmd.Flags().IntVar(&ready.MTU, "mtu", 0, "the QP's path MTU in bytes")
	completeFlag(cmd, "ip", a.receivers(func(m api.Member) string { return m.IP }))
	completeFlag(cmd, "qpn", a.receivers(func(m api.Member) string { return fmt.Sprint(m.QPN) }))
	completeFlag(cmd, "state", words("RTR", "RTS"))
	return cmd
}
