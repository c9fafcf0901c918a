package afxdp

import (
	"bytes"
	"testing"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

func TestFiveHundredTwelveReceivers(t *testing.T) { manyReceivers(t, 512, 10_000, 1, false) }

// The kernel sends one packet by the same port twenty times, each copy for another QP.
func TestTheKernelCarriesForSixtyReceivers(t *testing.T) { manyReceivers(t, 60, 20_000, 6, true) }

// manyReceivers writes n times to a group of receivers behind three ports. Every host has
// many QPs, and each of them has another remote QPN.
func manyReceivers(t *testing.T, receivers, bytesEach, times int, fanOut bool) {
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4}, fanOut: fanOut})
	o := groupOptions{pathMTU: 1024, memory: bytesEach}
	g := &group{lab: l, Group: l.describe(o)}
	one := g.Paths
	g.Paths = nil
	for n := range receivers {
		p := one[n%len(one)]
		p.DestQPN, p.RemoteQPN, p.FirstPSN = roce.QPN(1000+n), roce.QPN(10_000+n), roce.PSN(7*n)
		p.Regions = g.Memory.At(func(mft.VirtualRegion) mft.Region {
			return mft.Region{VA: uint64(n+1) << 32, RKey: uint32(5000 + n)}
		})
		g.Paths = append(g.Paths, p)
	}
	check(t, l.Box.Do(func() error {
		_, err := l.sw.Add(g.Group)
		return err
	}))

	o.rnic = func(c *rnic.Config) { c.SendDepth, c.RecvDepth = 1, 1 }
	memory := map[uint32][]byte{}
	for i := range g.Paths {
		p := &g.Paths[i]
		host := l.Hosts[p.Port].RNIC
		at := p.Regions.Region(g.Memory, 0)
		r := rnic.Region{VA: at.VA, RKey: at.RKey, Access: rnic.RemoteWrite, Bytes: make([]byte, bytesEach)}
		check(t, host.Register(r))
		memory[r.RKey] = r.Bytes
		dial(t, open(t, host, o, p.DestQPN, 0), endpoint.Peer{IP: g.IP, QPN: p.RemoteQPN, PSN: p.FirstPSN})
	}
	g.source = open(t, l.Hosts[0].RNIC, o, sourceQPN, sourcePSN)
	dial(t, g.source, endpoint.Peer{IP: g.IP, QPN: groupQPN})

	data := bed.Random(bytesEach, 2)
	for range times {
		g.post(t, 0, data)
		g.succeeds(t)
	}
	for port := 1; port < 4; port++ {
		l.Hosts[port].RNIC.Freeze(func() {
			for _, p := range g.Paths {
				if int(p.Port) == port && !bytes.Equal(memory[p.Regions.Region(g.Memory, 0).RKey], data) {
					t.Errorf("the receiver with QPN %d on port %d lacks data", p.DestQPN, port)
				}
			}
		})
	}
	if v, any := g.source.Violation(); any {
		t.Errorf("the source got a response that no responder may send: %v", v)
	}
	if carried := g.engine(t).Carried; fanOut != (carried > 0) {
		t.Errorf("the kernel carried %d packets", carried)
	}
}
