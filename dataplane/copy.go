package dataplane

// untagged is the length of an Ethernet header without VLAN tags.
const untagged = 14

// Apply writes c into the buffers of the frame and returns where in f.Buf the copy starts. It may
// be called for one copy after the other: each call writes everything that any of them changes. The
// ICRC is derived from the received one, so a payload that was damaged meanwhile does not become
// valid (docs/wire.md#icrc).
//
//	f.Buf   | headroom | Ethernet | IP UDP BTH [RETH] | payload ICRC
//	                 ^ start      ^ Original.L3 never moves: a leg with more VLAN
//	                   moves        tags takes them from the headroom
func (c *Copy) Apply(f *Frame) (start int) {
	e, was, head := c.Edit, &f.Original, f.Buf[f.Start:]
	icrc := e.Apply(head, c.PSN, c.Path.Regions.Target(f.Region), was)
	if c.Retained {
		icrc = was.WriteAckReq(&f.View, head, c.AckReq, icrc)
	}
	if f.FragmentCount == 1 { // most are
		was.PutICRC(head, icrc)
	} else {
		f.View.PutICRC(f.Bytes(), icrc)
	}
	start = f.Start + int(was.L3) - int(e.L2Bytes)
	if e.L2Bytes == untagged {
		*(*[untagged]byte)(f.Buf[start:]) = [untagged]byte(e.L2[:])
	} else {
		copy(f.Buf[start:], e.L2[:e.L2Bytes])
		e.Priority.Write(f.Buf[start:start+int(e.L2Bytes)], was.PCP, was.Class)
	}
	return start
}

// OfNext makes c, which is the copy of one frame, that of the next frame which the core handled at
// once with it.
func (c *Copy) OfNext() { c.PSN = c.PSN.Next() }
