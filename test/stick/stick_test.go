package stick

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/etcd"
)

// A box has one port, on a switch that it does not own. It answers ARP for the group's IP; the
// source's packets come in and the copies go out by that port, with both engines.
func TestABoxOnAStick(t *testing.T) {
	for engine, repair := range map[string]string{"auto": "local", "afxdp": "off"} {
		t.Run(engine, func(t *testing.T) {
			l := newLab(t, 1)
			b := l.boxes[0]
			l.start(b, "engine: "+engine+"\n")
			l.create(b, l.GroupIP(), 2<<20, "repair: "+repair)
			l.write(nil)
			if neigh := l.Hosts[0].NS.MustRun(t, "ip neigh"); !strings.Contains(neigh, fmt.Sprintf("%v dev eth0 lladdr %v", l.GroupIP(), b.port.MAC)) {
				t.Errorf("the source's neighbours:\n%s", neigh)
			}
			if engine != "auto" {
				return
			}
			testlab.Eventually(t, patience, "the kernel carries packets", func() bool {
				if b.Group(t, l.group.Name).Engine.Carried > 0 {
					return true
				}
				l.write(nil)
				return false
			}, func() string { return b.Group(t, l.group.Name).Engine.Reason })
		})
	}
}

// virtualIP is the address of a virtual router.
var virtualIP = netip.MustParseAddr("10.77.3.200")

// The daemon of a box is killed in the middle of a transfer, and the address and MAC of the group
// go to a box that stands by. No host changes anything: the queue pairs live within their retries.
// etcd's lease for the first box is much longer than that. Then the address comes back.
func TestAnotherBoxTakesOverWithAddressAndMAC(t *testing.T) {
	for _, engine := range []string{"auto", "afxdp"} {
		t.Run(engine, func(t *testing.T) {
			cluster := etcd.Start(t, 1)
			l := newLab(t, 2)
			ca, err := certs.NewAuthority(t.TempDir())
			testlab.Must(t, err)
			first, second := l.boxes[0], l.boxes[1]
			for i, b := range l.boxes {
				testlab.Must(t, bed.RouteVirtually(b.ns))
				if b == first {
					testlab.Must(t, bed.Hold(b.ns, virtualIP))
				}
				l.start(b, "engine: "+engine+"\n"+cluster.Lines(t, b.ns, ca, fmt.Sprintf("box%d", i+1)))
			}
			l.create(first, virtualIP, 8<<20, "addressing: switch-ip\nrepair: local")
			l.write(nil)
			outage := l.write(func() {
				testlab.Must(t, first.Kill())
				testlab.Must(t, bed.Drop(first.ns, virtualIP))
				testlab.Must(t, bed.Hold(second.ns, virtualIP))
			})
			t.Logf("killed: no progress for %v", outage.Round(time.Millisecond))
			first.StartFor(t, first.ns)
			outage = l.write(func() {
				testlab.Must(t, bed.Drop(second.ns, virtualIP))
				testlab.Must(t, bed.Hold(first.ns, virtualIP))
			})
			t.Logf("moved back: no progress for %v", outage.Round(time.Millisecond))
			testlab.Eventually(t, patience, "the second box stands by", func() bool {
				g, err := second.Client().Group(t.Context(), l.group.Name)
				return err != nil || g.Root != ""
			}, l.group.State)
		})
	}
}
