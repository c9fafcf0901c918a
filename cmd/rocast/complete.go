package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

// completeWithin bounds how long a shell waits for the daemon when a user presses Tab.
const completeWithin = 2 * time.Second

// completion returns the words that may stand at the place of the cursor, each with a description
// behind a tab. The daemon is asked; if it does not answer there are none.
type completion = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective)

// completed turns a function that asks the daemon into a completion.
func completed(ask func(ctx context.Context, args []string) []cobra.Completion) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		return ask(ctx, args), cobra.ShellCompDirectiveNoFileComp
	}
}

// groupNames completes the only argument of a command: a group.
func (a *app) groupNames(ctx context.Context, args []string) []cobra.Completion {
	if len(args) > 0 {
		return nil
	}
	return a.anyGroup(ctx, nil)
}

func (a *app) anyGroup(ctx context.Context, _ []string) (names []cobra.Completion) {
	list, err := a.client().Groups(ctx)
	if err != nil {
		return nil
	}
	for _, g := range list.Groups {
		names = append(names, cobra.CompletionWithDesc(g.Name, fmt.Sprintf("%s, %d members", g.State, g.MemberCount)))
	}
	return names
}

func (a *app) portNames(ctx context.Context, _ []string) (names []cobra.Completion) {
	list, err := a.client().Ports(ctx)
	if err != nil {
		return nil
	}
	return of(list.Ports, func(p api.Port) string { return cobra.CompletionWithDesc(p.Name, p.State) })
}

// receivers completes something of the receivers of the group that args names.
func (a *app) receivers(word func(api.Member) string) completion {
	return completed(func(ctx context.Context, args []string) (found []cobra.Completion) {
		if len(args) == 0 {
			return nil
		}
		g, err := a.client().Group(ctx, args[0])
		if err != nil {
			return nil
		}
		for _, m := range g.Members {
			if m.Role != "source" {
				found = append(found, cobra.CompletionWithDesc(word(m), because(m.State, m.Reason)))
			}
		}
		return found
	})
}

// of returns a word of each item.
func of[T any](items []T, word func(T) string) (all []string) {
	for _, item := range items {
		all = append(all, word(item))
	}
	return all
}

// words completes one of several words.
func words(list ...cobra.Completion) completion {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// completeFlag says how the value of a flag is completed.
func completeFlag(cmd *cobra.Command, flag string, by completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // the command has no such flag, or two completions for it
	}
}
