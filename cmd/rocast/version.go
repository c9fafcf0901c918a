package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/version"
)

// versions holds the versions of this program and of the daemon.
type versions struct {
	Client api.Version  `json:"rocast"`
	Daemon *api.Version `json:"rocastd"` // null: the daemon does not answer
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, and of the daemon if one answers",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: version.Build()}
			daemon, err := a.client().Version(cmd.Context())
			e := (*api.Error)(nil)
			switch {
			case err == nil:
				v.Daemon = &daemon
			case !errors.As(err, &e) || e.Kind != api.Unreachable:
				return err
			}
			return a.print(v, func(w io.Writer) {
				row(w, "rocast", v.Client.Version)
				if v.Daemon != nil {
					row(w, "rocastd", v.Daemon.Version)
				} else {
					row(w, "rocastd", err)
				}
			})
		},
	}
}
