// Package softgroup is a group of a test as its hosts have it: what the group file says of them,
// their queue pairs, and transfers of which the bytes are compared at every member. The hosts are
// those of beds, whose NICs are soft.
package softgroup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

// The memory of a group as a source has it, and the path MTU.
const (
	VA      = 0x10000
	RKey    = 0x77
	PathMTU = 1024
)

// patience bounds one transfer. One that holds never takes that long.
const patience = 2 * time.Minute

// Role is what a member does.
type Role int

const (
	Receives Role = iota
	Sends         // as the only source
	Both
)

// Member is a host of the group.
type Member struct {
	*bed.Host
	Role    Role
	QPN     roce.QPN
	First   roce.PSN // that it sends
	Expects roce.PSN // first
	VA      uint64   // of its memory
	RKey    uint32
	Memory  []byte
	Sees    netip.Addr // its peer; not valid: the group's IP
	Renamed bool       // it has another MAC than at first, and refuses what goes to that one
	QP      *endpoint.QP
	written byte
}

// Group is the group. Its members are those that take part at present.
type Group struct {
	Name    string
	IP      netip.Addr
	QPN     roce.QPN
	Bytes   int    // of the memory
	Keys    string // lines of the group file
	Members []*Member
	// Timeout and RetryCount are those of the members' queue pairs; both 0: as bed.QP has them.
	Timeout, RetryCount uint8
	State               func() string // for a transfer that fails; nil: nothing

	made int // members so far
}

// Add lets a host take part. No two members have their memory at the same address.
func (g *Group) Add(h *bed.Host, role Role, qpn roce.QPN, first, expects roce.PSN) *Member {
	m := &Member{
		Host: h, Role: role, QPN: qpn, First: first.Add(0), Expects: expects.Add(0),
		VA: uint64(g.made) << 40, RKey: 0x1000 + uint32(qpn), Memory: make([]byte, g.Bytes),
	}
	g.made++
	g.Members = append(g.Members, m)
	return m
}

// Line is the member's line of the group file.
func (m *Member) Line() string {
	regions := fmt.Sprintf("regions: [{va: %#x, length: %d, rkey: %#x}]", m.VA, len(m.Memory), m.RKey)
	switch m.Role {
	case Sends:
		return fmt.Sprintf("{ip: %v, qpn: %d, psn: %d, role: source}", m.IP, m.QPN, m.First)
	case Both:
		return fmt.Sprintf("{ip: %v, qpn: %d, psn: %d, sendPSN: %d, role: both, %s}", m.IP, m.QPN, m.Expects, m.First, regions)
	}
	return fmt.Sprintf("{ip: %v, qpn: %d, psn: %d, %s}", m.IP, m.QPN, m.Expects, regions)
}

// File is the group file.
func (g *Group) File() string {
	var lines []string
	for _, m := range g.Members {
		lines = append(lines, m.Line())
	}
	return g.FileAt(g.IP, lines)
}

// FileAt is the group file of one box of a tree: with the IP that the group has there, and these
// lines of members.
func (g *Group) FileAt(ip netip.Addr, members []string) string {
	return fmt.Sprintf("name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\n%s\nmembers:\n  - %s\n",
		g.Name, ip, g.QPN, PathMTU, VA, g.Bytes, RKey, strings.TrimSpace(g.Keys), strings.Join(members, "\n  - "))
}

// Connect registers the memory of members and connects their queue pairs; none named: of all.
func (g *Group) Connect(t testing.TB, members ...*Member) {
	t.Helper()
	if len(members) == 0 {
		members = g.Members
	}
	for _, m := range members {
		if m.Role != Sends {
			testlab.Must(t, m.RNIC.Register(rnic.Region{VA: m.VA, RKey: m.RKey, Access: rnic.RemoteWrite, Bytes: m.Memory}))
		}
		c := bed.QP(m.QPN, m.First, PathMTU)
		if g.Timeout != 0 {
			c.Timeout, c.RetryCount = g.Timeout, g.RetryCount
		}
		var err error
		m.QP, err = m.RNIC.NewQP(c)
		testlab.Must(t, err)
		p := endpoint.Peer{IP: g.IP, QPN: g.QPN, PSN: m.Expects}
		if m.Sees.IsValid() {
			p.IP = m.Sees
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err = m.QP.Connect(ctx, p)
		cancel()
		testlab.Must(t, err)
	}
}

// New returns data that the member has not written yet.
func (m *Member) New(bytes int) []byte {
	m.written++
	// Two members never have the same data at the same time: what one has written proves nothing of
	// the other.
	data := bed.Random(bytes, m.written)
	for i := 0; i < len(data); i += PathMTU {
		data[i] ^= byte(m.QPN)
	}
	return data
}

// Transfer is data that a member has written, and the longest time between two completions.
type Transfer struct {
	Data   []byte
	Outage time.Duration
}

// Write lets a member write new data to the whole memory, by WRITEs of each bytes. It calls midway
// when half of them are complete; nil: nothing. The test fails if they do not complete, and if a
// member lacks any of the data then.
func (g *Group) Write(t testing.TB, from *Member, each int, midway func()) Transfer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x, err := g.Send(ctx, from, each, midway)
	if err != nil {
		t.Fatalf("%s: %v to write from %v: %v\n%s", g.Name, x.Outage, from.IP, err, g.state())
	}
	if err := g.Compare(from, x.Data); err != nil {
		t.Errorf("%s: from %v: %v\n%s", g.Name, from.IP, err, g.state())
	}
	return x
}

func (g *Group) state() string {
	if g.State == nil {
		return ""
	}
	return g.State()
}

// Send is Write without the comparison.
func (g *Group) Send(ctx context.Context, from *Member, each int, midway func()) (x Transfer, err error) {
	x.Data = from.New(g.Bytes)
	x.Outage, err = bed.Write(ctx, from.QP, rnic.Remote{VA: VA, RKey: RKey}, x.Data, each, midway)
	return x, err
}

// Compare returns an error if a member other than the one that wrote data lacks some of it, or if
// somebody got a frame that no correct peer sends.
func (g *Group) Compare(from *Member, data []byte) error {
	errs := []error{bed.CheckResponses(from.QP)}
	for _, m := range g.Members {
		if m == from || m.Role == Sends {
			continue
		}
		err := m.CheckReceived(m.Memory, data)
		if c := m.RNIC.Counters(); m.Renamed && c.Rejected() == c.Get(rnic.RejectDstMAC) && m.HasAt(0, data) {
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// HasAt reports whether the member's memory has data from that byte on.
func (m *Member) HasAt(from int, data []byte) bool { return m.Has(m.Memory[from:][:len(data)], data) }

// Lacking returns the members other than from whose memory does not have data from that byte on.
func (g *Group) Lacking(from *Member, at int, data []byte) (list []*Member) {
	for _, m := range g.Members {
		if m != from && m.Role != Sends && !m.HasAt(at, data) {
			list = append(list, m)
		}
	}
	return list
}
