package main

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/roce"
)

// The group's addresses.
var (
	groupIP  = netip.MustParseAddr("10.77.0.100")
	sourceIP = netip.MustParseAddr("10.77.0.1")
)

const (
	groupQPN  = 1
	memoryVA  = 0x10000
	memoryKey = 0x77
	memoryLen = 1 << 20
	batch     = 32
)

// generator sends WRITEs of one packet each, in sequence, as fast as one thread can. That is more
// than any contestant forwards.
type generator struct {
	quit  atomic.Bool
	ended chan error
}

func (b *bed) generate() (*generator, error) {
	g := &generator{ended: make(chan error, 1)}
	go func() {
		g.ended <- b.hosts[0].Do(func() error { return g.run(b) })
	}()
	return g, nil
}

func (g *generator) stop() error {
	g.quit.Store(true)
	return <-g.ended
}

func (g *generator) run(b *bed) error {
	runtime.LockOSThread()
	umem, err := xsk.NewUMEM(4 * batch)
	if err != nil {
		return err
	}
	defer umem.Close()
	s, err := xsk.Open(umem, b.ends[0].Index, 0, xsk.SocketConfig{
		Mode: xsk.ModeCopy, TxOnly: true, MultiBuffer: b.payload > 1024, TxDescs: 256, CompletionDescs: 256, FillDescs: 64,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	frames, err := b.buildFrames(umem)
	if err != nil {
		return err
	}
	for psn := roce.PSN(0); !g.quit.Load(); {
		var descs []xsk.Desc
		for i := range frames {
			frames[i].setPSN(psn)
			psn = psn.Next()
			descs = append(descs, frames[i].descs...)
		}
		s.Transmit(descs)
		if _, err := s.Flush(time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// frame is one WRITE that lies in UMEM chunks.
type frame struct {
	view      roce.View
	fragments [][]byte
	descs     []xsk.Desc
	headers   roce.MaskedHeaders
	icrc      uint32
}

func (b *bed) buildFrames(umem *xsk.UMEM) ([]frame, error) {
	bytes, err := b.write()
	if err != nil {
		return nil, err
	}
	frames := make([]frame, batch)
	for i := range frames {
		f := &frames[i]
		for rest := bytes; len(rest) > 0; {
			var addr [1]uint64
			umem.Alloc(addr[:])
			n := min(len(rest), xsk.FrameBytes)
			fragment := umem.Bytes(addr[0], uint32(n))
			copy(fragment, rest)
			rest = rest[n:]
			d := xsk.Desc{Addr: addr[0], Len: uint32(n)}
			if len(rest) > 0 {
				d.Options = 1 // XDP_PKT_CONTD
			}
			f.fragments, f.descs = append(f.fragments, fragment), append(f.descs, d)
		}
		if err := f.view.Decode(f.fragments[0], len(bytes)); err != nil {
			return nil, err
		}
		f.view.MaskHeaders(f.fragments[0], &f.headers)
		f.icrc = f.view.StoredICRC(f.fragments)
	}
	return frames, nil
}

func (f *frame) setPSN(psn roce.PSN) {
	var headers roce.MaskedHeaders
	f.view.SetPSN(f.fragments[0], psn)
	f.view.MaskHeaders(f.fragments[0], &headers)
	f.view.PutICRC(f.fragments, roce.UpdateICRC(f.icrc, &f.headers, &headers, f.view.ICRC-f.view.Payload))
}

// write builds a WRITE ONLY from the source to the group.
func (b *bed) write() ([]byte, error) {
	ip := roce.IPUDP{Src: sourceIP, Dst: groupIP, HopLimit: 64, SrcPort: 0xC001}
	bth := roce.BTH{Opcode: roce.OpWriteOnly, PKey: 0xFFFF, DestQPN: groupQPN}
	reth := roce.RETH{VA: memoryVA, RKey: memoryKey, DMABytes: uint32(b.payload)}
	payload := make([]byte, b.payload)
	for i := 0; i+8 <= len(payload); i += 8 {
		binary.LittleEndian.PutUint64(payload[i:], uint64(i)*0x9E3779B97F4A7C15)
	}
	f := roce.AppendEthernet(nil, roce.MAC(b.ports[0].MAC), roce.MAC(b.ends[0].MAC), ip.EtherType())
	f = reth.Append(bth.Append(ip.Append(f, roce.BTHBytes+roce.RETHBytes+len(payload))))
	return roce.AppendICRC(append(f, payload...))
}
