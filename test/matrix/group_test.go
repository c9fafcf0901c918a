package matrix

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/matrix"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

const (
	groupName   = "cell"
	groupQPN    = 0x21
	memoryBytes = 256 << 10
	writeBytes  = 8 << 10
	virtualVA   = 0x10000
	virtualRKey = 0x77
	quorum      = 2
)

// member is a host of the group with its queue pair.
type member struct {
	*bed.Host
	number  int
	sees    netip.Addr // its peer
	memory  []byte
	qp      *endpoint.QP
	qpn     roce.QPN
	sends   roce.PSN
	expects roce.PSN
	program *program // of the host, if hosts make the group
	dialog  *dialog  // of the host, if it connects by RDMA-CM
	tool    *tool    // of the host, if it runs perftest
}

// part is a region of the group's memory: its bytes, and its number among the regions.
type part struct{ number, from, to int }

// parts returns the regions that the cell has. Without any, the hosts know each other's addresses.
func parts(c matrix.Cell) []part {
	switch c.Get("regions") {
	case "many", "table":
		return []part{{0, 0, memoryBytes / 4}, {1, memoryBytes / 4, memoryBytes / 2}, {2, memoryBytes / 2, memoryBytes}}
	}
	return []part{{0, 0, memoryBytes}}
}

// virtual is where the source has a part.
func (p part) virtual() rnic.Remote {
	return rnic.Remote{VA: virtualVA + uint64(p.from), RKey: virtualRKey + uint32(p.number)}
}

// at is where a receiver has a part.
func (m *member) at(c matrix.Cell, p part) rnic.Remote {
	if c.Is("regions", "none") {
		return p.virtual()
	}
	return rnic.Remote{VA: uint64(m.number+1)<<40 + uint64(p.number)<<32, RKey: uint32(0x1000*(m.number+1) + p.number)}
}

// text is the group file of a cell with these members, of which the first is the source.
func text(c matrix.Cell, ip netip.Addr, members []*member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %s\naddressing: %s\nengine: %s\n",
		groupName, ip, groupQPN, c.Get("mtu"), c.Get("addressing"), c.Get("engine"))
	fmt.Fprintln(&b, strings.Join(policyLines(c), "\n"))
	switch c.Get("regions") {
	case "one", "many":
		b.WriteString("memory:\n")
		for _, p := range parts(c) {
			fmt.Fprintf(&b, "  - {va: %#x, length: %d, rkey: %#x}\n", p.virtual().VA, p.to-p.from, p.virtual().RKey)
		}
	case "table":
		b.WriteString("memory: table\n")
	}
	b.WriteString("members:\n")
	for i, m := range members {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, %s}\n", m.IP, m.qpn, m.role(c, i == 0))
	}
	return b.String()
}

// policyLines is the policy of a cell, as it stands in a group file.
func policyLines(c matrix.Cell) (lines []string) {
	for _, key := range []string{"repair", "nak", "on-fatal"} {
		lines = append(lines, key+": "+c.Get(key))
	}
	if c.Is("ack", "quorum") {
		lines = append(lines, fmt.Sprintf("ack: quorum %d", quorum))
	}
	if c.Is("evict", "yes") {
		lines = append(lines, "silent-after: 300ms", "evict: true")
	}
	if c.Is("source-switch", "force") {
		lines = append(lines, "source-switch: force")
	}
	return lines
}

func mtuOf(c matrix.Cell) int {
	return map[string]int{"256": 256, "1024": 1024, "4096": 4096}[c.Get("mtu")]
}

func (m *member) role(c matrix.Cell, source bool) string {
	both := !c.Is("source-switch", "none")
	words := []string{"psn: " + strconv.Itoa(int(m.expects))}
	switch {
	case both:
		words = append(words, "role: both", "sendPSN: "+strconv.Itoa(int(m.sends)))
	case source:
		return fmt.Sprintf("psn: %d, role: source", m.sends)
	}
	if c.Is("regions", "one") || c.Is("regions", "many") {
		var regions []string
		for _, p := range parts(c) {
			at := m.at(c, p)
			regions = append(regions, fmt.Sprintf("{va: %#x, length: %d, rkey: %#x}", at.VA, p.to-p.from, at.RKey))
		}
		words = append(words, "regions: ["+strings.Join(regions, ", ")+"]")
	}
	return strings.Join(words, ", ")
}

// table is the regions of a group with a table, for those that receive.
func table(c matrix.Cell, receivers []*member) iter.Seq[api.NewRegion] {
	var regions []api.NewRegion
	for _, p := range parts(c) {
		regions = append(regions, newRegion(p.virtual(), p.to-p.from, receivers, func(m *member) rnic.Remote { return m.at(c, p) }))
	}
	return slices.Values(regions)
}

func newRegion(v rnic.Remote, bytes int, receivers []*member, at func(*member) rnic.Remote) api.NewRegion {
	r := api.NewRegion{VA: api.Hex(v.VA), Length: uint64(bytes), RKey: api.Hex(v.RKey)}
	for _, m := range receivers {
		r.At = append(r.At, api.RegionAt{IP: m.IP.String(), VA: api.Hex(at(m).VA), RKey: api.Hex(at(m).RKey)})
	}
	return r
}
