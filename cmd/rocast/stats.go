package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

func (a *app) stats() *cobra.Command {
	withMeaning := false
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show counters of frames, over all groups, and what is kept for repair",
		Long: `Show counters of frames, over all groups, and what is kept for repair. With --explain each counter has a sentence, and the
kernel's counters of the ports are there too, summed over all ports; rocast port ls --json has them for each port.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			stats, err := a.client().Stats(cmd.Context())
			if err != nil {
				return err
			}
			if !withMeaning {
				return a.print(stats, func(w io.Writer) {
					printRetained(w, stats.Retained)
					counters(w, stats.Counters)
				})
			}
			ports, err := a.client().Ports(cmd.Context())
			if err != nil {
				return err
			}
			e := explain(stats, ports)
			return a.print(e, func(w io.Writer) {
				printRetained(w, stats.Retained)
				printExplained(w, e)
			})
		},
	}
	cmd.Flags().BoolVar(&withMeaning, "explain", false, "say what each counter means")
	return cmd
}

func printRetained(w io.Writer, r api.Retained) {
	row(w, "PACKETS RETAINED FOR REPAIR", "BUFFERS USED", "BUFFERS IN ALL")
	row(w, r.Packets, r.Buffers, r.Room)
	fmt.Fprintln(w)
}
