package dataplane_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// inVLAN makes frames on a leg have tags, the outermost first.
func inVLAN(l *mft.Leg, vids ...uint16) {
	b := roce.AppendEthernet(nil, mac(l.Dst), macBox, 0x0800)
	for _, vid := range slices.Backward(vids) {
		b = slices.Insert(b, 12, 0x81, 0, byte(vid>>8), byte(vid))
	}
	l.L2Bytes = uint8(copy(l.L2[:], b))
}

// tcis are the tags of the only frame that has left by a port.
func tcis(t *testing.T, net *porttest.Net, port int) (tags []uint16) {
	t.Helper()
	out := net.Ports[port].Take()
	if len(out) != 1 {
		t.Fatalf("%d frames left by port %d; counters %v", len(out), port, moved(net.Switch))
	}
	for at := 12; out[0][at] == 0x81; at += 4 {
		tags = append(tags, binary.BigEndian.Uint16(out[0][at+2:]))
	}
	if d := decode(t, out[0]); !d.ICRCValid || !d.ChecksumValid {
		t.Errorf("port %d: %+v", port, d)
	}
	return tags
}

type tagCase struct {
	name                  string
	vlans                 [][]uint16 // of a, b, c, d
	of                    []mft.Tagged
	data, answer          []uint16 // tags that a sends, and b
	class                 uint8
	source, b, c, d, cnps []uint16 // tags of what leaves; cnps: of the CNP to a
}

// Copies have the priority of the packet in their VLAN tags, answers to the source that of the
// receivers' answers. The tag of a VLAN device with an egress-qos-map has what the map says of the
// packet's traffic class.
func TestTheTagsPriority(t *testing.T) {
	qos := roce.NewTagPriority(map[uint32]uint32{0: 1, 2: 6})
	for _, tt := range []tagCase{
		{"all in one VLAN", [][]uint16{{7}, {7}, {7}, {7}}, nil, []uint16{0x6007}, []uint16{0xA007}, 0,
			[]uint16{0xA007}, []uint16{0x6007}, []uint16{0x6007}, []uint16{0x6007}, []uint16{0xA007}},
		{"two tags", [][]uint16{{7, 9}, {7}, {8, 9}, nil}, nil, []uint16{0x6007, 0x2009}, []uint16{0xA007}, 0,
			[]uint16{0xA007, 0xA009}, []uint16{0x6007}, []uint16{0x6008, 0x6009}, nil, []uint16{0xA007, 0xA009}},
		{"receivers without tags", [][]uint16{{7}, nil, nil, nil}, nil, []uint16{0x6007}, nil, 0,
			[]uint16{0x6007}, nil, nil, nil, []uint16{0x6007}},
		{"a source without a tag", [][]uint16{nil, {7}, {8}, nil}, nil, nil, []uint16{0xA007}, 0,
			nil, []uint16{7}, []uint16{8}, nil, nil},
		{"a tag with a priority alone", [][]uint16{nil, {7}, nil, nil}, nil, []uint16{0x6000}, []uint16{7}, 0,
			nil, []uint16{0x6007}, nil, nil, nil},
		{"a map", [][]uint16{{7}, {7}, {7}, {8}},
			[]mft.Tagged{{Port: 1, VLANs: mft.VLANs{0x8100_0007}, Priority: qos}, {Port: 3, VLANs: mft.VLANs{0x8100_0008}, Priority: qos},
				{Port: 2, VLANs: mft.VLANs{0x8100_0008}, Priority: qos}, {Port: 0, VLANs: mft.VLANs{0x8100_0007}, Priority: qos}},
			[]uint16{0x6007}, []uint16{0xA007}, 0x68,
			[]uint16{0xC007}, []uint16{0xC007}, []uint16{0x6007}, []uint16{0xC008}, []uint16{0x2007}},
	} {
		for _, engine := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", engine ", engine), func(t *testing.T) { testTheTagsPriority(t, &tt, engine) })
		}
	}
}

