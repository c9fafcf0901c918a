package cm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/captures"
	"github.com/rocast/rocast/roce"
)

// captured returns the frames of a capture that go to queue pair 1, with their MADs.
func captured(t testing.TB, capture string) (frames [][]byte, mads []MAD) {
	t.Helper()
	all, err := captures.Frames(capture)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if m, err := Decode(f.Data); err == nil {
			frames, mads = append(frames, f.Data), append(mads, m)
		} else if err != ErrNotMAD {
			t.Errorf("%s: %v in %x", capture, err, f.Data)
		}
	}
	return frames, mads
}

func names(mads []MAD) string {
	var l []string
	for _, m := range mads {
		l = append(l, m.Message.Attribute().String())
	}
	return strings.Join(l, " ")
}

func show(m MAD) string { return fmt.Sprintf("%+v", m.Message) }

// write builds the whole frame that carries m, with the addresses of frame.
func write(t testing.TB, frame []byte, m *MAD) []byte {
	t.Helper()
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		t.Fatal(err)
	}
	var bth roce.BTH
	if _, err := bth.Decode(frame[v.BTH:]); err != nil {
		t.Fatal(err)
	}
	ip := roce.IPUDP{Src: v.SrcIP(frame), Dst: v.DstIP(frame), TrafficClass: frame[15], HopLimit: frame[22],
		ID: binary.BigEndian.Uint16(frame[18:]), SrcPort: binary.BigEndian.Uint16(frame[v.UDP:])}
	b := roce.AppendEthernet(nil, roce.MAC(frame[:6]), roce.MAC(frame[6:]), ip.EtherType())
	b, err := roce.AppendICRC(m.Append(ip.Append(b, TransportBytes), bth.PSN))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What real hosts sent is read and written back to the same bytes: the whole frame, with its ICRC.
func TestCapturedMessagesRoundTrip(t *testing.T) {
	for capture, want := range map[string]string{
		"rping":   "REQ REP RTU DREQ DREP",
		"write_R": "REQ REP RTU REQ REP RTU DREQ DREP DREQ DREQ DREP DREP",
	} {
		frames, mads := captured(t, capture)
		if got := names(mads); got != want {
			t.Errorf("%s has %s, want %s", capture, got, want)
		}
		for i, frame := range frames {
			if got := write(t, frame, &mads[i]); !bytes.Equal(got, frame) {
				t.Errorf("%s: %s\n%x became\n%x", capture, mads[i].Message.Attribute(), frame, got)
			}
		}
	}
}

// The fields of rping's messages, as docs/wire.md#rdma-cm places them.
func TestCapturedFields(t *testing.T) {
	_, mads := captured(t, "rping")
	path := "LocalLID:65535 RemoteLID:65535 LocalGID:[0 0 0 0 0 0 0 0 0 0 255 255 10 77 0 1] RemoteGID:[0 0 0 0 0 0 0 0 0 0 255 255 10 77 0 2]" +
		" FlowLabel:531352 Rate:0 TrafficClass:0 HopLimit:64 SL:0 SubnetLocal:false ACKTimeout:19"
	for i, want := range []string{
		"LocalCommID:844976555 VendorID:0 ServiceID:17177606 CAGUID:5788252520556003329 QKey:0 QPN:78 Responder:1 Initiator:1" +
			" EECN:0 PeerEECN:0 PeerCMTimeout:20 Transport:0 FlowControl:false StartingPSN:5685405 CMTimeout:20 RetryCount:7" +
			" PKey:65535 PathMTU:5 RDC:false RNRRetry:7 MaxCMRetries:15 SRQ:false ExtTransport:0 Primary:{" + path + "}",
		"Pair:{Local:2044513759 Remote:844976555} QKey:0 QPN:174 EECN:0 StartingPSN:15096616 VendorID:0 Responder:1 Initiator:1" +
			" ACKDelay:15 Failover:0 FlowControl:false RNRRetry:7 SRQ:false CAGUID:5788252520556003330",
		"Pair:{Local:844976555 Remote:2044513759}",
		"Pair:{Local:844976555 Remote:2044513759} RemoteQPN:174",
		"Pair:{Local:2044513759 Remote:844976555}",
	} {
		if got := fmt.Sprintf("%+v", mads[i].Message); !strings.HasPrefix(got, "&{"+want) {
			t.Errorf("\ngot  %s\nwant %s", got, want)
		}
		if mads[i].TID != 0x2ab515d32 || mads[i].Modifier != 0 {
			t.Errorf("header %+v", mads[i].Header)
		}
	}
	req := mads[0].Message.(*REQ)
	var header IPHeader
	if !header.Decode(&req.PrivateData) || fmt.Sprint(header) != "{10.77.0.1 10.77.0.2 50734}" || req.ServiceID != ServiceID(7174) {
		t.Errorf("header %v, service ID %#x", header, req.ServiceID)
	}
	if GIDOf(header.Src) != req.Primary.LocalGID || req.Primary.RemoteGID != GIDOf(header.Dst) {
		t.Error("the GIDs are not those of the addresses")
	}
}

