package layers

import (
	"github.com/gopacket/gopacket"
	golayers "github.com/gopacket/gopacket/layers"

	"github.com/rocast/rocast/roce"
)

// A layer is gopacket's view of the bytes and roce's of the fields; gopacket prints both side by side.
type (
	BTH struct {
		golayers.BaseLayer
		roce.BTH
	}
	DETH struct {
		golayers.BaseLayer
		roce.DETH
	}
	FETH struct {
		golayers.BaseLayer
		roce.FETH
	}
	RETH struct {
		golayers.BaseLayer
		roce.RETH
	}
	AtomicETH struct {
		golayers.BaseLayer
		roce.AtomicETH
	}
	AETH struct {
		golayers.BaseLayer
		roce.AETH
	}
	AtomicAckETH struct {
		golayers.BaseLayer
		roce.AtomicAckETH
	}
	ImmDt struct {
		golayers.BaseLayer
		Data roce.ImmDt
	}
	IETH struct {
		golayers.BaseLayer
		roce.IETH
	}
	CNP struct {
		golayers.BaseLayer
		roce.CNP
	}
)

func (*BTH) LayerType() gopacket.LayerType          { return LayerTypeBTH }
func (*DETH) LayerType() gopacket.LayerType         { return LayerTypeDETH }
func (*FETH) LayerType() gopacket.LayerType         { return LayerTypeFETH }
func (*RETH) LayerType() gopacket.LayerType         { return LayerTypeRETH }
func (*AtomicETH) LayerType() gopacket.LayerType    { return LayerTypeAtomicETH }
func (*AETH) LayerType() gopacket.LayerType         { return LayerTypeAETH }
func (*AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }
func (*ImmDt) LayerType() gopacket.LayerType        { return LayerTypeImmDt }
func (*IETH) LayerType() gopacket.LayerType         { return LayerTypeIETH }
func (*CNP) LayerType() gopacket.LayerType          { return LayerTypeCNP }

func (l *BTH) parts() (header, *golayers.BaseLayer)          { return &l.BTH, &l.BaseLayer }
func (l *DETH) parts() (header, *golayers.BaseLayer)         { return &l.DETH, &l.BaseLayer }
func (l *FETH) parts() (header, *golayers.BaseLayer)         { return &l.FETH, &l.BaseLayer }
func (l *RETH) parts() (header, *golayers.BaseLayer)         { return &l.RETH, &l.BaseLayer }
func (l *AtomicETH) parts() (header, *golayers.BaseLayer)    { return &l.AtomicETH, &l.BaseLayer }
func (l *AETH) parts() (header, *golayers.BaseLayer)         { return &l.AETH, &l.BaseLayer }
func (l *AtomicAckETH) parts() (header, *golayers.BaseLayer) { return &l.AtomicAckETH, &l.BaseLayer }
func (l *ImmDt) parts() (header, *golayers.BaseLayer)        { return &l.Data, &l.BaseLayer }
func (l *IETH) parts() (header, *golayers.BaseLayer)         { return &l.IETH, &l.BaseLayer }
func (l *CNP) parts() (header, *golayers.BaseLayer)          { return &l.CNP, &l.BaseLayer }
