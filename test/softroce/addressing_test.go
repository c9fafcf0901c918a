//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// addressed is a group of the first guest, the second and the third. The fourth guest is a stranger to it.
func (s *stage) addressed(a mft.Addressing) script {
	what := ordinary()
	what.addressing, what.receivers = a, []int{1, 2}
	switch a {
	case mft.ByVirtualQPN:
		what.ip = s.Guests[1].Addr
	case mft.BySwitchIP:
		what.ip = netip.MustParseAddr(boxAddr)
	}
	return what
}

func storyVirtualQPN(t *testing.T, ctx context.Context, s *stage) string {
	return storyAddressing(t, ctx, s, mft.ByVirtualQPN)
}

func storySwitchIP(t *testing.T, ctx context.Context, s *stage) string {
	return storyAddressing(t, ctx, s, mft.BySwitchIP)
}

func storyAddressing(t *testing.T, ctx context.Context, s *stage, a mft.Addressing) string {
	c := s.enter(t, ctx, s.addressed(a))
	return c.stream(t, ctx, s, randomly(17, 0.01, at(copied)), randomly(18, 0.005, at(uplink)), randomly(19, 0.01, at(merged)))
}

func storyVirtualQPNBystanders(t *testing.T, ctx context.Context, s *stage) string {
	return storyBystanders(t, ctx, s, mft.ByVirtualQPN)
}

func storySwitchIPBystanders(t *testing.T, ctx context.Context, s *stage) string {
	return storyBystanders(t, ctx, s, mft.BySwitchIP)
}

// storyBystanders has an ordinary connection of two hosts beside the group. One of its QPs has the number that the group's
// source has as its remote QPN, and its PSNs are in the group's window.
func storyBystanders(t *testing.T, ctx context.Context, s *stage, a mft.Addressing) string {
	const source, receiver, stranger = 0, 2, 3
	connections := [][2]int{{source, stranger}, {source, receiver}, {stranger, source}, {stranger, receiver}}
	for _, hosts := range connections {
		connect := DefaultConnect()
		connect.Timeout, connect.Retry = 16, 6 // 268 ms, so that a QP whose packets are taken away ends in two seconds
		there := s.pair(t, ctx, hosts[0], hosts[1], connect)
		back := &cast{from: there.to[0], to: []*QP{there.from}}

		what := s.addressed(a)
		what.qpn = there.to[0].QPN
		c := s.enter(t, ctx, what)
		for _, q := range c.to {
			must(t, q.PostReceives(ctx, bystanderMessages, bystanderBytes)) // for SENDs that are not the group's
		}
		s.lose(randomly(20, 0.01, at(copied)))
		group := c.transfer("write", messageBytes, streamMessages)
		must(t, c.from.StartTransfer(group))
		for i, way := range []*cast{there, back} {
			way.bystand(t, ctx, uint64(400+i))
		}
		c.await(t, ctx, group)
		s.lose()
		c.complete(t, ctx, streamMessages*messageBytes)
		for i, q := range c.to {
			if received, err := q.AwaitReceives(ctx, 0); err != nil || len(received) > 0 {
				t.Errorf("receiver %d got SENDs that were sent to QP %d of guest %d: %v %v",
					i, what.qpn, 1+hosts[1], received, err)
			}
		}
		s.leave(t, ctx, c)
	}
	return fmt.Sprintf("%d unicast connections under the group's QPN, WRITEs and SENDs both ways: hashes equal, QPs live", len(connections))
}

const (
	bystanderBytes    = 9001
	bystanderMessages = 16
)

// bystand WRITEs, and then SENDs, from one end of an ordinary connection to the other end.
func (c *cast) bystand(t *testing.T, ctx context.Context, seed uint64) {
	t.Helper()
	to := c.to[0]
	for i, op := range []string{"write", "send"} {
		must(t, c.from.Fill(ctx, seed+10*uint64(i)))
		if op == "send" {
			must(t, to.PostReceives(ctx, bystanderMessages, bystanderBytes))
		}
		c.run(t, ctx, Transfer{Op: op, Peer: to.Local, Bytes: bystanderBytes, Count: bystanderMessages, Depth: 8})
		c.complete(t, ctx, bystanderBytes*bystanderMessages)
	}
}

// ownSource is the counter of frames that come from an address of the box.
const ownSource = "classifier-drop_own_source"

// storyForgedACK has a receiver's host send a merged ACK in the group's name, while another receiver lacks all data.
func storyForgedACK(t *testing.T, ctx context.Context, s *stage) string {
	const cut, forger, packets = 2, 1, 64
	for _, a := range []mft.Addressing{mft.ByGroupIP, mft.BySwitchIP} {
		what := s.addressed(a)
		what.receivers = []int{1, 2, 3}
		c := s.enter(t, ctx, what)
		s.lose(to(cut))
		transfer := c.transfer("write", 1024, packets)
		transfer.Depth = packets
		must(t, c.from.StartTransfer(transfer))
		s.reaches(t, ctx, c, packets-1)
		before, err := s.Counters(ctx)
		must(t, err)
		resent := s.when(func(s *sight) bool { return s.group == c && s.hop == uplink && s.offset == 0 })
		must(t, s.Guests[forger].Wire.Inject(c.forge(t, s.Guests[forger], packets-1)))
		s.await(t, ctx, "the source resends what one receiver lacks", resent)
		after, err := s.Counters(ctx)
		must(t, err)
		if n := after[ownSource] - before[ownSource]; n != 1 {
			t.Errorf("%d frames are counted as %s, want 1", n, ownSource)
		}
		s.lose()
		c.await(t, ctx, transfer)
		c.complete(t, ctx, packets*1024)
		s.leave(t, ctx, c)
	}
	return fmt.Sprintf("an ACK of %d WRITEs that one receiver lacked: dropped and counted; all done later, hashes equal, QPs live", packets)
}

// forge is an ACK as the box would send it to the group's source.
func (c *cast) forge(t *testing.T, by *Guest, offset int32) []byte {
	t.Helper()
	ip := roce.IPUDP{Src: c.ip, Dst: c.from.Addr, HopLimit: 64, SrcPort: 0xC000}
	bth := roce.BTH{Opcode: roce.OpAck, PKey: roce.DefaultPKey, DestQPN: c.from.QPN, PSN: c.sends.Add(offset)}
	aeth := roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: roce.MSN(offset + 1)}
	b := roce.AppendEthernet(nil, roce.MAC(c.from.guest.MAC), roce.MAC(by.MAC), ip.EtherType())
	b, err := roce.AppendICRC(aeth.Append(bth.Append(ip.Append(b, roce.BTHBytes+roce.AETHBytes))))
	must(t, err)
	return b
}