// No capture has these messages, or a REQ with every field. Each field has a value of its own, and
// the bytes are written by hand from docs/wire.md#rdma-cm.
func TestGoldenMessages(t *testing.T) {
	for _, g := range []struct {
		message Message
		at      map[int]string // offset in the message: bytes there; all else is 0
	}{
		{&REQ{VendorID: 0x010203, QKey: 0x04050607, EECN: 0x08090A, PeerEECN: 0x0B0C0D, PeerCMTimeout: 1, Transport: 2, FlowControl: true},
			map[int]string{5: "\x01\x02\x03", 28: "\x04\x05\x06\x07", 36: "\x08\x09\x0a", 40: "\x0b\x0c\x0d\x0d"}},
		{&REQ{PathMTU: 3, RDC: true, RNRRetry: 2, MaxCMRetries: 4, SRQ: true, ExtTransport: 5}, map[int]string{50: "\x3a\x4d"}},
		{&REQ{Primary: Path{LocalLID: 0x0102, RemoteLID: 0x0304, FlowLabel: 0xABCDE, Rate: 0x2A, TrafficClass: 6, HopLimit: 7, SL: 8, SubnetLocal: true, ACKTimeout: 9}},
			map[int]string{52: "\x01\x02\x03\x04", 88: "\xab\xcd\xe0\x2a\x06\x07\x88\x48"}},
		{&REQ{Second: Path{LocalLID: 0x0102, RemoteLID: 0x0304, LocalGID: GID{5}, RemoteGID: GID{6}, ACKTimeout: 9}, PrivateData: [92]byte{7}},
			map[int]string{96: "\x01\x02\x03\x04\x05", 116: "\x06", 139: "\x48\x07"}},
		{&REP{QKey: 0x01020304, EECN: 0x050607, VendorID: 0x08090A, Responder: 11, Initiator: 12, ACKDelay: 13, Failover: 2, FlowControl: true, RNRRetry: 3, SRQ: true, CAGUID: 14, PrivateData: [196]byte{15}},
			map[int]string{8: "\x01\x02\x03\x04", 15: "\x08\x05\x06\x07\x09", 23: "\x0a\x0b\x0c\x6d\x70", 35: "\x0e\x0f"}},
		{&RTU{Pair: Pair{1, 2}, PrivateData: [224]byte{3}}, map[int]string{3: "\x01", 7: "\x02\x03"}},
		{&DREQ{Pair: Pair{1, 2}, RemoteQPN: 3, PrivateData: [220]byte{4}}, map[int]string{3: "\x01", 7: "\x02\x00\x00\x03", 12: "\x04"}},
		{&DREP{Pair: Pair{1, 2}, PrivateData: [224]byte{3}}, map[int]string{3: "\x01", 7: "\x02\x03"}},
		{&SIDRREQ{RequestID: 1, PKey: 0x0203, ServiceID: 4, PrivateData: [216]byte{5}}, map[int]string{3: "\x01\x02\x03", 15: "\x04\x05"}},
		{&SIDRREP{RequestID: 1, Status: ServiceUnsupported, ServiceID: 3}, map[int]string{3: "\x01\x01", 19: "\x03"}},
		{&LAP{Pair{1, 2}}, map[int]string{3: "\x01", 7: "\x02"}},
		{&APR{Pair: Pair{1, 2}, Status: PathUnsupported}, map[int]string{3: "\x01", 7: "\x02", 9: "\x02"}},
		{&MRA{Pair: Pair{1, 2}, Answers: AnswersREP, ServiceTimeout: 20, PrivateData: [222]byte{3}}, map[int]string{3: "\x01", 7: "\x02\x40\xa0\x03"}},
		{&REJ{Pair: Pair{1, 2}, Answers: AnswersOther, InfoBytes: 72, Reason: StaleConnection, Info: [72]byte{3}, PrivateData: [148]byte{4}},
			map[int]string{3: "\x01", 7: "\x02\x80\x90\x00\x0a\x03", 84: "\x04"}},
	} {
		var want [messageBytes]byte
		for offset, text := range g.at {
			copy(want[offset:], text)
		}
		var got [messageBytes]byte
		g.message.encode(&got)
		if got != want {
			t.Errorf("%+v\n%x, want\n%x", g.message, got, want)
		}
		back := newMessage(g.message.Attribute())
		if err := back.decode(&want); err != nil || fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", g.message) {
			t.Errorf("%v\n%+v, want\n%+v", err, back, g.message)
		}
	}
}

