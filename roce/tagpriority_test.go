package roce

import "testing"

// The kernel gives a packet a priority by two bits of its traffic class, and a VLAN device with an
// egress-qos-map gives the tag what the map says of that priority. All other tags keep the priority
// of the packet.
func TestTagPriorities(t *testing.T) {
	if p := NewTagPriority(nil); p != 0 {
		t.Errorf("without a map it is %#x", p)
	}
	qos := NewTagPriority(map[uint32]uint32{0: 1, 2: 3, 4: 5, 1: 7})
	other := NewTagPriority(map[uint32]uint32{6: 6})
	for _, c := range []struct {
		name         string
		priority     TagPriority
		class        uint8
		outer, inner uint8 // of a packet with PCP 2
	}{
		{"no map", NewTagPriority(nil), 0xFF, 2, 2},
		{"best effort", qos, 0x00, 1, 2},
		{"ECN does not count", qos, 0x03, 1, 2},
		{"class selector 3", qos, 0x60, 1, 2},
		{"AF31", qos, 0x68, 3, 2},
		{"AF42", qos, 0x90, 0, 2},
		{"EF", qos, 0xB8, 5, 2},
		{"another map, best effort", other, 0x00, 0, 2},
		{"another map, interactive", other, 0x10, 6, 2},
		{"the map of the highest priority alone", NewTagPriority(map[uint32]uint32{4: 6}), 0xB8, 6, 2},
		{"the inner tag's map", TagPriority(0).Around(qos), 0x68, 2, 3},
		{"the outer tag's map", qos.Around(0), 0x68, 3, 2},
		{"of two maps the outer one", qos.Around(other), 0x68, 3, 3},
	} {
		b := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0xA8, 0x0F, 0xFF, 0x81, 0, 0x0A, 0xBC, 8, 0}
		c.priority.Write(b, 2, c.class)
		if b[14] != c.outer<<5|0x0F || b[18] != c.inner<<5|0x0A {
			t.Errorf("%s: %x, want PCP %d and %d", c.name, b[12:], c.outer, c.inner)
		}
		one := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 7, 8, 0}
		c.priority.Write(one, 2, c.class)
		if one[14] != c.outer<<5 || one[15] != 7 || one[16] != 8 {
			t.Errorf("%s: %x, want PCP %d", c.name, one[12:], c.outer)
		}
		c.priority.Write(one[:14], 2, c.class)
		outer, inner := c.priority.Keeps()
		if c.priority == 0 && !(outer && inner) || c.name == "best effort" && (outer || !inner) {
			t.Errorf("%s: keeps %v, %v", c.name, outer, inner)
		}
	}
}

// The priority of a frame is that of its outermost tag, which may have no VLAN ID.
func TestThePriorityOfAFrame(t *testing.T) {
	for vlans, want := range []uint8{0, 5, 5} {
		frame := testFrame(t, ipv4Pair, vlans, OpSendOnly, 8)
		if vlans > 0 {
			frame[14] = 5 << 5
		}
		var o Original
		o.PCP = 7 // of an earlier frame
		v := viewOf(t, frame)
		if o.Read(v, [][]byte{frame}); v.PCP(frame) != want || o.PCP != want {
			t.Errorf("%d tags: PCP %d and %d, want %d", vlans, v.PCP(frame), o.PCP, want)
		}
	}
}
