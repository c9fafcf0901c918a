//go:build softroce

package softroce

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// addressed is a group of the first three guests. The fourth guest is a stranger: it is not a
// member.
func (s *stage) addressed(a mft.Addressing) groupSpec {
	spec := ordinary()
	spec.addressing, spec.receivers = a, []int{1, 2}
	switch a {
	case mft.ByVirtualQPN:
		spec.ip = s.Guests[1].Addr
	case mft.BySwitchIP:
		spec.ip = netip.MustParseAddr(boxAddr)
	}
	return spec
}

func storyVirtualQPN(t *testing.T, ctx context.Context, s *stage) string {
	return storyAddressing(t, ctx, s, mft.ByVirtualQPN)
}

func storySwitchIP(t *testing.T, ctx context.Context, s *stage) string {
	return storyAddressing(t, ctx, s, mft.BySwitchIP)
}

func storyAddressing(t *testing.T, ctx context.Context, s *stage, a mft.Addressing) string {
	g := s.addGroup(t, ctx, s.addressed(a))
	return g.stream(t, ctx, s, randomly(17, 0.01, at(copied)), randomly(18, 0.005, at(uplink)), randomly(19, 0.01, at(merged)))
}

func storyVirtualQPNBystanders(t *testing.T, ctx context.Context, s *stage) string {
	return storyBystanders(t, ctx, s, mft.ByVirtualQPN)
}

func storySwitchIPBystanders(t *testing.T, ctx context.Context, s *stage) string {
	return storyBystanders(t, ctx, s, mft.BySwitchIP)
}

// storyBystanders has an ordinary connection of two hosts beside the group. The QPN of one end is
// the number that the source of the group has as its remote QPN, and the PSNs of the connection are
// in the window of the group.
func storyBystanders(t *testing.T, ctx context.Context, s *stage, a mft.Addressing) string {
	const source, receiver, stranger = 0, 2, 3
	connections := [][2]int{{source, stranger}, {source, receiver}, {stranger, source}, {stranger, receiver}}
	for _, hosts := range connections {
		connect := DefaultConnect()
		connect.Timeout, connect.Retry = 16, 6 // without ACKs the QP ends after 7 timeouts of 268 ms
		there := s.pair(t, ctx, hosts[0], hosts[1], connect)
		back := &group{from: there.to[0], to: []*QP{there.from}}

		spec := s.addressed(a)
		spec.qpn = there.to[0].QPN
		g := s.addGroup(t, ctx, spec)
		for _, q := range g.to {
			must(t, q.PostReceives(ctx, bystanderMessages, bystanderBytes)) // the group itself uses none
		}
		s.lose(randomly(20, 0.01, at(copied)))
		transfer := g.transfer("write", messageBytes, streamMessages)
		must(t, g.from.StartTransfer(transfer))
		for i, way := range []*group{there, back} {
			way.carries(t, ctx, uint64(400+i))
		}
		g.await(t, ctx, transfer)
		s.lose()
		g.delivered(t, ctx, streamMessages*messageBytes)
		for i, q := range g.to {
			if received, err := q.AwaitReceives(ctx, 0); err != nil || len(received) > 0 {
				t.Errorf("receiver %d got SENDs that were sent to QP %d of guest %d: %v %v",
					i, spec.qpn, 1+hosts[1], received, err)
			}
		}
		s.removeGroup(t, ctx, g)
	}
	return fmt.Sprintf("%d unicast connections under the group's QPN, WRITEs and SENDs both ways: hashes equal, QPs live", len(connections))
}

const (
	bystanderBytes    = 9001
	bystanderMessages = 16
)

// carries WRITEs and SENDs from one end of an ordinary connection to the other end.
func (g *group) carries(t *testing.T, ctx context.Context, seed uint64) {
	t.Helper()
	to := g.to[0]
	for i, op := range []string{"write", "send"} {
		must(t, g.from.Fill(ctx, seed+10*uint64(i)))
		if op == "send" {
			must(t, to.PostReceives(ctx, bystanderMessages, bystanderBytes))
		}
		g.run(t, ctx, Transfer{Op: op, Peer: to.Local, Bytes: bystanderBytes, Count: bystanderMessages, Depth: 8})
		g.delivered(t, ctx, bystanderBytes*bystanderMessages)
	}
}

// ownSource is the counter of frames whose source address only the box may use.
const ownSource = "classifier-drop_own_source"

// storyForgedACK lets the host of a receiver send a merged ACK in the name of the group, while
// another receiver lacks all data. The ACK also comes in two IP fragments, and with IP options: rxe
// accepts both.
func storyForgedACK(t *testing.T, ctx context.Context, s *stage) string {
	whole := func(frame []byte) [][]byte { return [][]byte{frame} }
	s.forgedACK(t, ctx, mft.BySwitchIP, whole)
	for _, form := range []func([]byte) [][]byte{whole, inFragments, withOptions} {
		s.forgedACK(t, ctx, mft.ByGroupIP, form)
	}
	return "WRITEs that one receiver lacked; the forged ACK, whole, in fragments or with options, was dropped and counted, and the QPs live"
}

