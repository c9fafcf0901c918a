package main

import (
	"io"

	"github.com/spf13/cobra"
)

func (a *app) features() *cobra.Command {
	return &cobra.Command{
		Use:   "features",
		Short: "List what the daemon uses of the kernel, and whether it is there",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Features(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(list, func(w io.Writer) {
				row(w, "FEATURE", "KERNEL", "STATUS", "WITHOUT IT")
				for _, f := range list.Features {
					row(w, f.Name, ">= "+f.Since, because(f.Status, f.Detail), f.Fallback)
				}
			})
		},
	}
}
