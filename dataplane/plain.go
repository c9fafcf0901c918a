package dataplane

import (
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// NotPlain says why a packet is not the one that an engine carries next.
type NotPlain uint8

const (
	IsPlain NotPlain = iota
	NotNextPSN
	NotItsHeaders
	NotItsMemory
	BeyondLimit
	NotOfSource // the engine keeps the group
)

// The names are those of the counters of the kernel's engine (rocast_fan_event in bpf/fanout.h).
var notPlainNames = [...]string{
	NotNextPSN: "fan-out-disarmed_psn", NotItsHeaders: "fan-out-disarmed_header",
	NotItsMemory: "fan-out-disarmed_region", BeyondLimit: "fan-out-disarmed_limit",
}

func (n NotPlain) String() string { return notPlainNames[n] }

// Plain reports whether a frame of data is the one that an engine carries next, which was armed
// with b and limit and is at w. region is the index of the range of the group's memory that the
// packet names; -1: it names none.
func Plain(f *Frame, b *mft.Block, w FanWord, limit roce.PSN) (region int, not NotPlain) {
	v, head := &f.View, f.Head()
	switch err := v.Decode(head, f.Len()); {
	case (err == nil || err == roce.ErrOpcode || err == roce.ErrTVer) && !isOf(f, b):
		return -1, NotOfSource
	case err != nil, f.FragmentCount != 1 && !b.IsWide():
		return -1, NotItsHeaders
	}
	switch psn := v.PSN(head); {
	case psn != w.PSN:
		return -1, NotNextPSN
	case limit.Before(psn):
		return -1, BeyondLimit
	case !hasHeaders(v, head, b) || f.Port != b.Ingress:
		return -1, NotItsHeaders
	case !v.Opcode.Headers().Has(roce.HasRETH) || b.Memory == nil:
		return -1, IsPlain
	}
	reth := v.RETH(head)
	region = b.Memory.Find(reth.VA, reth.RKey, reth.DMABytes)
	if region < 0 || reth.DMABytes == 0 {
		return -1, NotItsMemory
	}
	return region, IsPlain
}

// isOf reports whether a frame has the port, VLANs, addresses and dest QPN of the source's frames.
func isOf(f *Frame, b *mft.Block) bool {
	v, head := &f.View, f.Head()
	return v.SrcIP(head) == b.From.Src && v.DstIP(head) == b.From.Dst && v.DestQPN(head) == b.From.DestQPN &&
		(f.Port == b.Ingress || b.Multipath) && mft.VLANsOf(head[:v.L3]) == b.VLANs
}

// hasHeaders reports whether a packet of a block's source has the headers of its plain packets.
func hasHeaders(v *roce.View, head []byte, b *mft.Block) bool {
	o := v.Opcode
	carries := o.IsRC() && o.IsRequest() && !o.IsRead() && !o.IsAtomic() && o != roce.OpAtomicWrite &&
		!o.Headers().Has(roce.HasIETH) && !o.Headers().Has(roce.HasFETH)
	return carries && v.PKey(head) == b.PKey && v.TrafficClass(head)&^3 == b.TrafficClass && v.HopLimit(head) >= 2 &&
		v.PayloadBytes <= b.PathMTU
}
