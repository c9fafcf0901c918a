package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) features() *cobra.Command {
	return &cobra.Command{
		Use:   "features",
		Short: "List the kernel features that the daemon uses, and whether this kernel has them",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Features(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(list, func(w io.Writer) {
				row(w, "FEATURE", "KERNEL", "STATUS", "WITHOUT IT")
				for _, f := range list.Features {
					row(w, f.Name, ">= "+f.Since, f.Status, f.Fallback)
					if f.Detail != "" {
						fmt.Fprintf(w, "  %s\n", f.Detail)
					}
				}
			})
		},
	}
}
