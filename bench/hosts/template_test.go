package hosts

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/roce"
)

// Frames made from the template are those that the workload builds from nothing.
func TestTemplate(t *testing.T) {
	for _, payload := range []int{4, 64, 1024, 4096} {
		w := testWorkload(payload)
		tmpl, err := newTemplate(w)
		if err != nil {
			t.Fatal(err)
		}
		frame := append([]byte(nil), tmpl.blank...)
		cut := min(len(frame), 3840)
		fragments := [][]byte{frame[:cut]}
		if cut < len(frame) {
			fragments = append(fragments, frame[cut:])
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			p := workload.Packet{Group: random.IntN(workload.MaxGroups), K: random.Uint32(), AckReq: random.IntN(2) == 0}
			tmpl.write(fragments, p)
			if want := w.Sent(p); !bytes.Equal(frame, want) {
				t.Fatalf("payload %d, %+v:\n got %x\nwant %x", payload, p, frame[:80], want[:80])
			}
		}
	}
}

func testWorkload(payload int) *workload.Workload {
	w := &workload.Workload{Payload: payload, Receivers: 3, Groups: workload.MaxGroups}
	for i := range byte(4) {
		w.HostMACs = append(w.HostMACs, roce.MAC{2, 0, 0, 0, 1, i})
		w.PortMACs = append(w.PortMACs, roce.MAC{2, 0, 0, 0, 2, i})
	}
	return w
}
