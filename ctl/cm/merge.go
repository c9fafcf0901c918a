package cm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

const (
	// virtualVA is the start of a group's memory as the source sees it.
	virtualVA uint64 = 1 << 32
	// regionBytes is the length of what a receiver's private data says of its memory: VA (64 bits),
	// R_Key (32) and length (32), big-endian.
	regionBytes = 16
	// mtuUnit, doubled as often as a REQ's path MTU says, gives bytes.
	mtuUnit = 128
)

func readRegion(b []byte) mft.Region {
	return mft.Region{VA: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Length: uint64(binary.BigEndian.Uint32(b[12:]))}
}

// isMemory reports whether a region has bytes, and none behind the end of the address space.
func isMemory(r mft.Region) bool { return r.Length > 0 && r.VA <= -r.Length }

// pathMTU is that of every queue pair of the connection, in bytes.
func (c *connection) pathMTU() int { return mtuUnit << c.req.PathMTU }

// rkey is the R_Key that the source gets. It is never 0, and differs from that of the next
// connection.
func (c *connection) rkey() uint32 { return uint32(c.qpn)<<8 | 0x63 }

// joined returns the receivers that have accepted.
func (c *connection) joined() (l []*side) {
	for _, r := range c.receivers {
		if r.rep != nil && r.at != gone {
			l = append(l, r)
		}
	}
	return l
}

// merged merges the receivers' REPs into that of the group: of each limit the lowest one, and of
// the time for an ACK the longest.
func (c *connection) merged(config *Config, guid uint64) *wire.REP {
	joined := c.joined()
	merged := wire.REP{
		Pair: c.source.pair, QPN: c.qpn, StartingPSN: joined[0].rep.StartingPSN, CAGUID: c.source.guid(guid),
		Responder: 0xFF, Initiator: 0xFF, RNRRetry: 7, PrivateData: c.private(config.Memory == PrivateData),
	}
	for _, r := range joined {
		merged.Responder = min(merged.Responder, r.rep.Responder)
		merged.Initiator = min(merged.Initiator, r.rep.Initiator)
		merged.RNRRetry = min(merged.RNRRetry, r.rep.RNRRetry)
		merged.ACKDelay = max(merged.ACKDelay, r.rep.ACKDelay)
		merged.SRQ = merged.SRQ || r.rep.SRQ
	}
	return &merged
}

// private returns the private data of the merged REP: that of the receivers if all have the same,
// and else nothing, because the source has no use for one receiver's. With memory, the first bytes
// describe the group's memory.
func (c *connection) private(memory bool) (b [196]byte) {
	from := 0
	if memory {
		from = regionBytes
		virtual := c.memory()
		binary.BigEndian.PutUint64(b[:], virtual.VA)
		binary.BigEndian.PutUint32(b[8:], uint32(virtual.RKey))
		binary.BigEndian.PutUint32(b[12:], uint32(virtual.Length))
	}
	joined := c.joined()
	for _, r := range joined {
		if !bytes.Equal(r.rep.PrivateData[from:], joined[0].rep.PrivateData[from:]) {
			return b
		}
	}
	copy(b[from:], joined[0].rep.PrivateData[from:])
	return b
}

// memory is the group's memory: as long as the shortest region of a receiver.
func (c *connection) memory() mft.VirtualRegion {
	v := mft.VirtualRegion{VA: virtualVA, RKey: c.rkey()}
	for i, r := range c.joined() {
		if length := readRegion(r.rep.PrivateData[:]).Length; i == 0 || length < v.Length {
			v.Length = length
		}
	}
	return v
}

// groupFor returns the group that carries the connection. What the source sends first is what the
// merged REP says; each receiver expects what its own REP says.
func (c *connection) groupFor(config *Config) *groupfile.File {
	g := &groupfile.File{
		Name: groupName(*config, c.qpn), Addressing: mft.BySwitchIP, IP: config.GroupIP, QPN: c.qpn,
		PathMTU: c.pathMTU(), Policy: c.policy(config),
		DegradedBelow: groupfile.DegradedBelow, DegradedAfter: groupfile.DegradedAfter,
		Source: groupfile.Member{
			IP: c.source.addr, QPN: c.source.qpn, FirstPSN: c.rep.StartingPSN, Role: groupfile.Source, RemoteQPN: c.qpn,
		},
	}
	for i, r := range c.joined() {
		member := groupfile.Member{IP: r.addr, QPN: r.qpn, FirstPSN: r.rep.StartingPSN, RemoteQPN: c.qpn}
		if config.Memory == PrivateData {
			member.Regions = []mft.Region{readRegion(r.rep.PrivateData[:])}
		}
		if c.keys != nil {
			member.Regions = c.keys.Regions[i : i+1]
		}
		g.Receivers = append(g.Receivers, member)
	}
	switch {
	case config.Memory == PrivateData:
		g.Memory = []mft.VirtualRegion{c.memory()}
	case config.Memory == ByRegions:
		g.Memory, g.Table = []mft.VirtualRegion{}, true
	case c.keys != nil:
		g.Memory = []mft.VirtualRegion{c.keys.Memory}
	}
	return g
}

// policy is the merging policy of the connection's group. With repair the box sends RNR NAKs of its
// own. They would end the queue pair of a source that may not retry after one, so where a
// receiver's REP allows no RNR retries the group has no repair.
func (c *connection) policy(wanted *Config) feedback.Policy {
	p := wanted.PolicyFor(c.pathMTU())
	if p.Repair == feedback.RepairOff || c.rep.RNRRetry > 0 {
		return p
	}
	c.adds("its group has no repair, because a receiver's program accepts with rnr_retry_count 0")
	return p.WithoutRepair()
}

// groupName returns a name that group files allow, for IPv6 addresses too.
func groupName(c Config, qpn roce.QPN) string {
	return fmt.Sprintf("cm-%s-%d", strings.ReplaceAll(c.GroupIP.String(), ":", "-"), qpn)
}
