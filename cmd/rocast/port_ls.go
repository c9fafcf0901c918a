package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) portList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the ports",
		Long: `List the ports. STATE up and down are the state of the link. gone means that no interface has the name; failed means that the
port could not be opened, and the last lines say why. rocastd opens such a port as soon as it can. ATTACH says where the
classifier runs, MODE how frames get to user space. RX and TX count frames of groups; LOST counts the frames that a port
could not send, and MARKED the copies that were marked as having met congestion. --json also has bytes, the effects of egress in
rocastd.yaml and the kernel's counters.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Ports(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(list, func(w io.Writer) {
				row(w, "PORT", "STATE", "MAC", "MTU", "ATTACH", "MODE", "QUEUES", "RX", "TX", "LOST", "MARKED")
				for _, p := range list.Ports {
					row(w, p.Name, p.State, p.MAC, p.MTU, p.Attach, p.Mode, p.Queues,
						amount(float64(p.RxFrames)), amount(float64(p.TxFrames)), amount(float64(p.TxLost)), amount(float64(p.Marked)))
				}
				for _, p := range list.Ports {
					if p.Reason != "" {
						fmt.Fprintf(w, "%s is %s: %s\n", p.Name, p.State, p.Reason)
					}
					if p.Fallback != "" {
						fmt.Fprintf(w, "%s works in generic mode: %s\n", p.Name, p.Fallback)
					}
					if p.TagsTaken != "" {
						fmt.Fprintln(w, p.TagsTaken)
					}
					if p.NoKernel != "" {
						fmt.Fprintf(w, "The kernel engine cannot send by %s: %s\n", p.Name, p.NoKernel)
					}
				}
			})
		},
	}
}