// Each bit of a message belongs to one field, and reading and writing the message keeps it; or it
// has no meaning here, as docs/wire.md#rdma-cm says, and is sent as 0.
func TestEachBitHasOneMeaning(t *testing.T) {
	type bits struct {
		from, to int // bytes
		mask     byte
	}
	const end = messageBytes
	path := func(at int) []bits {
		return []bits{{at + 38, at + 39, 0x0F}, {at + 39, at + 40, 0xC0}, {at + 42, at + 43, 7}, {at + 43, at + 44, 7}}
	}
	for attribute, unused := range map[Attribute][]bits{
		AttrREQ:     append(append(path(52), path(96)...), bits{4, 5, 0xFF}, bits{24, 28, 0xFF}),
		AttrMRA:     {{8, 9, 0x3F}, {9, 10, 7}},
		AttrREJ:     {{8, 9, 0x3F}, {9, 10, 1}},
		AttrREP:     {{27, 28, 0x0F}},
		AttrRTU:     {},
		AttrDREQ:    {{11, 12, 0xFF}},
		AttrDREP:    {},
		AttrSIDRREQ: {{6, 8, 0xFF}},
		AttrSIDRREP: {{5, 12, 0xFF}, {20, end, 0xFF}},
		AttrLAP:     {{8, end, 0xFF}},
		AttrAPR:     {{8, 9, 0xFF}, {10, end, 0xFF}},
	} {
		for i := range 8 * end {
			var b, want, got [messageBytes]byte
			b[i/8] = 1 << (i % 8)
			want = b
			for _, u := range unused {
				if u.from <= i/8 && i/8 < u.to {
					want[i/8] &^= u.mask
				}
			}
			m := newMessage(attribute)
			if err := m.decode(&b); err != nil {
				t.Fatalf("%v, byte %d, bit %#x: %v", attribute, i/8, b[i/8], err)
			}
			if m.encode(&got); got != want {
				t.Errorf("%v, byte %d, bit %#x became %x", attribute, i/8, b[i/8], got)
			}
		}
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	m := MAD{Header: Header{TID: 0x0102030405060708, Modifier: 0x0A0B0C0D}, Message: &RTU{}}
	b := m.encode()
	want := "\x01\x07\x02\x03\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08\x00\x14\x00\x00\x0a\x0b\x0c\x0d"
	if string(b[:headerBytes]) != want {
		t.Errorf("%x, want %x", b[:headerBytes], want)
	}
	if back, err := DecodeMAD(&b); err != nil || back.Header != m.Header {
		t.Errorf("%v, %+v", err, back.Header)
	}
}

// A datagram to queue pair 1 that is longer or shorter than a MAD, or padded, is none; nor is a
// packet of a reliable connection, whatever it holds.
func TestOnlyOneLengthIsAMAD(t *testing.T) {
	frames, _ := captured(t, "rping")
	var v roce.View
	if err := v.Decode(frames[0], len(frames[0])); err != nil {
		t.Fatal(err)
	}
	mad := frames[0][v.Payload : v.Payload+MADBytes]
	deth := roce.DETH{QKey: QKey, SrcQPN: QPN}
	ud := func(pad uint8, payload []byte) []byte {
		bth := roce.BTH{Opcode: roce.OpUDSendOnly, PKey: roce.DefaultPKey, DestQPN: QPN, PadCount: pad}
		return append(append(deth.Append(bth.Append(nil)), payload...), make([]byte, pad)...)
	}
	rc := roce.BTH{Opcode: roce.OpSendOnly, PKey: roce.DefaultPKey, DestQPN: QPN}
	for name, transport := range map[string][]byte{
		"4 bytes more":     ud(0, append(bytes.Clone(mad), 0, 0, 0, 0)),
		"4 bytes less":     ud(0, mad[:MADBytes-4]),
		"padded":           ud(1, mad[:MADBytes-1]),
		"not to a UD pair": append(rc.Append(nil), append(deth.Append(nil), mad[:MADBytes-roce.DETHBytes]...)...),
	} {
		ip := roce.IPUDP{Src: v.SrcIP(frames[0]), Dst: v.DstIP(frames[0]), HopLimit: 64}
		frame := roce.AppendEthernet(nil, roce.MAC{}, roce.MAC{}, ip.EtherType())
		frame, err := roce.AppendICRC(append(ip.Append(frame, len(transport)), transport...))
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := Decode(frame); err != ErrNotMAD {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatDecodeRefuses(t *testing.T) {
	frames, _ := captured(t, "rping")
	frame := frames[0]
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		t.Fatal(err)
	}
	mad := v.Payload
	rej := write(t, frame, &MAD{Message: &REJ{InfoBytes: 73}})
	for _, c := range []struct {
		name   string
		offset int
		value  byte
		want   error
	}{
		{"opcode", v.BTH, byte(roce.OpSendOnly), ErrNotMAD},
		{"destination QPN", v.BTH + 7, 2, ErrNotMAD},
		{"Q_Key", v.Ext, 0, ErrNotMAD},
		{"source QPN", v.Ext + 7, 2, ErrNotMAD},
		{"pad", v.BTH + 1, 0x10, ErrNotMAD},
		{"base version", mad, 2, ErrNotCM}, {"class", mad + 1, 3, ErrNotCM}, {"class version", mad + 2, 1, ErrNotCM},
		{"method", mad + 3, 1, ErrNotCM}, {"status", mad + 4, 1, ErrNotCM}, {"status", mad + 5, 1, ErrNotCM},
		{"attribute", mad + 17, 0x0F, ErrAttribute}, {"no attribute", mad + 17, 0x1B, ErrAttribute},
	} {
		broken := bytes.Clone(frame)
		broken[c.offset] = c.value
		if _, err := Decode(broken); err != ErrICRC && err != ErrNotMAD {
			t.Errorf("%s, ICRC of the frame before: %v", c.name, err)
		}
		if broken, _ = roce.AppendICRC(broken[:len(broken)-4]); c.want != nil {
			if _, err := Decode(broken); err != c.want {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
	}
	if _, err := Decode(rej); err != ErrLength {
		t.Errorf("73 bytes of information in 72: %v", err)
	}
	for n := range frame {
		if _, err := Decode(frame[:n]); err != ErrNotMAD {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestIPHeader(t *testing.T) {
	for _, h := range []IPHeader{
		{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.100"), 0x1234},
		{netip.MustParseAddr("fd77::1"), netip.MustParseAddr("fd77::100"), 0x1234},
	} {
		b := [92]byte(bytes.Repeat([]byte{0xEE}, 92))
		h.Put(&b)
		var got IPHeader
		if !got.Decode(&b) || got != h || b[36] != 0xEE || b[35] == 0xEE || b[1]&0x0F != 0 {
			t.Errorf("%+v became %+v in %x", h, got, b)
		}
		for _, broken := range []func(){func() { b[0] = 1 }, func() { b[0], b[1] = 0, 0x50 }} {
			if broken(); got.Decode(&b) {
				t.Errorf("accepted %x", b[:2])
			}
		}
	}
}

func TestNames(t *testing.T) {
	got := fmt.Sprint(AttrREQ, AttrDREP, AttrAPR, Attribute(0x1B), Attribute(0xF))
	for r := range Reason(30) {
		if _, known := reasonNames[r]; known {
			got += fmt.Sprintf(", %d %v", uint16(r), r)
		}
	}
	got += fmt.Sprintf(", %v", Reason(99))
	if want := "REQ DREP APR attribute 0x1b attribute 0xf, 3 no resources, 4 timeout, 6 invalid comm ID, 8 invalid service ID, 9 invalid transport, " +
		"10 stale connection, 12 invalid GID, 26 invalid path MTU, 28 consumer defined, reason 99"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Whatever a stranger sends is refused, or written back to a frame that reads the same.
func FuzzDecode(f *testing.F) {
	for _, capture := range []string{"rping", "write_R"} {
		frames, _ := captured(f, capture)
		for _, frame := range frames {
			f.Add(frame[len(frame)-4-MADBytes : len(frame)-4])
		}
	}
	frames, _ := captured(f, "rping")
	f.Fuzz(func(t *testing.T, mad []byte) {
		if _, err := Decode(mad); err == nil && len(mad) < TransportBytes { // as a frame of its own
			t.Fatal("accepted a short frame")
		}
		if len(mad) != MADBytes {
			return
		}
		m, err := DecodeMAD((*[MADBytes]byte)(mad))
		if err != nil {
			return
		}
		if again, err := Decode(write(t, frames[0], &m)); err != nil || again.Header != m.Header || show(again) != show(m) {
			t.Fatalf("%v\n%s became\n%s", err, show(m), show(again))
		}
	})
}