func testTheTagsPriority(t *testing.T, tt *tagCase, engine bool) {
	g := group()
	g.Tagged = tt.of
	for i, l := range []*mft.Leg{&g.Source.Leg, &g.Paths[0].Leg, &g.Paths[1].Leg, &g.Paths[2].Leg} {
		inVLAN(l, tt.vlans[i]...)
	}
	net, n := newNet(t, g), int32(0)
	if engine {
		net = porttest.NewFanOutAt(4, nil)
		if _, err := net.Switch.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	data := tagged(write(firstPSN, []byte("data")), tt.data...)
	data.class = tt.class
	for ; engine && n < calmPackets; n++ {
		say(t, net, data)
		data.bth.PSN = data.bth.PSN.Next()
	}
	for port := range 4 {
		net.Ports[port].Take()
	}
	if st, _ := net.Switch.GroupState(g.ID); st.Engine.Kernel != engine || st.Engine.Answers != "" {
		t.Fatalf("%+v", st.Engine)
	}
	say(t, net, data)
	for port, want := range [][]uint16{1: tt.b, tt.c, tt.d} {
		if port == 0 {
			continue
		}
		if got := tcis(t, net, port); !slices.Equal(got, want) {
			t.Errorf("the copy by port %d has tags %#x, want %#x", port, got, want)
		}
	}
	say(t, net, tagged(cnp(ipB), tt.answer...))
	if got := tcis(t, net, 0); !slices.Equal(got, tt.cnps) {
		t.Errorf("the CNP has tags %#x, want %#x", got, tt.cnps)
	}
	say(t, net, tagged(ack(ipC, g.Paths[1].FirstPSN.Add(n), roce.SyndromeUnlimited), tt.vlans[2]...))
	say(t, net, tagged(ack(ipD, g.Paths[2].FirstPSN.Add(n), roce.SyndromeUnlimited), tt.vlans[3]...))
	silent(t, net)
	say(t, net, tagged(ack(ipB, g.Paths[0].FirstPSN.Add(n), roce.SyndromeUnlimited), tt.answer...))
	if got := tcis(t, net, 0); !slices.Equal(got, tt.source) {
		t.Errorf("the ACK has tags %#x, want %#x", got, tt.source)
	}
	if st, _ := net.Switch.GroupState(g.ID); st.Engine.Kernel != engine || engine && st.Engine.Carried == 0 {
		t.Errorf("%+v", st.Engine)
	}
}

// A packet that is sent again has the priority with which it came, also if the engine retained it,
// and so has each packet of a train.
func TestTheTagsPriorityOfRepairs(t *testing.T) {
	g := group()
	g.Policy.Repair, g.Policy.RepairWindow = feedback.RepairLocal, 64
	inVLAN(&g.Source.Leg, 7)
	inVLAN(&g.Paths[0].Leg, 8)
	net := newNet(t, g)
	for i := range 4 {
		net.Ports[0].Put(tagged(quiet(roce.PSN(firstPSN+i)), uint16(i+1)<<13|7).frame(t))
	}
	net.Poll()
	check := func(frames [][]byte, from int) {
		t.Helper()
		if len(frames) == 0 {
			t.Fatal("nothing is sent")
		}
		for i, f := range frames {
			if got, want := binary.BigEndian.Uint16(f[14:]), uint16(from+i+1)<<13|8; got != want {
				t.Errorf("packet %d has the tag %#x, want %#x", i, got, want)
			}
		}
	}
	check(net.Ports[1].Take(), 0)
	say(t, net, tagged(ack(ipB, g.Paths[0].FirstPSN.Add(1), roce.NAKSequence), 8))
	check(net.Ports[1].Take()[:1], 1)
}

// Where no receiver sends tags, answers to the source have the priority of its newest packet, also
// if that came in a train.
func TestTheTagsPriorityOfAnswersWithoutTags(t *testing.T) {
	g := group()
	inVLAN(&g.Source.Leg, 7)
	net := newNet(t, g)
	for i := range 4 {
		net.Ports[0].Put(tagged(quiet(roce.PSN(firstPSN+i)), uint16(i+1)<<13|7).frame(t))
	}
	net.Poll()
	for i := range g.Paths {
		say(t, net, ack(g.Paths[i].Dst, g.Paths[i].FirstPSN.Add(3), roce.SyndromeUnlimited))
	}
	if got, want := tcis(t, net, 0), []uint16{4<<13 | 7}; !slices.Equal(got, want) {
		t.Errorf("the ACK has tags %#x, want %#x", got, want)
	}
}

// A capture has frames with the tags that they had on the wire, and a trace says with which tags
// frames would leave.
func TestCapturesAndTracesHaveTheTags(t *testing.T) {
	g := group()
	inVLAN(&g.Source.Leg, 7)
	inVLAN(&g.Paths[0].Leg, 7, 9)
	inVLAN(&g.Paths[1].Leg, 8)
	net := newNet(t, g)
	c := capture(t, net.Switch, only(g))
	expect := func(what string, port mft.PortID, frame []byte) {
		t.Helper()
		trace := traced(t, net.Switch, port, frame)
		net.Ports[port].Put(frame)
		net.Poll()
		wire := [][]byte{frame}
		for p := range 4 {
			wire = append(wire, net.Ports[p].Take()...)
		}
		n := 0
		c.Read(func(f *dataplane.Captured) {
			if n >= len(wire) || n >= len(trace.Frames) {
				t.Fatalf("%s: %d frames on the wire, %d traced", what, len(wire), len(trace.Frames))
			}
			var v roce.View
			if err := v.Decode(wire[n], len(wire[n])); err != nil {
				t.Fatal(err)
			}
			l2 := wire[n][:v.L3]
			for who, got := range map[string][]byte{"captured": f.Bytes, "traced": trace.Frames[n].Bytes} {
				if !bytes.HasPrefix(got, l2) {
					t.Errorf("%s: frame %d is %s with %x, and on the wire with %x", what, n, who, got[:min(len(got), 22)], l2)
				}
			}
			n++
		})
		if n != len(wire) || n < 2 {
			t.Errorf("%s: %d frames captured, %d on the wire", what, n, len(wire))
		}
	}
	expect("data", 0, tagged(write(firstPSN, []byte("data")), 0x6007).frame(t))
	for i, tags := range [][]uint16{{0xA007, 0x2009}, {0xA008}} {
		say(t, net, tagged(ack(g.Paths[i].Dst, g.Paths[i].FirstPSN, roce.SyndromeUnlimited), tags...))
	}
	seen(c)
	expect("the last ACK", 3, ack(ipD, g.Paths[2].FirstPSN, roce.SyndromeUnlimited).frame(t))
}
