package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

// down is the command that stops a service at a group IP. stop asks the daemon to do that, and ls
// asks it for the services that are up; at returns their group IPs.
func down[L any](a *app, short, service string, stop func(*client.Client, context.Context, string) (api.Removed, error),
	ls func(*client.Client, context.Context) (L, error), at func(L) []string) *cobra.Command {
	var groupIP string
	cmd := &cobra.Command{
		Use:   "down --group-ip IP",
		Short: short,
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if groupIP == "" {
				return usage(cmd, "--group-ip IP is missing")
			}
			removed, err := stop(a.client(), cmd.Context(), groupIP)
			if err != nil {
				return err
			}
			return a.print(removed, func(w io.Writer) { fmt.Fprintf(w, "%s on %s is down\n", service, removed.Name) })
		},
	}
	cmd.Flags().StringVar(&groupIP, "group-ip", "", "the group `IP`")
	completeFlag(cmd, "group-ip", completed(func(ctx context.Context, _ []string) []cobra.Completion {
		up, _ := ls(a.client(), ctx)
		return at(up)
	}))
	return cmd
}

// list is the command that lists services.
func list[T any](a *app, short, long string, ask func(*client.Client, context.Context) (T, error), show func(io.Writer, T)) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: short,
		Long:  long,
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := ask(a.client(), cmd.Context())
			if err != nil {
				return err
			}
			return a.print(l, func(w io.Writer) { show(w, l) })
		},
	}
}

// notOver returns the runs, or connections, that are not over. If all are over, it returns the last
// one.
func notOver[T any](all []T, isOver func(T) bool) []T {
	on := slices.DeleteFunc(slices.Clone(all), isOver)
	if len(on) == 0 {
		on = all[len(all)-1:]
	}
	return on
}

// endsUnless adds to a state when it ends, and what puts that off.
func endsUnless(state string, ends *time.Time, unless string, now time.Time) string {
	if ends != nil {
		state += fmt.Sprintf(", ends in %v", max(0, ends.Sub(now)).Round(time.Second))
	}
	if unless != "" {
		state += " unless " + unless
	}
	return state
}

// known returns an empty string for 0: a run that ended early has no such number.
func known(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
