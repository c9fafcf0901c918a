package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

func (a *app) events() *cobra.Command {
	var group string
	var watch, explain bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what has happened to groups, members, ports and neighbours",
		Long: `Show what has happened to groups, members, ports and neighbours: the last events of the daemon's present run, and with -w
the next ones as they happen. Each line has the time, what happened, to whom, and the cause.

With -w --json each event is a JSON document on a line of its own, and a last document has the error.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if explain {
				return a.print(eventKinds{api.EventMeanings()}, func(w io.Writer) {
					row(w, "EVENT", "MEANING")
					for _, m := range api.EventMeanings() {
						row(w, m.Kind, m.Meaning)
					}
				})
			}
			if !watch {
				list, err := a.client().EventsAfter(cmd.Context(), client.Cursor{}, group, 0)
				if err != nil {
					return err
				}
				return a.print(list, func(w io.Writer) { printEvents(w, list) })
			}
			for list, err := range a.client().Follow(cmd.Context(), client.Cursor{}, group) {
				if err != nil {
					return err
				}
				if err := a.watched(list); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the next events too, until interrupted")
	cmd.Flags().BoolVar(&explain, "explain", false, "show what each kind of events means")
	a.groupFlag(cmd, &group, "only the events of the group `NAME`")
	return cmd
}

// eventKinds is the answer of rocast events --explain.
type eventKinds struct {
	Kinds []api.EventMeaning `json:"kinds"`
}

// watched writes events that have just happened.
func (a *app) watched(list client.Events) error {
	if !a.json {
		return a.show(func(w io.Writer) { printEvents(w, list) })
	}
	for _, e := range list.Events {
		if err := json.NewEncoder(a.stdout).Encode(e); err != nil {
			return err
		}
	}
	return nil
}

// printEvents writes a line for each event. The columns have fixed widths: what comes later is not
// known.
func printEvents(w io.Writer, list client.Events) {
	if list.Missed {
		fmt.Fprintln(w, "rocastd has started again, or more has happened than it keeps; rocast group ls shows the groups")
	}
	for _, e := range list.Events {
		var whom []string
		for _, name := range []string{e.Group, e.Member, e.Port, e.Neighbour} {
			if name != "" {
				whom = append(whom, name)
			}
		}
		line := fmt.Sprintf("%s  %-18s  %-24s  %s", e.Time.Local().Format(time.DateTime), e.Kind, strings.Join(whom, " "), e.Cause)
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}
