package dataplane

import "github.com/rocast/rocast/roce"

// Apply writes c into the buffers of the frame and returns where in f.Buf the copy starts. It may
// be called for one copy after the other: each call writes everything that any of them changes. The
// ICRC is derived from the received one, so a payload that was damaged meanwhile does not become
// valid (docs/wire.md#icrc).
//
//	f.Buf   | headroom | Ethernet | IP UDP BTH [RETH] | payload ICRC
//	                 ^ start      ^ View.L3 moves never: a leg with more VLAN
//	                   moves        tags takes them from the headroom
func (c *Copy) Apply(f *Frame) (start int) {
	v, head, p := &f.View, f.Head(), c.Path
	v.SetSrcIP(head, p.Src)
	v.SetDstIP(head, p.Dst)
	v.SetHopLimit(head, f.HopLimit)
	v.SetDestQPN(head, p.DestQPN)
	v.SetPSN(head, c.PSN)
	if v.Opcode.Headers().Has(roce.HasRETH) {
		v.SetRETHTarget(head, c.VA, c.RKey)
	}
	v.ClearUDPChecksum(head)
	var headers roce.MaskedHeaders
	v.MaskHeaders(head, &headers)
	v.PutICRC(f.Bytes(), roce.UpdateICRC(f.ICRC, &f.Headers, &headers, v.ICRC-v.Payload))

	start = f.Start + v.L3 - int(p.L2Bytes)
	copy(f.Buf[start:], p.L2[:p.L2Bytes])
	return start
}
