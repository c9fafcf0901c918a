package roce

import (
	"errors"
	"slices"
	"testing"
)

// rebuild builds a captured frame again from its View and BTH.
func rebuild(t *testing.T, frame []byte, v *View, into []byte) []byte {
	t.Helper()
	ip := IPUDP{Src: v.SrcIP(frame), Dst: v.DstIP(frame), TrafficClass: v.TrafficClass(frame), SrcPort: v.UDPSrcPort(frame)}
	if v.IPv6 {
		ip.HopLimit = frame[v.L3+7]
	} else {
		ip.HopLimit, ip.ID = frame[v.L3+8], uint16(frame[v.L3+4])<<8|uint16(frame[v.L3+5])
	}
	var bth BTH
	if _, err := bth.Decode(frame[v.BTH:]); err != nil {
		t.Fatal(err)
	}
	b := AppendEthernet(into, MAC(frame), MAC(frame[6:]), ip.EtherType())
	b = ip.Append(b, v.ICRC-v.BTH)
	b = bth.Append(b)
	b, err := AppendICRC(append(b, frame[v.Ext:v.ICRC]...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Frames that rxe sent, and copies that rocast made of them, are the same to the last byte when we
// build them.
func TestBuildersReproduceCaptures(t *testing.T) {
	eachRoCE(t, func(name string, index int, frame []byte, v *View) {
		if got := rebuild(t, frame, v, nil); !slices.Equal(got, frame) {
			t.Errorf("%s frame %d: built\n%x, want\n%x", name, index, got, frame)
		}
	})
}

func TestAppendVLAN(t *testing.T) {
	want := unhex(t, "525400000002"+"525400000001"+"81006007"+"86dd")
	if got := AppendVLAN(nil, groupMAC, hostMAC, 0x6007, etherTypeIPv6); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestBuildingAnACKDoesNotAllocate(t *testing.T) {
	frame, v := frameOf(t, "m_zero", 1)
	buffer := make([]byte, 0, 128)
	if n := testing.AllocsPerRun(100, func() { rebuild(t, frame, v, buffer) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendICRCRefusesNonsense(t *testing.T) {
	if _, err := AppendICRC(make([]byte, 60)); !errors.Is(err, ErrNotIP) {
		t.Error(err)
	}
}
