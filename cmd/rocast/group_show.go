package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

func (a *app) groupShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show a group: members, next hops, progress, counters",
		Long: `Show a group: members, next hops, progress, counters.

ACKED and the source's progress are PSNs of the source; merged is the last one that was acknowledged to it. goodput says how
many packets are acknowledged to it in a second, and how many were before. PENDING is a NAK that was not yet sent to the source. PART says how a receiver takes part; if it no longer does, STATE says how it can join
again. HOST: the numbers of the member's queue pair, as its program has them, and the way to its host. LINK: a member whose QP has a
peer address of its own, REMOTE IP, or which stands for several RECEIVERS in a quorum: another box. REPAIR, with repair: local:
NOW says whether the box repairs at the moment, CURSOR is the next packet that it sends to a receiver, LAG how many packets the
receiver has not acknowledged, REPAIRED how many the box sent it again, LAST MINUTE how many of these in the last minute, PROBES
how many because it was silent, GIVEN UP how often the source had to help. Only root sees R_Keys.`,
		Args:              takes("NAME"),
		ValidArgsFunction: completed(a.groupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := a.client().Group(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(g, func(w io.Writer) { printGroup(w, g) })
		},
	}
}

func printGroup(w io.Writer, g api.Group) {
	row(w, "name", g.Name)
	row(w, "state", because(g.State, g.Reason))
	if g.Root != "" {
		row(w, "root", fmt.Sprintf("box %s, which shows more", g.Root))
	}
	if g.Policy == nil { // the daemon cannot read the kept file and has nothing more to report
		return
	}
	row(w, "ip", g.IP)
	row(w, "qpn", g.QPN)
	row(w, "addressing", g.Addressing)
	row(w, "mtu", g.MTU)
	p := g.Policy
	row(w, "policy", policyText(p))
	row(w, "repair", repairPolicy(p))
	if g.Retained != nil {
		row(w, "retained", fmt.Sprintf("%d of %d KiB", *g.Retained>>10, p.RepairBytes>>10))
	}
	if e := g.Engine; e != nil && e.Carrier != "" {
		row(w, "engine", because(fmt.Sprintf("%s (%s), the kernel carried %d packets", e.Carrier, e.Wanted, e.Carried), e.Reason))
		if e.Answers != "" {
			row(w, "answers", "user space merges them: "+e.Answers)
		}
	}
	if g.CopiesOwn != "" {
		row(w, "copies", "own: "+g.CopiesOwn)
	}
	row(w, "restored", yesNo(g.Restored))
	source := "not heard yet"
	if p := g.Progress; p != nil {
		source = fmt.Sprintf("sent %d, is at %d, merged %d", p.Sent, p.Position, p.Merged)
	}
	row(w, "source", source)
	if p := g.Goodput; p != nil {
		row(w, "goodput", fmt.Sprintf("%.0f packets/s, and %.0f before", p.Now, p.Before))
	}
	for _, note := range g.Notes {
		row(w, "note", note)
	}
	if u := g.Upper; u != nil {
		row(w, "part of", fmt.Sprintf("the group of box %s, asked for by box %s", u.Root, u.Box))
	}
	printMembers(w, g)
	printBoxes(w, g)
	printLinks(w, g)
	printRepair(w, g)
	printShares(w, g)
	printMemory(w, g)
	fmt.Fprintln(w)
	counters(w, g.Counters)
}

// policyText names every key of a policy that has an effect, but for repair, which has a row of its
// own.
func policyText(p *api.Policy) string {
	var all []string
	for k, value := range jsonFields(p) {
		if !strings.HasPrefix(k, "repair") && value.Interface() != "" {
			all = append(all, fmt.Sprint(k, " ", value))
		}
	}
	return strings.Join(all, ", ")
}

func repairPolicy(p *api.Policy) string {
	if p.RepairWindow == 0 {
		return p.Repair
	}
	return fmt.Sprintf("%s, window %d packets in %d KiB, %d attempts, timer %s to %s",
		p.Repair, p.RepairWindow, p.RepairBytes>>10, p.RepairAttempts, p.RepairTimerFloor, p.RepairTimerCap)
}

