package stick

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
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
			b.start("engine: " + engine + "\n")
			l.create(b, l.GroupIP(), 2<<20, "repair: "+repair)
			l.write(1, nil)
			if neigh := run(t, l.Hosts[0].NS, "ip", "neigh"); !strings.Contains(neigh, fmt.Sprintf("%v dev eth0 lladdr %v", l.GroupIP(), b.port.MAC)) {
				t.Errorf("the source's neighbours:\n%s", neigh)
			}
			if engine != "auto" {
				return
			}
			testlab.Eventually(t, patience, "the kernel carries packets", func() bool {
				if b.group().Engine.Carried > 0 {
					return true
				}
				l.write(2, nil)
				return false
			}, func() string { return b.group().Engine.Reason })
		})
	}
}

// The address and the MAC of a virtual router, as keepalived makes one with use_vmac.
const (
	virtualMAC  = "00:00:5e:00:01:33"
	virtualName = "vrrp51"
)

var virtualIP = netip.MustParseAddr("10.77.3.200")

// routeVirtually makes the interface of the virtual router, which is down.
func (b *box) routeVirtually() {
	b.t.Helper()
	testlab.Must(b.t, b.ns.Sysctl("net.ipv4.conf.eth1.arp_ignore", "1")) // the address has the virtual MAC only
	run(b.t, b.ns, "ip", "link", "add", "link", "eth1", "name", virtualName, "address", virtualMAC, "type", "macvlan", "mode", "private")
	testlab.Must(b.t, b.ns.Sysctl("net.ipv4.conf."+virtualName+".arp_notify", "1")) // say so to the switch when it comes up
}

// hold gives the address and the MAC to the box.
func (b *box) hold() {
	b.t.Helper()
	run(b.t, b.ns, "ip", "address", "add", virtualIP.String()+"/32", "dev", virtualName)
	run(b.t, b.ns, "ip", "link", "set", virtualName, "up")
}

// drop takes them away.
func (b *box) drop() {
	b.t.Helper()
	run(b.t, b.ns, "ip", "link", "set", virtualName, "down")
	run(b.t, b.ns, "ip", "address", "del", virtualIP.String()+"/32", "dev", virtualName)
}

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
			config := make([]string, 2)
			for i, b := range l.boxes {
				b.routeVirtually()
				cert, key, err := ca.Issue(t.TempDir(), time.Now().Add(certs.Lifetime), fmt.Sprintf("box%d", i+1))
				testlab.Must(t, err)
				config[i] = fmt.Sprintf("engine: %s\nstore: etcd\netcd: {endpoints: [\"%s\"], lease: 60s}\n"+
					"api: {listen: 0.0.0.0:7471, cert: %s, key: %s, ca: %s}\n", engine, cluster.Reach(t, b.ns), cert, key, ca.Path)
			}
			first, second := l.boxes[0], l.boxes[1]
			first.hold()
			for i, b := range l.boxes {
				b.start(config[i])
			}
			l.create(first, virtualIP, 8<<20, "addressing: switch-ip\nrepair: local")
			l.write(1, nil)
			outage := l.write(2, func() {
				testlab.Must(t, first.daemon.Kill())
				first.drop()
				second.hold()
			})
			t.Logf("killed: no progress for %v", outage.Round(time.Millisecond))
			first.daemon.StartFor(t, first.ns)
			outage = l.write(3, func() {
				second.drop()
				first.hold()
			})
			t.Logf("moved back: no progress for %v", outage.Round(time.Millisecond))
			testlab.Eventually(t, patience, "the second box stands by", func() bool {
				g, err := second.client().Group(t.Context(), groupName)
				return err != nil || g.Root != ""
			}, l.text)
		})
	}
}
