package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// startRocast opens the product's switch with one group, whose receivers differ in QPN, PSN, region
// and key.
func startRocast(b *bed) (stop func() error, err error) {
	var s *afxdp.Switch
	err = b.box.Do(func() (err error) {
		s, err = afxdp.Open(afxdp.Config{Ports: []string{"p0", "p1", "p2", "p3"}, Busy: true})
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := s.Add(b.group()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	return func() error {
		cancel()
		<-ended
		return s.Close()
	}, nil
}

func (b *bed) group() *mft.Group {
	g := &mft.Group{
		Name: "fanout", IP: groupIP, QPN: groupQPN, PathMTU: 4096,
		Memory: []mft.VirtualRegion{{VA: memoryVA, Length: memoryLen, RKey: memoryKey}},
		Source: mft.Source{Leg: b.leg(0, sourceIP, 17)},
	}
	for i := range receivers {
		host := netip.AddrFrom4([4]byte{10, 77, 0, byte(2 + i)})
		g.Paths = append(g.Paths, mft.Path{
			Leg: b.leg(1+i, host, roce.QPN(18+i)), RemoteQPN: groupQPN, FirstPSN: roce.PSN(1000 * (i + 1)),
			Regions: []mft.Region{{VA: uint64(0x7f00+i) << 32, Length: memoryLen, RKey: uint32(0x1000 + i)}},
		})
	}
	return g
}

func (b *bed) leg(port int, host netip.Addr, qpn roce.QPN) mft.Leg {
	l := mft.Leg{Port: mft.PortID(port), Src: groupIP, Dst: host, DestQPN: qpn}
	l.L2Bytes = uint8(copy(l.L2[:],
		roce.AppendEthernet(nil, roce.MAC(b.ends[port].MAC), roce.MAC(b.ports[port].MAC), 0x0800)))
	return l
}
