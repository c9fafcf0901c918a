package layers

import (
	"github.com/gopacket/gopacket"
	golayers "github.com/gopacket/gopacket/layers"

	"github.com/rocast/rocast/roce"
)

// header is the fields of a layer.
type header interface {
	Decode(b []byte) (rest []byte, err error)
}

// layer gives decodePacket access to the two halves of a layer.
type layer interface {
	gopacket.Layer
	parts() (header, *golayers.BaseLayer)
}

// extensions makes the layers that can follow a BTH, in the order in which they do.
var extensions = [...]struct {
	bit roce.HeaderSet
	new func() layer
}{
	{roce.HasDETH, func() layer { return new(DETH) }},
	{roce.HasFETH, func() layer { return new(FETH) }},
	{roce.HasRETH, func() layer { return new(RETH) }},
	{roce.HasAtomicETH, func() layer { return new(AtomicETH) }},
	{roce.HasAETH, func() layer { return new(AETH) }},
	{roce.HasAtomicAckETH, func() layer { return new(AtomicAckETH) }},
	{roce.HasImmDt, func() layer { return new(ImmDt) }},
	{roce.HasIETH, func() layer { return new(IETH) }},
	{roce.HasCNP, func() layer { return new(CNP) }},
}

// decodePacket adds every layer of a RoCEv2 packet at once. gopacket's usual chain, each layer naming
// the next, would end at the payload and leave the ICRC unseen behind it.
func decodePacket(data []byte, p gopacket.PacketBuilder) error {
	bth := new(BTH)
	rest, err := addHeader(p, data, bth)
	if err != nil {
		return err
	}
	for _, e := range extensions {
		if !bth.Opcode.Headers().Has(e.bit) {
			continue
		}
		if rest, err = addHeader(p, rest, e.new()); err != nil {
			return err
		}
	}
	return addPayload(p, rest, int(bth.PadCount))
}

// addHeader decodes one header from the front of b.
func addHeader(p gopacket.PacketBuilder, b []byte, l layer) ([]byte, error) {
	fields, base := l.parts()
	rest, err := fields.Decode(b)
	if err != nil {
		p.SetTruncated()
		return nil, err
	}
	*base = golayers.BaseLayer{Contents: b[:len(b)-len(rest)], Payload: rest}
	p.AddLayer(l)
	return rest, nil
}

// addPayload adds what the headers leave. A capture that cut the frame short has lost its ICRC: the
// last bytes there are payload.
func addPayload(p gopacket.PacketBuilder, b []byte, padBytes int) error {
	end := len(b)
	if !truncated(p) {
		end -= padBytes + icrcBytes
	}
	if end < 0 {
		p.SetTruncated()
		return roce.ErrLength
	}
	if end > 0 {
		payload := gopacket.Payload(b[:end])
		p.AddLayer(&payload)
		p.SetApplicationLayer(&payload)
	}
	if end < len(b) {
		p.AddLayer(newICRC(b[end:]))
	}
	return nil
}

// truncated reports whether an outer layer found less than its length field says.
func truncated(p gopacket.PacketBuilder) bool {
	packet, ok := p.(interface {
		Metadata() *gopacket.PacketMetadata
	})
	return ok && packet.Metadata().Truncated
}
