package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

func (a *app) groupTree() *cobra.Command {
	return &cobra.Command{
		Use:   "tree NAME",
		Short: "Show a group's tree over all boxes behind this one",
		Long: `Show a group's tree over all boxes behind this one. Each box is asked through the API; a box that could not be asked is listed
with the reason.

A line is a member or a box; what is behind a box is indented. PSN is the last packet that it has acknowledged, as the box above
counts, and LAG how many packets it lacks. PACKETS/S is how many packets a second a box and all behind it acknowledge, as that
box counts. NAKS is how often it asked the box above for a packet again: about once for each loss on the way between them. With
repair: local, REPAIRED says how many packets the box above sent it again, and LAST MINUTE how many of these in the last minute.`,
		Args:              takes("NAME"),
		ValidArgsFunction: completed(a.groupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			tree, err := a.client().Tree(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(tree, func(w io.Writer) {
				row(w, "BOX, MEMBER", "PSN", "LAG", "PACKETS/S", "NAKS", "REPAIRED", "LAST MINUTE", "ENGINE", "STATE")
				printTree(w, tree, nil, tree.Group.Progress, "")
			})
		},
	}
}

// printTree prints a box and what is behind it. link is the box as its upper box sees it, a member,
// and progress that of the upper box. The first box has no link.
func printTree(w io.Writer, t api.Tree, link *api.Member, progress *api.Progress, indent string) {
	name, state := "box "+t.Box, t.Group.State
	var engine, rate string
	if t.Box == "" {
		name = "this box"
	}
	if t.Group.Reason != "" {
		state = because(state, t.Group.Reason)
	}
	if t.Reason != "" {
		state = "not asked: " + t.Reason
	}
	if e := t.Group.Engine; e != nil {
		engine = e.Carrier
	}
	if p := t.Group.Goodput; p != nil {
		rate = fmt.Sprintf("%.0f", p.Now)
	}
	printBranch(w, indent+name, rate, engine, state, link, progress)
	indent += "  "
	for i := range t.Group.Members {
		m := &t.Group.Members[i]
		if below := behind(t, m); below != nil {
			printTree(w, *below, m, t.Group.Progress, indent)
		} else if t.Group.Upper == nil || m.RemoteIP == "" {
			what := indent + m.IP
			if m.Role != "receiver" {
				what += " (" + m.Role + ")"
			}
			printBranch(w, what, "", "", because(m.State, m.Reason), m, t.Group.Progress)
		}
	}
}

// behind returns the tree of the box whose end of a link a member is, or nil.
func behind(t api.Tree, m *api.Member) *api.Tree {
	for i, l := range t.Group.Links {
		if l.Remote.IP == m.IP && l.Local.QPN == m.RemoteQPN && i < len(t.Below) {
			return &t.Below[i]
		}
	}
	return nil
}

func printBranch(w io.Writer, what, rate, engine, state string, m *api.Member, p *api.Progress) {
	var psn, lag, naks, repaired, recently string
	if m != nil && m.Acked != nil {
		psn = fmt.Sprint(*m.Acked)
		if p != nil {
			lag = fmt.Sprint((p.Sent - *m.Acked) & 0xFFFFFF)
		}
	}
	if m == nil && p != nil {
		psn = fmt.Sprint(p.Merged)
	}
	if m != nil && m.Role != "source" {
		naks = fmt.Sprint(m.NAKs)
	}
	if m != nil && m.Repair != nil {
		repaired, recently = fmt.Sprint(m.Repair.Repaired), fmt.Sprint(m.Repair.Recently)
	}
	row(w, what, psn, lag, rate, naks, repaired, recently, engine, state)
}
