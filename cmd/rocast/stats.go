package main

import (
	"io"

	"github.com/spf13/cobra"
)

func (a *app) stats() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show counters of frames, over all groups",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			stats, err := a.client().Stats(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(stats, func(w io.Writer) { counters(w, stats.Counters) })
		},
	}
}
