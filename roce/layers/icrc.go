package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	golayers "github.com/gopacket/gopacket/layers"
)

const icrcBytes = 4

// ICRC is the trailer of a packet: the pad and, low byte first, the checksum.
type ICRC struct {
	golayers.BaseLayer
	Pad   []byte
	Value Checksum
}

// LayerType is LayerTypeICRC.
func (*ICRC) LayerType() gopacket.LayerType { return LayerTypeICRC }

// Checksum prints the way checksums are read.
type Checksum uint32

func (c Checksum) String() string { return fmt.Sprintf("0x%08x", uint32(c)) }

// newICRC takes pad and checksum, the latter at least.
func newICRC(trailer []byte) *ICRC {
	padBytes := len(trailer) - icrcBytes
	return &ICRC{
		BaseLayer: golayers.BaseLayer{Contents: trailer},
		Pad:       trailer[:padBytes],
		Value:     Checksum(binary.LittleEndian.Uint32(trailer[padBytes:])),
	}
}
