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
		Long: `List the ports as they are now. STATE is up or down, as the link is; gone: no interface has the name; failed: it could not be
opened, and the last lines say why. Either is opened as soon as it can be. ATTACH says where the classifier runs, MODE how frames get to user space. RX and TX count frames of groups;
LOST are those a port could not take. --json has bytes and the kernel's counts too.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Ports(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(list, func(w io.Writer) {
				row(w, "PORT", "STATE", "MAC", "MTU", "ATTACH", "MODE", "MULTI-BUFFER", "QUEUES", "RX", "TX", "LOST")
				for _, p := range list.Ports {
					row(w, p.Name, p.State, p.MAC, p.MTU, p.Attach, p.Mode, yesNo(p.MultiBuffer), p.Queues, p.RxFrames, p.TxFrames, p.TxLost)
				}
				for _, p := range list.Ports {
					if p.Reason != "" {
						fmt.Fprintf(w, "%s is %s: %s\n", p.Name, p.State, p.Reason)
					}
					if p.NoKernel != "" {
						fmt.Fprintf(w, "The kernel engine cannot send by %s: %s\n", p.Name, p.NoKernel)
					}
				}
			})
		},
	}
}
