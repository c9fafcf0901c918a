// Package pcapng writes captures that Wireshark reads: frames of several interfaces, each with a
// comment (draft-ietf-opsawg-pcapng).
package pcapng

import (
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Direction says which way a frame went through its interface.
type Direction uint8

const (
	Unknown Direction = iota
	Inbound
	Outbound
)

var directions = [...]pcapgo.NgEpbFlag{
	Inbound: pcapgo.NgEpbFlagDirectionInbound, Outbound: pcapgo.NgEpbFlagDirectionOutbound,
}

// Packet is one frame of a capture.
type Packet struct {
	Interface int // index of its interface
	Direction Direction
	At        time.Time
	Frame     []byte // the bytes that were captured, from the first one on
	Length    int    // of the whole frame
	Comment   string
}

// Writer writes a capture. It keeps the first error, and Flush returns that.
type Writer struct {
	out *pcapgo.NgWriter
	err error
}

// New begins a capture with at least one interface. Application is the name of the program.
func New(out io.Writer, application string, interfaces []string) *Writer {
	w := &Writer{}
	options := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: application}}
	w.out, w.err = pcapgo.NewNgWriterInterface(out, ethernet(interfaces[0]), options)
	for _, name := range interfaces[1:] {
		w.AddInterface(name)
	}
	return w
}

// AddInterface adds an interface and returns its index.
func (w *Writer) AddInterface(name string) (index int) {
	if w.err == nil {
		index, w.err = w.out.AddInterface(ethernet(name))
	}
	return index
}

func ethernet(name string) pcapgo.NgInterface {
	return pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet}
}

// Add adds a frame.
func (w *Writer) Add(p Packet) {
	if w.err != nil {
		return
	}
	options := pcapgo.NgPacketOptions{Comments: []string{p.Comment}}
	if p.Direction != Unknown {
		options.Flags = &pcapgo.NgEpbFlags{Direction: directions[p.Direction]}
	}
	w.err = w.out.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp: p.At, CaptureLength: len(p.Frame), Length: p.Length, InterfaceIndex: p.Interface,
	}, p.Frame, options)
}

// Flush writes what is left in memory. The file stays open.
func (w *Writer) Flush() error {
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return w.err
}
