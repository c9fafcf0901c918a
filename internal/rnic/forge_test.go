package rnic

import (
	"testing"

	"github.com/rocast/rocast/roce"
)

// forge is a frame from the peer of the stories. What is not changed in it is right.
type forge struct {
	bth  roce.BTH
	body []byte // extension headers and payload

	addresses func(ip *roce.IPUDP, dst *roce.MAC)
	damage    func(v *roce.View, frame []byte) // after the ICRC
}

func (f forge) frame(t testing.TB) []byte {
	t.Helper()
	ip := roce.IPUDP{Src: storyPeer.IP, Dst: storySelf.IP, HopLimit: 64, SrcPort: 0xC000}
	dst := storySelf.MAC
	if f.addresses != nil {
		f.addresses(&ip, &dst)
	}
	if f.bth.PKey == 0 {
		f.bth.PKey = roce.DefaultPKey
	}
	if f.bth.DestQPN == 0 {
		f.bth.DestQPN = storySelf.QPN
	}
	b := roce.AppendEthernet(nil, dst, storyPeer.MAC, ip.EtherType())
	b = ip.Append(b, roce.BTHBytes+len(f.body)+int(f.bth.PadCount))
	b = append(f.bth.Append(b), f.body...)
	b, err := roce.AppendICRC(append(b, make([]byte, f.bth.PadCount)...))
	if err != nil && f.damage == nil {
		t.Fatal(err)
	}
	if f.damage != nil {
		var v roce.View
		_ = v.Decode(b, len(b))
		f.damage(&v, b)
	}
	return b
}
