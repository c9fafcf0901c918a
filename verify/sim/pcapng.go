package sim

import (
	"encoding/binary"
	"io"
	"time"
)

// pcapng writes a capture (draft-ietf-opsawg-pcapng), little endian, with nanoseconds: one interface for each link, and a comment
// with each packet.
type pcapng struct {
	out   io.Writer
	block []byte
	err   error
}

const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockPacket    = 6 // enhanced

	byteOrderMagic = 0x1A2B3C4D
	linkEthernet   = 1

	optionEnd        = 0
	optionComment    = 1
	optionName       = 2 // of an interface
	optionResolution = 9 // of its timestamps
	nanoseconds      = 9 // 10^-9
)

func newPcapng(out io.Writer, interfaces []string) *pcapng {
	p := &pcapng{out: out}
	p.start(blockSection)
	p.u32(byteOrderMagic)
	p.u16(1) // version 1.0
	p.u16(0)
	p.u32(0xFFFFFFFF) // section length: not given
	p.u32(0xFFFFFFFF)
	p.finish()
	for _, name := range interfaces {
		p.start(blockInterface)
		p.u16(linkEthernet)
		p.u16(0)
		p.u32(0) // no limit to a packet's length
		p.option(optionName, []byte(name))
		p.option(optionResolution, []byte{nanoseconds})
		p.option(optionEnd, nil)
		p.finish()
	}
	return p
}

// packet adds one frame. The first error of the writer is kept, and ends the capture.
func (p *pcapng) packet(iface int, at time.Duration, frame []byte, comment string) {
	p.start(blockPacket)
	p.u32(uint32(iface))
	p.u32(uint32(uint64(at) >> 32))
	p.u32(uint32(at))
	p.u32(uint32(len(frame)))
	p.u32(uint32(len(frame)))
	p.bytes(frame)
	p.option(optionComment, []byte(comment))
	p.option(optionEnd, nil)
	p.finish()
}

func (p *pcapng) u16(v uint16) { p.block = binary.LittleEndian.AppendUint16(p.block, v) }
func (p *pcapng) u32(v uint32) { p.block = binary.LittleEndian.AppendUint32(p.block, v) }

// bytes adds b and fills up the word.
func (p *pcapng) bytes(b []byte) {
	p.block = append(p.block, b...)
	for len(p.block)%4 != 0 {
		p.block = append(p.block, 0)
	}
}

func (p *pcapng) option(code uint16, value []byte) {
	p.u16(code)
	p.u16(uint16(len(value)))
	p.bytes(value)
}

// start begins a block whose length is not known yet.
func (p *pcapng) start(kind uint32) {
	p.block = p.block[:0]
	p.u32(kind)
	p.u32(0)
}

// finish puts the length at both ends of the block, and writes it.
func (p *pcapng) finish() {
	n := uint32(len(p.block) + 4)
	binary.LittleEndian.PutUint32(p.block[4:], n)
	p.u32(n)
	if p.err == nil {
		_, p.err = p.out.Write(p.block)
	}
}
