package afxdp

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A receiver's host sends a merged ACK for the source in the name of the group, while another
// receiver lacks the data. The bridge of the box would deliver the ACK, and the source would
// complete a WRITE that one receiver lacks.
func TestForgedACKIsDropped(t *testing.T) {
	for a, name := range map[mft.Addressing]string{
		mft.ByGroupIP:  ownSource,
		mft.BySwitchIP: ownSource,
		// Host 1 may send from the group's address, which is its own. But the QP of the source
		// belongs to the group.
		mft.ByVirtualQPN: "wrong-qpn",
	} {
		t.Run(a.String(), func(t *testing.T) {
			const forger, cut, packets = 1, 3, 10
			l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}})
			g := l.addGroup(t, groupOptions{addressing: a, memory: packets * 1024})
			data := bed.Random(packets*1024, 4)

			l.setLink(t, cut, "down")
			g.post(t, 0, data)
			l.eventually(t, "the other receivers have the WRITE", func() bool {
				return g.received(1) == packets && g.received(2) == packets
			})
			l.inject(t, forger, packet{
				from: g.Source.Src, to: l.Hosts[0].IP, mac: l.Hosts[0].RNIC.MAC(),
				bth:  roce.BTH{Opcode: roce.OpAck, DestQPN: sourceQPN, PSN: roce.PSN(sourcePSN).Add(packets - 1)},
				rest: (&roce.AETH{Syndrome: roce.SyndromeUnlimited, MSN: 1}).Append(nil),
			})
			l.eventually(t, "the forged ACK is counted", func() bool { return counter(t, l.sw, name) == 1 })
			if c, any := g.source.Poll(); any {
				t.Errorf("the forged ACK has completed a WRITE that receiver %d lacks: %v", cut, c)
			}
			l.setLink(t, cut, "up")
			g.succeeds(t)
			g.holds(t, data)
		})
	}
}

// A receiver's host sends data to another receiver in the name of the group.
func TestForgedCopyIsDropped(t *testing.T) {
	for _, a := range []mft.Addressing{mft.ByGroupIP, mft.BySwitchIP} {
		t.Run(a.String(), func(t *testing.T) {
			const forger, victim = 1, 2
			l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}})
			g := l.addGroup(t, groupOptions{addressing: a, memory: 1 << 20})
			path, host := &g.Paths[victim-1], l.Hosts[victim]
			at := path.Regions.Region(g.Memory, 0)
			reth := roce.RETH{VA: at.VA, RKey: at.RKey, DMABytes: 4}
			l.inject(t, forger, packet{
				from: path.Src, to: host.IP, mac: host.RNIC.MAC(),
				bth:  roce.BTH{Opcode: roce.OpWriteOnly, DestQPN: path.DestQPN, AckReq: true, PSN: path.FirstPSN},
				rest: append(reth.Append(nil), "evil"...),
			})
			l.eventually(t, "the forged copy is counted", func() bool { return counter(t, l.sw, ownSource) == 1 })
			if n := g.received(victim); n != 0 {
				t.Errorf("receiver %d has executed %d forged requests", victim, n)
			}
			g.holds(t, g.write(t, 1<<18))
		})
	}
}

// ownSource is the counter of frames whose source address is an address of the box.
const ownSource = "classifier-drop_own_source"

// received is how many requests receiver i, from 1, has executed.
func (g *group) received(i int) uint64 {
	c := g.receivers[i-1].qp.Counters()
	return c.Get(rnic.RequestsExecuted)
}

// setLink sets the interface of a host up or down. While it is down, the port of the box has no
// carrier.
func (l *lab) setLink(t *testing.T, host int, state string) {
	t.Helper()
	_, err := l.Hosts[host].NS.Exec("ip", "link", "set", "eth0", state)
	check(t, err)
}

// packet is a RoCEv2 packet to be built by hand.
type packet struct {
	from, to netip.Addr
	mac      roce.MAC // of the destination
	hops     uint8    // hop limit; 0: 64
	bth      roce.BTH
	rest     []byte // behind the BTH, without the ICRC
}

func (p packet) frame(t *testing.T, from roce.MAC) []byte {
	t.Helper()
	ip := roce.IPUDP{Src: p.from, Dst: p.to, HopLimit: 64, SrcPort: 0xC000}
	if p.hops != 0 {
		ip.HopLimit = p.hops
	}
	p.bth.PKey = roce.DefaultPKey
	b := roce.AppendEthernet(nil, p.mac, from, ip.EtherType())
	b = p.bth.Append(ip.Append(b, roce.BTHBytes+len(p.rest)))
	b, err := roce.AppendICRC(append(b, p.rest...))
	check(t, err)
	return b
}

// inject sends a packet from the interface of a host, past the host's RDMA endpoint.
func (l *lab) inject(t *testing.T, host int, p packet) {
	t.Helper()
	inject(t, l.Hosts[host].End, p)
}

func inject(t *testing.T, from netns.Link, p packet) {
	t.Helper()
	check(t, from.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, p.frame(t, roce.MAC(from.MAC)), 0, &unix.SockaddrLinklayer{Ifindex: from.Index})
	}))
}
