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
	fmt.Fprintf(&b, "name: %q\nip: %q\nqpn: %d\nmtu: %d\naddressing: %v\nengine: %v\n",
		f.Name, f.IP, f.QPN, f.PathMTU, f.Addressing, f.Engine)
	asks := f.AsksForRepair() // else repair is left out: a box that reads the text may have less memory than this one
	for i := range feedback.Keys {
		k := &feedback.Keys[i]
		if !asks && (k.Repairs || k.Name == feedback.KeyRepair && f.Policy.Repair != feedback.RepairOff) {
			continue
		}
		if k.Name == feedback.KeyOnSlow && f.Policy.OnSlow == feedback.SlowWait { // a box of an older release knows no such key
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", k.Name, keyText(k, f.Policy))
	}
	if f.Copies != CopiesAuto { // a box of an older release knows no such key
		fmt.Fprintf(&b, "copies: %v\n", f.Copies)
	}
	if f.DegradedAfter != 0 { // else degraded-below has no effect, which is refused
		fmt.Fprintf(&b, "degraded-below: %d%%\n", f.DegradedBelow)
	}
	fmt.Fprintf(&b, "degraded-after: %v\n", f.DegradedAfter)
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
	add(m.RelayQPN != 0, KeyRelayQPN+": %d", m.RelayQPN)
	add(m.RelayShares, "relayShares: %t", m.RelayShares)
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
