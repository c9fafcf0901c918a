package hosts

import (
	"testing"

	"github.com/rocast/rocast/bench/workload"
)

// Every bit of a copy matters.
func TestCompareNoticesEveryBit(t *testing.T) {
	w := testWorkload(64)
	p := workload.Packet{Group: 5, K: 300, AckReq: true}
	for _, level := range []workload.Rewriting{workload.Nothing, workload.All} {
		if level == workload.Nothing {
			p.Group = 0
		}
		good := w.Expected(level, p, 1)
		if err := compare(w, level, 1, good); err != nil {
			t.Fatalf("%v: the right copy: %v", level, err)
		}
		for bit := range 8 * len(good) {
			bad := append([]byte(nil), good...)
			bad[bit/8] ^= 1 << (bit % 8)
			if compare(w, level, 1, bad) == nil {
				t.Errorf("%v: bit %d of byte %d is not looked at", level, bit%8, bit/8)
			}
		}
		for _, bad := range [][]byte{nil, good[:20], good[:len(good)-1], append(good[:len(good):len(good)], 0)} {
			if compare(w, level, 1, bad) == nil {
				t.Errorf("%v: %d of %d bytes are taken", level, len(bad), len(good))
			}
		}
	}
	if compare(w, workload.All, 2, w.Expected(workload.All, workload.Packet{}, 1)) == nil {
		t.Error("a copy for another receiver is taken")
	}
}

// A forwarder that leaves the ICRC alone is still held to the rest.
func TestCompareWithoutICRC(t *testing.T) {
	w := testWorkload(64)
	for _, level := range []workload.Rewriting{workload.Addresses, workload.Headers} {
		good := w.Expected(level, workload.Packet{}, 1)
		good[len(good)-1] ^= 1
		if err := compare(w, level, 1, good); err != nil {
			t.Errorf("%v: another ICRC: %v", level, err)
		}
		for _, at := range []int{0, 6, workload.OffSrcIP, workload.OffDstIP, workload.OffChecksum, workload.OffVA, workload.OffRKey, workload.HeaderBytes} {
			bad := append([]byte(nil), good...)
			bad[at] ^= 1
			if compare(w, level, 1, bad) == nil {
				t.Errorf("%v: byte %d is not looked at", level, at)
			}
		}
	}
}
