package layers

import (
	"github.com/gopacket/gopacket"
	golayers "github.com/gopacket/gopacket/layers"

	"github.com/rocast/rocast/roce"
)

// firstLayerType is an arbitrary place in the range that gopacket leaves to applications, 1000 to 1999.
const firstLayerType = 1791

var (
	LayerTypeBTH          = register(0, "BTH", gopacket.DecodeFunc(decodePacket))
	LayerTypeDETH         = register(1, "DETH", nil)
	LayerTypeFETH         = register(2, "FETH", nil)
	LayerTypeRETH         = register(3, "RETH", nil)
	LayerTypeAtomicETH    = register(4, "AtomicETH", nil)
	LayerTypeAETH         = register(5, "AETH", nil)
	LayerTypeAtomicAckETH = register(6, "AtomicAckETH", nil)
	LayerTypeImmDt        = register(7, "ImmDt", nil)
	LayerTypeIETH         = register(8, "IETH", nil)
	LayerTypeCNP          = register(9, "CNP", nil)
	LayerTypeICRC         = register(10, "ICRC", nil)
)

// register takes no decoder for what only a BTH can announce.
func register(n int, name string, d gopacket.Decoder) gopacket.LayerType {
	return gopacket.RegisterLayerType(firstLayerType+n, gopacket.LayerTypeMetadata{Name: name, Decoder: d})
}

func init() { golayers.RegisterUDPPortLayerType(roce.UDPPort, LayerTypeBTH) }