func (s *stage) forgedACK(t *testing.T, ctx context.Context, a mft.Addressing, form func([]byte) [][]byte) {
	t.Helper()
	const cut, forger, packets = 2, 1, 64
	spec := s.addressed(a)
	spec.receivers = []int{1, 2, 3}
	g := s.addGroup(t, ctx, spec)
	s.lose(to(cut))
	transfer := g.transfer("write", 1024, packets)
	transfer.Depth = packets
	must(t, g.from.StartTransfer(transfer))
	s.reaches(t, ctx, g, packets-1)
	before, err := s.Counters(ctx)
	must(t, err)
	frames := form(g.forge(t, s.Guests[forger], packets-1))
	resent := s.when(func(s *sighting) bool { return s.group == g && s.hop == uplink && s.offset == 0 })
	for _, frame := range frames {
		must(t, s.Guests[forger].Wire.Inject(frame))
	}
	s.await(t, ctx, "the source resends what one receiver lacks", resent)
	after, err := s.Counters(ctx)
	must(t, err)
	if n := after[ownSource] - before[ownSource]; n != uint64(len(frames)) {
		t.Errorf("%d frames are counted as %s, want %d", n, ownSource, len(frames))
	}
	s.lose()
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, packets*1024)
	s.removeGroup(t, ctx, g)
}

// forge is an ACK as the box would send it to the source of the group.
func (g *group) forge(t *testing.T, by *Guest, offset int32) []byte {
	t.Helper()
	ip := roce.IPUDP{Src: g.ip, Dst: g.from.Addr, HopLimit: 64, SrcPort: 0xC000}
	bth := roce.BTH{Opcode: roce.OpAck, PKey: roce.DefaultPKey, DestQPN: g.from.QPN, PSN: g.sends.Add(offset)}
	aeth := roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: roce.MSN(offset + 1)}
	b := roce.AppendEthernet(nil, roce.MAC(g.from.guest.MAC), roce.MAC(by.MAC), ip.EtherType())
	b, err := roce.AppendICRC(aeth.Append(bth.Append(ip.Append(b, roce.BTHBytes+roce.AETHBytes))))
	must(t, err)
	return b
}

const (
	ethernetBytes = 14
	ipv4Bytes     = 20
	udpBytes      = 8
)

// inFragments cuts an IPv4 frame in two. The kernel of the host reassembles it with the same
// header, so the ICRC stays correct.
func inFragments(frame []byte) [][]byte {
	const firstBytes, moreFragments = 24, 0x20
	header, rest := frame[:ethernetBytes+ipv4Bytes], frame[ethernetBytes+ipv4Bytes:]
	fragment := func(at int, part []byte, flags byte) []byte {
		b := append(slices.Clone(header), part...)
		ip := b[ethernetBytes:]
		ip[6] |= flags
		ip[7] = byte(at / 8)
		return sized(b)
	}
	return [][]byte{fragment(0, rest[:firstBytes], moreFragments), fragment(firstBytes, rest[firstBytes:], 0)}
}

// withOptions puts 8 NOPs behind the IPv4 header. rxe computes the ICRC as if there were no options
// (rxe_icrc_hdr): it uses the 8 bytes behind the fixed header in place of the UDP header.
func withOptions(frame []byte) [][]byte {
	const nop, optionBytes = 1, udpBytes
	b := slices.Insert(slices.Clone(frame), ethernetBytes+ipv4Bytes, slices.Repeat([]byte{nop}, optionBytes)...)
	b[ethernetBytes] += optionBytes / 4
	sized(b)
	covered := slices.Concat(slices.Repeat([]byte{0xFF}, 8), b[ethernetBytes:][:ipv4Bytes+optionBytes],
		b[ethernetBytes+ipv4Bytes+optionBytes+udpBytes:len(b)-4])
	for _, masked := range []int{8 + 1, 8 + 8, 8 + 10, 8 + 11, 8 + 26, 8 + 27, 8 + 28 + 4} {
		covered[masked] = 0xFF
	}
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.ChecksumIEEE(covered))
	return [][]byte{b}
}

// sized puts the length and the checksum into an IPv4 header.
func sized(frame []byte) []byte {
	ip := frame[ethernetBytes:]
	headerBytes := int(ip[0]&0xF) * 4
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[10], ip[11] = 0, 0
	var sum uint32
	for i := 0; i < headerBytes; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xFFFF
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum>>16+sum))
	return frame
}
