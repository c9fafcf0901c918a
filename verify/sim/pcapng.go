package sim

import (
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// pcapng writes a capture: one interface for each link, and a comment with each packet. It keeps
// the first error, and close returns that.
type pcapng struct {
	out *pcapgo.NgWriter
	err error
}

// newPcapng begins a capture with at least one interface.
func newPcapng(out io.Writer, interfaces []string) *pcapng {
	p := &pcapng{}
	for i, name := range interfaces {
		about := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet}
		switch {
		case i == 0:
			p.out, p.err = pcapgo.NewNgWriterInterface(out, about, pcapgo.NgWriterOptions{})
		case p.err == nil:
			_, p.err = p.out.AddInterface(about)
		}
	}
	return p
}

// packet adds one frame of interface iface at a time since the start of the run.
func (p *pcapng) packet(iface int, at time.Duration, frame []byte, comment string) {
	if p.err != nil {
		return
	}
	p.err = p.out.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp: time.Unix(0, int64(at)), CaptureLength: len(frame), Length: len(frame), InterfaceIndex: iface,
	}, frame, pcapgo.NgPacketOptions{Comments: []string{comment}})
}

// close writes what is left in memory; out itself stays open.
func (p *pcapng) close() error {
	if p.err == nil {
		p.err = p.out.Flush()
	}
	return p.err
}
