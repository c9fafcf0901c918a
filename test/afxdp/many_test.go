package afxdp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A group of 512 receivers behind three ports: every host has many QPs, told
// apart by what each has for its remote QPN.
func TestFiveHundredTwelveReceivers(t *testing.T) {
	const receivers, bytesEach = 512, 10_000
	l := newLab(t, options{Options: bed.Options{Hosts: 4}, memory: bytesEach})
	check(t, l.sw.Remove(l.group.ID))
	g := l.describe(options{pathMTU: 1024, memory: bytesEach})
	one := g.Paths
	g.Paths = nil
	for n := range receivers {
		p := one[n%len(one)]
		p.DestQPN, p.RemoteQPN, p.FirstPSN = roce.QPN(1000+n), roce.QPN(10_000+n), roce.PSN(7*n)
		p.Regions = []mft.Region{{VA: uint64(n+1) << 32, Length: bytesEach, RKey: uint32(5000 + n)}}
		g.Paths = append(g.Paths, p)
	}
	_, err := l.sw.Add(g)
	check(t, err)

	memory := map[uint32][]byte{}
	for i := range g.Paths {
		p := &g.Paths[i]
		host := l.Hosts[p.Port].RNIC
		r := rnic.Region{VA: p.Regions[0].VA, RKey: p.Regions[0].RKey, Access: rnic.RemoteWrite, Bytes: make([]byte, bytesEach)}
		check(t, host.Register(r))
		memory[r.RKey] = r.Bytes
		c := rnic.Defaults()
		c.QPN, c.MTUBytes, c.SendDepth, c.RecvDepth = p.DestQPN, g.PathMTU, 1, 1
		qp, err := host.NewQP(c)
		check(t, err)
		check(t, qp.Connect(t.Context(), endpoint.Peer{IP: groupIP, QPN: p.RemoteQPN, PSN: p.FirstPSN}))
	}
	data := make([]byte, bytesEach)
	rand.NewChaCha8([32]byte{2}).Read(data)
	check(t, l.source.PostWrite(0, data, rnic.Remote{VA: memoryVA, RKey: memoryKey}))
	if c := l.completion(t); c.Status != rnic.Success {
		t.Fatalf("WRITE ended with %v", c)
	}
	for port := 1; port < 4; port++ {
		l.Hosts[port].RNIC.Freeze(func() {
			for _, p := range g.Paths {
				if int(p.Port) == port && !bytes.Equal(memory[p.Regions[0].RKey], data) {
					t.Errorf("the receiver with QPN %d on port %d lacks data", p.DestQPN, port)
				}
			}
		})
	}
	if v, any := l.source.Violation(); any {
		t.Errorf("the source was told a lie: %v", v)
	}
}
