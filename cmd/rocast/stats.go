package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) stats() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show counters of frames, over all groups, and what is kept for repair",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			stats, err := a.client().Stats(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(stats, func(w io.Writer) {
				r := stats.Retained
				row(w, "PACKETS RETAINED FOR REPAIR", "BUFFERS USED", "BUFFERS IN ALL")
				row(w, r.Packets, r.Buffers, r.Room)
				fmt.Fprintln(w)
				counters(w, stats.Counters)
			})
		},
	}
}
