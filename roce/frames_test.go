package roce

import (
	"net/netip"
	"testing"
)

var (
	hostMAC  = MAC{0x52, 0x54, 0, 0, 0, 1}
	groupMAC = MAC{0x52, 0x54, 0, 0, 0, 2}
	ipv4Pair = IPUDP{Src: netip.MustParseAddr("10.77.0.1"), Dst: netip.MustParseAddr("10.77.0.200"),
		TrafficClass: 0x02, HopLimit: 64, ID: 0x1E94, SrcPort: 0xD584}
	ipv6Pair = IPUDP{Src: netip.MustParseAddr("fd00:77::1"), Dst: netip.MustParseAddr("fd00:77::200"),
		TrafficClass: 0x6A, HopLimit: 7, SrcPort: 0xC001}
)

// testFrame builds a frame of one opcode around a payload. Extension headers hold the bytes 1, 2, 3
// and so on.
func testFrame(t testing.TB, ip IPUDP, vlans int, o Opcode, payloadBytes int) []byte {
	t.Helper()
	var b []byte
	switch vlans {
	case 0:
		b = AppendEthernet(b, groupMAC, hostMAC, ip.EtherType())
	case 1:
		b = AppendVLAN(b, groupMAC, hostMAC, 0x6007, ip.EtherType())
	case 2:
		b = AppendEthernet(b, groupMAC, hostMAC, 0x88A8)
		b = append(b, 0x00, 0x64, 0x81, 0x00, 0x60, 0x07)
		b = append(b, byte(ip.EtherType()>>8), byte(ip.EtherType()))
	}
	pad := PadFor(payloadBytes)
	b = ip.Append(b, BTHBytes+o.ExtBytes()+payloadBytes+int(pad))
	bth := BTH{Opcode: o, PadCount: pad, PKey: DefaultPKey, DestQPN: 0x123456, AckReq: true, PSN: 0xFFFFFE}
	b = bth.Append(b)
	for i := range o.ExtBytes() {
		b = append(b, byte(i+1))
	}
	for i := range payloadBytes {
		b = append(b, byte(i*7)^byte(i>>8))
	}
	b, err := AppendICRC(append(b, make([]byte, pad)...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
