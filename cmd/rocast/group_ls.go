package main

import (
	"io"

	"github.com/spf13/cobra"
)

func (a *app) groupList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the groups",
		Long: "List the groups. WAITING counts the members that cannot be reached at present; group show says why. ROOT, with store: etcd: " +
			"the box that carries the group, if it is another one.",
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Groups(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(list, func(w io.Writer) {
				row(w, "NAME", "IP", "QPN", "ADDRESSING", "MEMBERS", "WAITING", "ROOT", "STATE")
				for _, g := range list.Groups {
					row(w, g.Name, g.IP, g.QPN, g.Addressing, g.MemberCount, g.WaitingCount, g.Root, because(g.State, g.Reason))
				}
			})
		},
	}
}

// because appends the reason to the state, if there is a reason.
func because(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + reason
}
