package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) groupRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME",
		Short:             "Remove a group",
		Long:              "Remove a group. Its traffic ends, the box no longer has its IP, and a restart of the daemon does not restore it.",
		Args:              takes("NAME"),
		ValidArgsFunction: completed(a.groupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			removed, err := a.client().RemoveGroup(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(removed, func(w io.Writer) { fmt.Fprintf(w, "group %s removed\n", removed.Name) })
		},
	}
}
