package groupfile

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// Text returns a text that Parse reads as f. Only the lines are others.
func (f *File) Text() []byte {
	members := f.Receivers
	if f.Source.Role == Source {
		members = append([]Member{f.Source}, members...)
	}
	return f.text(members)
}

// BranchText returns a text of f with only the given members, and no source, for ParseBranch.
func (f *File) BranchText(members []Member) []byte { return f.text(members) }

func (f *File) text(members []Member) []byte {
	var b bytes.Buffer
	p := &f.Policy
	fmt.Fprintf(&b, "name: %q\nip: %q\nqpn: %d\nmtu: %d\naddressing: %v\nengine: %v\n",
		f.Name, f.IP, f.QPN, f.PathMTU, f.Addressing, f.Engine)
	fmt.Fprintf(&b, "ack: %v\nnak: %v\non-fatal: %v\nsilent-after: %v\nevict: %t\ncnp: %v\ncnp-interval: %v\n"+
		"credits: %v\nsource-switch: %v\n", p.Ack, p.Nak, p.OnFatal, p.SilentAfter, p.Evict, p.CNP,
		p.CNPInterval, p.Credits, p.Switch)
	if f.DegradedAfter != 0 { // else degraded-below has no effect, which is refused
		fmt.Fprintf(&b, "degraded-below: %d%%\n", f.DegradedBelow)
	}
	fmt.Fprintf(&b, "degraded-after: %v\n", f.DegradedAfter)
	switch {
	case p.Repair == feedback.RepairOff:
		fmt.Fprintf(&b, "repair: %v\n", p.Repair)
	case f.AsksForRepair(): // else it is left out: a box that reads the text may have less memory than this one
		fmt.Fprintf(&b, "repair: %v\nrepair-window: %d\nrepair-bytes: %dKiB\nrepair-attempts: %d\nrepair-timer-floor: %v\nrepair-timer-cap: %v\n",
			p.Repair, p.RepairWindow, p.RepairBytes>>10, p.RepairAttempts, p.RepairTimerFloor, p.RepairTimerCap)
	}
	if f.Hosts != HostsNothing {
		fmt.Fprintf(&b, "hosts: %v\n", f.Hosts)
	}
	if f.HostsSecret != (Secret{}) {
		fmt.Fprintf(&b, "hosts-secret: %q\n", f.HostsSecret)
	}
	switch {
	case f.Memory == nil:
	case f.Table:
		fmt.Fprintf(&b, "memory: %s\n", tableWord)
	case len(f.Memory) == 0:
		b.WriteString("memory: []\n")
	default:
		b.WriteString("memory:\n")
		for _, r := range f.Memory {
			fmt.Fprintf(&b, "  - %s\n", regionText(mft.Region(r)))
		}
	}
	b.WriteString("members:\n")
	for i := range members {
		fmt.Fprintf(&b, "  - %s\n", members[i].text())
	}
	return b.Bytes()
}

func (m *Member) text() string {
	keys := []string{fmt.Sprintf("ip: %q, qpn: %d, psn: %d, role: %v", m.IP, m.QPN, m.FirstPSN, m.Role)}
	add := func(wanted bool, format string, value any) {
		if wanted {
			keys = append(keys, fmt.Sprintf(format, value))
		}
	}
	add(m.Role == Both, "sendPSN: %d", m.SendPSN)
	add(true, "remoteQPN: %d", m.RemoteQPN)
	add(m.RemoteIP.IsValid(), "remoteIP: %q", m.RemoteIP)
	add(m.Behind > 0, "receivers: %d", m.Behind)
	add(m.Via != "", "via: %q", m.Via)
	add(m.Confirm, "confirm: %t", m.Confirm)
	var regions []string
	for _, r := range m.Regions {
		regions = append(regions, regionText(r))
	}
	add(len(regions) > 0, "regions: [%s]", strings.Join(regions, ", "))
	return "{" + strings.Join(keys, ", ") + "}"
}

func regionText(r mft.Region) string {
	return fmt.Sprintf("{va: %#x, length: %d, rkey: %#x}", r.VA, r.Length, r.RKey)
}
