package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

func (a *app) logLevel() *cobra.Command {
	return &cobra.Command{
		Use:   "level [LEVEL]",
		Short: "Show the level of the daemon's log, or change it at once",
		Long: `Show the level of the daemon's log, or change it at once: debug, info, warn or error. The log has the lines of that level and of
the graver ones. A restart of the daemon brings the level of its config back.`,
		Args:              mayTake("LEVEL"),
		ValidArgsFunction: words("debug", "info", "warn", "error"),
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := a.client().Log(cmd.Context())
			if err == nil && len(args) == 1 {
				log, err = a.client().SetLog(cmd.Context(), api.Log{Level: args[0]})
			}
			if err != nil {
				return err
			}
			return a.print(log, func(w io.Writer) { fmt.Fprintln(w, log.Level) })
		},
	}
}
