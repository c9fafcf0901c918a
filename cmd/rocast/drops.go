package main

import (
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

// dropped are the counters of frames that were lost or refused here, without those of the ports.
var dropped = []string{
	"bad-icrc", "beyond-sent", "connection-management", "fan-out-copy_malformed", "fan-out-copy_stale", "group-gone", "handoff-full",
	"hop-limit-exceeded", "malformed", "not-member", "not-receiver", "not-source", "not-taking-part", "outside-window", "over-mtu", "refused", "refused-memory",
	"source-blocked", "source-out-of-step", "unknown-opcode", "unknown-qpn", "unmergeable-response", "unsent", "wrong-destination",
	"wrong-port", "wrong-qpn", "wrong-transport", "wrong-vlan", "classifier-drop_own_source", "classifier-pass_meta_failed",
	"classifier-pass_no_socket",
}

// onlyDrops leaves the counters of frames that were lost or refused, and that are not 0.
func onlyDrops(e explained) explained {
	maps.DeleteFunc(e.Counters, func(name string, n uint64) bool { return n == 0 || !slices.Contains(dropped, name) })
	maps.DeleteFunc(e.Ports, func(name string, n uint64) bool { return n == 0 || name == "tx-withdrawn" })
	maps.DeleteFunc(e.Meanings, func(name, _ string) bool { return e.Counters[name] == 0 && e.Ports[name] == 0 })
	return e
}

func (a *app) drops() *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use:   "drops",
		Short: "Show which frames were lost or refused, and why",
		Long: `Show which frames were lost or refused, and why: the counters of rocast stats --explain that count such frames and are not 0, over
all groups. With --group: only those of one group.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.allDrops(cmd, group)
			if err != nil {
				return err
			}
			return a.print(e, func(w io.Writer) {
				if len(e.Meanings) == 0 {
					_, _ = io.WriteString(w, "none\n")
					return
				}
				printExplained(w, e)
			})
		},
	}
	a.groupFlag(cmd, &group, "only the frames of the group `NAME`")
	return cmd
}

func (a *app) allDrops(cmd *cobra.Command, group string) (explained, error) {
	if group != "" {
		t, err := a.client().Traffic(cmd.Context(), group)
		if err != nil {
			return explained{}, err
		}
		return explain(api.Stats{Counters: t.Groups[0].Drops}, api.Ports{}), nil
	}
	stats, err := a.client().Stats(cmd.Context())
	if err != nil {
		return explained{}, err
	}
	ports, err := a.client().Ports(cmd.Context())
	return onlyDrops(explain(stats, ports)), err
}
