package afxdp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/roce"
)

// A capture begins in the middle of a transfer that the kernel carries: the packets come to user
// space, and the capture has them with their copies. After the capture the kernel carries packets
// again.
func TestACaptureOfAGroupThatTheKernelCarries(t *testing.T) {
	s := kernelLab(t).addGroup(t, groupOptions{memory: streamBytes}).flow(t)
	s.inFlight()
	c, err := s.lab.sw.Capture(dataplane.CaptureConfig{
		One: true, Group: s.ID, Kinds: dataplane.CaptureAll, Snap: dataplane.SnapLeast,
	})
	check(t, err)
	defer c.Close()
	if e := s.engine(t); e.Kernel || !strings.Contains(e.Reason, "rocast capture") {
		t.Errorf("%+v", e)
	}
	carried := s.engine(t).Carried
	seen := map[string]int{}
	var next roce.PSN // of the source
	s.lab.eventually(t, "packets are captured", func() bool {
		over := s.over()
		c.Read(func(f *dataplane.Captured) {
			var v roce.View
			check(t, v.Decode(f.Bytes, f.Length))
			seen[fmt.Sprintf("port %d %s %s", f.Port, f.Verdict(), f.Why())]++
			if f.Fate == dataplane.Received && v.Opcode.IsRequest() {
				if psn := v.PSN(f.Bytes); next != 0 && psn != next && c.Lost() == 0 && f.Why() == "forwarded" {
					t.Errorf("packet %d behind %d", psn, next.Prev())
				}
				next = v.PSN(f.Bytes).Next()
			}
		})
		enough := seen["port 0 forward forwarded"] > 100 && seen["port 0 send reply"] > 0
		if over && !enough {
			s.inFlight()
		}
		return enough
	})
	if n := s.engine(t).Carried; n != carried {
		t.Errorf("the kernel carried %d packets past the capture", n-carried)
	}
	for port := 1; port <= len(s.receivers); port++ {
		got := seen[fmt.Sprintf("port %d send copy", port)] + seen[fmt.Sprintf("port %d drop tx-lost", port)]
		if want := seen["port 0 forward forwarded"]; c.Lost() == 0 && got < want {
			t.Errorf("%d of %d copies by port %d", got, want, port)
		}
	}
	s.ends()
	s.hold(s.receivers...)
	c.Close()
	s = s.flow(t) // until the kernel carries packets
	s.ends()
	s.hold(s.receivers...)
}
