package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) reload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Take over what has changed in the config of rocastd",
		Long: `Take over what has changed in the config file of rocastd, without a restart. The whole file is checked first, as rocastd --check
does it. Then everything that has changed is taken over, or, if a part of it cannot be, nothing: the error says which part and why.
Groups run on. A port is not removed while a member of a group is behind it.

Ports come and go, and the log has another level. Other keys change only at a restart (docs/reference.md).
rocast status says whether the file is what runs. systemctl reload rocastd, or SIGHUP to rocastd, does the same.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := a.client().Reload(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(done, func(w io.Writer) { fmt.Fprintln(w, done) })
		},
	}
}
