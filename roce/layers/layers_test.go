package layers

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	golayers "github.com/gopacket/gopacket/layers"

	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/roce/captures"
)

func decode(frame []byte) gopacket.Packet {
	return gopacket.NewPacket(frame, golayers.LayerTypeEthernet, gopacket.Default)
}

// stack names the layers of a packet behind UDP.
func stack(p gopacket.Packet) string {
	var names []string
	for _, l := range p.Layers() {
		names = append(names, l.LayerType().String())
	}
	_, roce, _ := strings.Cut(strings.Join(names, " "), "UDP ")
	return roce
}

func captured(t *testing.T, name string, index int) []byte {
	t.Helper()
	frames, err := captures.Frames(name)
	if err != nil {
		t.Fatal(err)
	}
	return frames[index].Data
}

// built is a frame of one opcode with five bytes of payload.
func built(t *testing.T, o roce.Opcode) []byte {
	t.Helper()
	ip := roce.IPUDP{Src: netip.MustParseAddr("10.77.0.1"), Dst: netip.MustParseAddr("10.77.0.2"), HopLimit: 64}
	bth := roce.BTH{Opcode: o, PadCount: 3, PKey: roce.DefaultPKey, DestQPN: 7, PSN: 9}
	b := roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, 1}, roce.MAC{2, 0, 0, 0, 0, 2}, ip.EtherType())
	b = bth.Append(ip.Append(b, roce.BTHBytes+o.ExtBytes()+8))
	b = append(b, make([]byte, o.ExtBytes()+8)...)
	b, err := roce.AppendICRC(b)
	if err != nil && !errors.Is(err, roce.ErrOpcode) {
		t.Fatal(err)
	}
	return b
}

func TestTraceOfCapturedFrames(t *testing.T) {
	for _, c := range []struct {
		capture string
		index   int
		want    []string
	}{
		{"m_writeimm", 5, []string{
			"Opcode=WRITE_LAST_IMM", "DestQPN=108 AckReq=true PSN=22311", "ImmDt", "Data=1", "952 byte(s)", "Value=0x8519e3aa"}},
		{"m_rnr", 6, []string{"Opcode=ACK", "Syndrome=RNR NAK 1.28ms MSN=0", "Value=0x7ddca58f"}},
		{"m_zero", 0, []string{"Opcode=WRITE_ONLY", "VA=0x7fb4025c2000 RKey=hidden DMABytes=0", "Value=0xa5af5790"}},
		{"rping", 0, []string{"Opcode=UD_SEND_ONLY", "QKey=2147549184 SrcQPN=1", "256 byte(s)"}},
		{"atomic", 2, []string{"Opcode=FETCH_ADD", "VA=0x7f1e452f0008 RKey=hidden SwapAdd=0x1 Compare=0x0", "ICRC"}},
		{"atomic", 3, []string{"Opcode=ATOMIC_ACK", "Syndrome=ACK", "MSN=2", "AtomicAckETH", "Original=0"}},
		{"ipv6", 10, []string{"IPv6", "Opcode=WRITE_LAST_IMM", "Data=16909060", "1 byte(s)", "Pad=[0, 0, 0]"}},
		{"m_odd", 1, []string{"PadCount=3", "1 byte(s)", "Pad=[0, 0, 0]"}},
	} {
		text := decode(captured(t, c.capture, c.index)).String()
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s frame %d does not print %q:\n%s", c.capture, c.index, want, text)
			}
		}
	}
}

func TestStacks(t *testing.T) {
	for o, want := range map[roce.Opcode]string{
		roce.OpSendMiddle:    "BTH Payload ICRC",
		roce.OpWriteOnlyImm:  "BTH RETH ImmDt Payload ICRC",
		roce.OpSendLastInv:   "BTH IETH Payload ICRC",
		roce.OpReadRespFirst: "BTH AETH Payload ICRC",
		roce.OpAtomicAck:     "BTH AETH AtomicAckETH Payload ICRC",
		roce.OpCmpSwap:       "BTH AtomicETH Payload ICRC",
		roce.OpFlush:         "BTH FETH RETH Payload ICRC",
		roce.OpUDSendOnlyImm: "BTH DETH ImmDt Payload ICRC",
		roce.OpCNP:           "BTH CNP Payload ICRC",
		0x15:                 "BTH Payload ICRC", // unknown: what it carries is anyone's guess
	} {
		frame := built(t, o)
		if got := stack(decode(frame)); got != want {
			t.Errorf("%v: %s, want %s", o, got, want)
		}
		lazy := gopacket.NewPacket(frame, golayers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
		if got := stack(lazy); got != want {
			t.Errorf("%v, lazily: %s, want %s", o, got, want)
		}
	}
}

// gopacket and roce.View see the same in every captured frame.
func TestEveryCapturedFrame(t *testing.T) {
	for _, name := range captures.Names() {
		frames, err := captures.Frames(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, frame := range frames {
			var v roce.View
			if v.Decode(frame.Data, len(frame.Data)) != nil {
				continue
			}
			if err := sameAsView(decode(frame.Data), &v, frame.Data); err != nil {
				t.Errorf("%s frame %d: %v", name, i, err)
			}
		}
	}
}

func sameAsView(p gopacket.Packet, v *roce.View, frame []byte) error {
	if failure := p.ErrorLayer(); failure != nil {
		return failure.Error()
	}
	bth, ok := p.Layer(LayerTypeBTH).(*BTH)
	if !ok || bth.Opcode != v.Opcode || bth.PSN != v.PSN(frame) || bth.DestQPN != v.DestQPN(frame) {
		return fmt.Errorf("BTH %+v", bth)
	}
	icrc, ok := p.Layer(LayerTypeICRC).(*ICRC)
	if !ok || uint32(icrc.Value) != v.StoredICRC([][]byte{frame}) || len(icrc.Pad) != int(v.PadCount) {
		return fmt.Errorf("ICRC %+v", icrc)
	}
	var payload []byte
	if app := p.ApplicationLayer(); app != nil {
		payload = app.Payload()
	}
	if !slices.Equal(payload, frame[v.Payload:v.Payload+v.PayloadBytes]) {
		return fmt.Errorf("payload of %d bytes, want %d", len(payload), v.PayloadBytes)
	}
	return nil
}

// A capture with a small snap length has lost the ICRC, and does not take the last bytes it has for one.
func TestSnappedFrame(t *testing.T) {
	frame := captured(t, "m_writeimm", 5)
	for n, want := range map[int]string{
		len(frame) - 1: "BTH ImmDt Payload",
		100:            "BTH ImmDt Payload",
		58:             "BTH ImmDt",
		57:             "BTH DecodeFailure",
		43:             "DecodeFailure",
	} {
		p := decode(frame[:n])
		if got := stack(p); got != want || !p.Metadata().Truncated {
			t.Errorf("%d of %d bytes: %s, truncated %v, want %s", n, len(frame), got, p.Metadata().Truncated, want)
		}
	}
}

func TestPadBeyondThePacket(t *testing.T) {
	frame := captured(t, "m_zero", 1)
	frame[43] |= 0x30
	if got := stack(decode(frame)); got != "BTH AETH DecodeFailure" {
		t.Error(got)
	}
}

// BenchmarkPacket is why this package stays out of the data path: hold it against roce's BenchmarkViewDecode.
func BenchmarkPacket(b *testing.B) {
	frames, err := captures.Frames("m_writeimm")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		decode(frames[0].Data)
	}
}
