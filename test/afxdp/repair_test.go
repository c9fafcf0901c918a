package afxdp

import (
	"testing"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/mft"
)

// The link of one receiver loses every 50th packet, in both directions. The box repairs that: the
// receivers have all data, and the source hears no NAK.
func TestLossOnOneLinkIsRepairedAtTheBox(t *testing.T) {
	for name, c := range map[string]struct {
		mtu, pathMTU int
		fanOut, ipv6 bool
	}{
		"one chunk a packet":           {mtu: 1500, pathMTU: 1024},
		"two chunks a packet":          {mtu: 5000, pathMTU: 4096},
		"the kernel carries and keeps": {mtu: 1500, pathMTU: 1024, fanOut: true},
		"IPv6":                         {mtu: 1500, pathMTU: 1024, ipv6: true},
		"IPv6, the kernel carries":     {mtu: 1500, pathMTU: 1024, fanOut: true, ipv6: true},
	} {
		t.Run(name, func(t *testing.T) {
			const lossyHost, perMillion = 2, 20_000
			l := newLab(t, labOptions{Options: bed.Options{Hosts: 4, MTU: c.mtu, IPv6: c.ipv6}, repair: 8 << 20, fanOut: c.fanOut})
			g := l.addGroup(t, groupOptions{memory: 4 << 20, pathMTU: c.pathMTU, edit: func(g *mft.Group) {
				g.Policy.Repair = feedback.RepairLocal
			}})
			if c.fanOut { // where packets are lost the kernel may never see enough plain ones in a row
				g.holds(t, g.write(t, 256<<10))
				for _, r := range g.receivers {
					r.rnic.Freeze(func() { clear(r.memory) })
				}
			}
			link, err := lossy.Attach(l.Hosts[lossyHost].End, 1, perMillion)
			check(t, err)
			t.Cleanup(func() { check(t, link.Close()) })
			g.holds(t, g.write(t, 256<<10))
			// The source is told of no loss. On a busy machine the source or a receiver may
			// pause, so that the source is called back or repair gives up, or the link to the
			// box overflows.
			source, causes := l.Hosts[0].RNIC.Counters(), uint64(0)
			for _, name := range []string{"nak-receiver", "nak-not-ready", "nak-gap", "nak-silent-source", "nak-unheard"} {
				causes += counter(t, l.sw, name)
			}
			if n := source.Get(rnic.NAKSequenceReceived) + source.Get(rnic.RNRNAKsReceived); n > causes {
				t.Errorf("the source has heard %d NAKs, and %d have a cause: %v", n, causes, source.ByName())
			}
			if e := g.engine(t); (e.Carried > 0) != c.fanOut {
				t.Errorf("%+v", e)
			}
			in, out, err := link.Lost()
			check(t, err)
			if repaired := counter(t, l.sw, "repair-sent"); in == 0 || out == 0 || repaired < in {
				t.Errorf("%d packets were lost on their way to the receiver and %d from it, and %d were sent again", in, out, repaired)
			}
		})
	}
}
