package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// roamer is a site with a host that can be plugged into any of the boxes: between the host and a
// port of each box is a switch.
type roamer struct {
	*site
	plugs *netns.NS
	host  hostOf
	at    int // the box
}

func newRoamer(t *testing.T) *roamer {
	t.Helper()
	testlab.NeedRoot(t)
	r := &roamer{plugs: netns.New(t)}
	r.site = newSiteOf(t, fabric.Bridge, false, 1, func(s *site) {
		r.site = s
		for i, b := range s.lab.Boxes { // the port of the last host leads to the switch
			port := fmt.Sprintf("eth%d", len(b.Hosts))
			b.Box.MustRun(r.t, "ip link set %s netns %s name host%d", port, r.plugs.Name(), i)
			_, _, err := netns.CreateVeth(b.Box, port, r.plugs, fmt.Sprintf("box%d", i), netns.VethOptions{})
			testlab.Must(t, err)
			b.Box.MustRun(r.t, "ip link set %s master %s", port, bed.Bridge)
		}
		r.plugs.MustRun(r.t, "ip link add br0 type bridge")
		for _, name := range []string{"host0", "box0", "box1", "box2"} {
			r.plugs.MustRun(r.t, "ip link set %s master br0", name)
			r.plugs.MustRun(r.t, "ethtool -K %s gro on", name)
		}
		for _, name := range []string{"br0", "host0", "box0"} {
			r.plugs.MustRun(r.t, "ip link set %s up", name)
		}
		for _, name := range []string{"box1", "box2"} {
			r.plugs.MustRun(r.t, "ip link set %s down", name)
		}
	})
	r.host = r.site.host(0, len(r.lab.Boxes[0].Hosts)-1)
	return r
}

// plug moves the cable of the host to another box, and tells the boxes the way there.
func (r *roamer) plug(box int) {
	r.t.Helper()
	r.plugs.MustRun(r.t, "ip link set box%d down", r.at)
	r.plugs.MustRun(r.t, "ip link set box%d up", box)
	r.at = box
	for i, b := range r.lab.Boxes {
		way := "dev " + bed.Bridge
		switch {
		case i < box:
			way = fmt.Sprintf("via %v", r.lab.Links[i].Ends[1].IP)
		case i > box:
			way = fmt.Sprintf("via %v", r.lab.Links[i-1].Ends[0].IP)
		}
		b.Box.MustRun(r.t, "ip route replace %v/32 %s", r.host.IP, way)
	}
}

// A receiver's cable moves in the middle of a transfer to boxes that carry the group already: over
// two links, to the box between, and back to the root. The receiver joined later. All receivers get
// all data, and no queue pair ends.
func TestAReceiverMovesToABoxThatCarriesTheGroup(t *testing.T) {
	r := newRoamer(t)
	r.join(r.site.host(0, 1), r.site.host(1, 0), r.site.host(2, 0), r.site.host(2, 1))
	r.round()
	r.join(r.host)
	r.round()
	for _, box := range []int{2, 1, 0} {
		began := time.Now()
		r.roundWith(32, func() { r.plug(box) })
		t.Logf("to %s: the round took %v", r.set.Boxes[box].Name, time.Since(began).Round(time.Millisecond))
		testlab.Eventually(t, patience, "the receiver is at "+r.set.Boxes[box].Name, func() bool {
			for i, b := range r.set.Boxes {
				g, err := b.Client().Group(t.Context(), groupName)
				if err != nil || strings.Contains(fmt.Sprintf("%+v", g.Members), r.host.IP.String()) != (i == box) {
					return false
				}
			}
			return true
		}, r.state)
		r.round()
	}
}