// printRepair prints what the box does for receivers that lost packets.
func printRepair(w io.Writer, g api.Group) {
	if g.Policy.RepairWindow == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "REPAIR", "QPN", "NOW", "CURSOR", "LAG", "REPAIRED", "LAST MINUTE", "PROBES", "GIVEN UP")
	for _, m := range g.Members {
		if r := m.Repair; r != nil {
			row(w, m.IP, m.QPN, yesNo(r.Repairing), r.Cursor, r.Lag, r.Repaired, r.Recently, r.Probes, r.GivenUp)
		}
	}
}

// printShares prints the legs that receivers share, and how the copies for each leave.
func printShares(w io.Writer, g api.Group) {
	if len(g.Shares) > 0 {
		fmt.Fprintln(w)
		row(w, "SHARED", "QPN", "MEMBERS", "WORKING", "PACKETS", "SAVED COPIES", "RETIRED")
		for _, s := range g.Shares {
			row(w, s.IP, s.QPN, s.Members, s.Working, s.Packets, s.Saved, yesNo(s.Retired))
		}
	}
	if !slices.ContainsFunc(g.Members, func(m api.Member) bool { return m.Copies != "" }) {
		return
	}
	fmt.Fprintln(w)
	row(w, "COPIES", "QPN", "HOW")
	for _, m := range g.Members {
		if m.Copies == "" {
			continue
		}
		how := m.Copies
		if m.Edge != "" {
			how += "; edge " + m.Edge
		}
		row(w, m.IP, m.QPN, how)
	}
}

func printMembers(w io.Writer, g api.Group) {
	fmt.Fprintln(w)
	row(w, "MEMBER", "QPN", "ROLE", "PORT", "PART", "ACKED", "PENDING", "STATE")
	for _, m := range g.Members {
		row(w, m.IP, m.QPN, m.Role, m.Port, m.Part, optional(m.Acked), m.Pending, because(m.State, m.Reason))
	}
	fmt.Fprintln(w)
	row(w, "HOST", "QPN", "REMOTE QPN", "FIRST PSN", "SEND PSN", "MAC", "VLAN")
	for _, m := range g.Members {
		row(w, m.IP, m.QPN, m.RemoteQPN, m.PSN, optional(m.SendPSN), m.MAC, vlans(m.VLANs))
	}
}

// printLinks prints what the group file says of members that are other boxes.
func printLinks(w io.Writer, g api.Group) {
	if !slices.ContainsFunc(g.Members, isLink) {
		return
	}
	fmt.Fprintln(w)
	row(w, "LINK", "REMOTE QPN", "REMOTE IP", "RECEIVERS")
	for _, m := range g.Members {
		if isLink(m) {
			row(w, m.IP, m.RemoteQPN, m.RemoteIP, max(1, m.Receivers))
		}
	}
}

func isLink(m api.Member) bool { return m.RemoteIP != "" || m.Receivers > 1 }

// printBoxes prints the boxes behind this one.
func printBoxes(w io.Writer, g api.Group) {
	if len(g.Links) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "BOX", "ADDRESS", "QPN", "STATE")
	for _, l := range g.Links {
		row(w, l.Box, l.Remote.IP, l.Remote.QPN, because(l.State, l.Reason))
		if len(l.Members) > 0 {
			fmt.Fprintf(w, "  members %s\n", strings.Join(l.Members, ","))
		}
	}
}

// printMemory prints each virtual region, and the address of that region at every receiver.
func printMemory(w io.Writer, g api.Group) {
	if g.RegionCount > 0 {
		fmt.Fprintf(w, "\nthe memory is a table of %d regions; rocast region ls %s lists them\n", g.RegionCount, g.Name)
	}
	if len(g.Memory) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "MEMORY", "VA", "LENGTH", "RKEY")
	for i, r := range g.Memory {
		row(w, "group", r.VA, r.Length, rkey(r.RKey))
		for _, m := range g.Members {
			if i < len(m.Regions) {
				row(w, "  "+m.IP, m.Regions[i].VA, m.Regions[i].Length, rkey(m.Regions[i].RKey))
			}
		}
	}
}

func rkey(key *api.Hex) string {
	if key == nil {
		return "hidden"
	}
	return key.String()
}

func optional(psn *uint32) string {
	if psn == nil {
		return ""
	}
	return fmt.Sprint(*psn)
}

func vlans(ids []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", "."), "[]")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
