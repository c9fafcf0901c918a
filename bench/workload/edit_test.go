package workload

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/rocast/rocast/roce"
)

func testWorkload(payload, groups int) *Workload {
	w := &Workload{Payload: payload, Receivers: 3, Groups: groups}
	for i := range byte(4) {
		w.HostMACs = append(w.HostMACs, roce.MAC{2, 0, 0, 0, 1, i})
		w.PortMACs = append(w.PortMACs, roce.MAC{2, 0, 0, 0, 2, i})
	}
	return w
}

// A copy made by an Edit, as the C programs make it, is the one that is built from nothing.
func TestEditsMakeTheExpectedCopies(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, payload := range []int{4, 64, 1000, 4096} {
		w := testWorkload(payload, 50)
		edits, psn, va := w.Edits(), w.PSNTables(), w.VATables()
		for range 500 {
			p := Packet{Group: random.IntN(w.Groups), K: random.Uint32(), AckReq: random.IntN(2) == 0}
			r := random.IntN(w.Receivers)
			frame := w.Sent(p)
			apply(&edits[p.Group*w.Receivers+r], frame, &psn, &va)
			if want := w.Expected(All, p, r); !bytes.Equal(frame, want) {
				t.Fatalf("payload %d, %+v, receiver %d:\n got %x\nwant %x", payload, p, r, frame[:HeaderBytes], want[:HeaderBytes])
			}
		}
	}
}

// apply is what rewrite of the C forwarder does.
func apply(e *Edit, f []byte, psnTables *[3][256]uint32, vaTables *[8][256]uint32) {
	be := binary.BigEndian
	copy(f, e.L2[:])
	sum := uint32(^be.Uint16(f[OffChecksum:])) + uint32(e.Checksum)
	be.PutUint16(f[OffChecksum:], ^uint16(sum+sum>>16))
	f[OffTTL]--
	copy(f[OffSrcIP:], e.Src[:])
	copy(f[OffDstIP:], e.Dst[:])
	copy(f[OffDestQPN:], e.QPN[1:])
	was := be.Uint32(f[OffPSN-1:])
	psn := (was+e.PSN)&0xFFFFFF | was&0xFF000000
	be.PutUint32(f[OffPSN-1:], psn)
	wasVA := be.Uint64(f[OffVA:])
	va := wasVA + e.VA
	be.PutUint64(f[OffVA:], va)
	copy(f[OffRKey:], e.RKey[:])
	icrc := binary.LittleEndian.Uint32(f[len(f)-4:]) ^ e.ICRC
	for i := range psnTables {
		icrc ^= psnTables[i][byte((psn^was)>>(8*i))]
	}
	for i := range vaTables {
		icrc ^= vaTables[i][byte((va^wasVA)>>(8*i))]
	}
	binary.LittleEndian.PutUint32(f[len(f)-4:], icrc)
}

// What a forwarder leaves alone at each level is what the source sent.
func TestLevelsOfRewriting(t *testing.T) {
	w := testWorkload(64, 1)
	p := Packet{K: 7, AckReq: true}
	sent := w.Sent(p)
	if got := w.Expected(Nothing, p, 1); !bytes.Equal(got, sent) {
		t.Errorf("a copy without rewriting differs")
	}
	l3 := w.Expected(Addresses, p, 1)
	if bytes.Equal(l3[:OffDestQPN], sent[:OffDestQPN]) || !bytes.Equal(l3[OffDestQPN:len(l3)-4], sent[OffDestQPN:len(sent)-4]) {
		t.Errorf("a copy with other addresses differs behind them, or does not differ")
	}
	if got, want := w.Expected(Headers, p, 1), w.Expected(All, p, 1); !bytes.Equal(got[:len(got)-4], want[:len(want)-4]) {
		t.Errorf("a copy with other headers depends on the ICRC")
	}
	for _, f := range [][]byte{sent, l3, w.Expected(All, p, 2)} {
		var v roce.View
		if err := v.Decode(f, len(f)); err != nil || !v.ICRCValid([][]byte{f}) {
			t.Errorf("%x is not valid: %v", f, err)
		}
	}
}

func TestNamesAreDistinct(t *testing.T) {
	qpns := map[roce.QPN]bool{}
	for _, g := range []int{0, 1, MaxGroups - 1} {
		if got := GroupOf(binary.BigEndian.Uint32(GroupIP(g).AsSlice())); got != g {
			t.Errorf("group %d has the address of group %d", g, got)
		}
		if got := SourceGroup(SourceQPN(g)); got != g {
			t.Errorf("source of group %d has the QPN of group %d", g, got)
		}
		qpns[SourceQPN(g)] = true
		for r := range MaxReceivers {
			q := ReceiverQPN(g, r)
			if q > 0xFFFFFF || qpns[q] {
				t.Fatalf("group %d, receiver %d: QPN %#x is taken or too long", g, r, q)
			}
			qpns[q] = true
		}
	}
}

func TestChecksumDeltaCarries(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	words := func(n int, high bool) []byte {
		b := make([]byte, 2*n)
		for i := range b {
			b[i] = byte(random.Uint32())
			if high {
				b[i] |= 0xF0
			}
		}
		return b
	}
	for i := range 20_000 {
		was, is := words(5, i%2 == 0), words(5, i%3 == 0)
		sum := uint64(0)
		for k := 0; k < len(was); k += 2 {
			sum += 0xFFFF - uint64(binary.BigEndian.Uint16(was[k:])) + uint64(binary.BigEndian.Uint16(is[k:]))
		}
		if got := checksumDelta(was, is); uint64(got)%0xFFFF != sum%0xFFFF {
			t.Fatalf("%x to %x: got %#x, want %#x", was, is, got, sum%0xFFFF)
		}
	}
}
