package dataplane_test

import (
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// With a quorum the source hears of at most half of what is retained more than a slow receiver has.
// Packets count as full ones there, whatever their size: what the memory keeps of small ones does
// not count.
func TestHowFarASourceRunsAheadOfASlowReceiver(t *testing.T) {
	const slow = 3
	for name, c := range map[string]struct{ mtu, window, bytes, want int }{
		"repair-window bounds it":                      {1024, 16, 0, 8},
		"repair-bytes bounds it":                       {1024, 64, 16 * mft.BufferBytes, 8},
		"repair-bytes bounds it, with a long path MTU": {4096, 64, 16 * mft.BufferBytes, 4},
		"both are the same":                            {4096, 8, 16 * mft.BufferBytes, 4},
		"repair-bytes keeps more than the window":      {1024, 16, 64 * mft.BufferBytes, 8},
		"one packet fits":                              {4096, 64, 2 * mft.BufferBytes, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := group()
			g.PathMTU = c.mtu
			g.Policy = feedback.Policy{Ack: 2, Repair: feedback.RepairLocal, RepairWindow: c.window, RepairBytes: c.bytes}
			now := feedback.Tick(time.Second)
			net := porttest.NewRetaining(4, 128, nil, func() feedback.Tick { return now })
			if _, err := net.Switch.Add(g); err != nil {
				t.Fatal(err)
			}
			heard := -1
			for n := range c.window + 8 {
				now += feedback.Tick(time.Microsecond)
				net.Ports[0].Put(write(roce.PSN(firstPSN).Add(int32(n)), []byte("small")).frame(t))
				net.Poll()
				for i := range g.Paths {
					if p := &g.Paths[i]; i+1 != slow || n == 0 {
						net.Ports[p.Port].Put(ack(p.Dst, p.FirstPSN.Add(int32(n)), roce.SyndromeUnlimited).frame(t))
						net.Poll()
					}
				}
				for _, f := range net.Ports[0].Take() {
					heard = max(heard, int(roce.PSN(decode(t, f).PSN).Sub(firstPSN)))
				}
				if n >= heard+2 && n > 1 {
					break // the source has no more on its way
				}
			}
			if heard != c.want {
				t.Errorf("it hears of %d packets more than the slow one has, want %d", heard, c.want)
			}
		})
	}
}
