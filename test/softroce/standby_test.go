//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab/etcd"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
)

// The address and the MAC that go from box to box, as keepalived moves them with use_vmac.
const (
	virtualMAC  = "00:00:5e:00:01:33"
	virtualName = "vrrp51"
)

var virtualAddr = netip.MustParseAddr("10.77.0.200")

// TestStandby plays stories on Soft-RoCE hosts at a switch with two boxes, each with one port. The
// second box stands by for the first.
func TestStandby(t *testing.T) {
	s := openStandby(t, buildRocast(t, testContext(t, 5*time.Minute)))
	t.Log("\n" + s.play(t, "6.12", story{"another box takes over", true, storyTakeOver}))
}

// openStandby is a stage whose lab box is only a switch. rocast is the first box, spine the second.
func openStandby(t *testing.T, bin string) *stage {
	t.Helper()
	l := openLab(t, Config{Kernel: "6.12", Guests: 4, MTU: MTU1024})
	n, cluster, at := &neighbours{t: t, bin: bin}, etcd.Start(t, 1), l.Box.(*Namespace)
	var daemons []*rocast
	for i, name := range []string{"first", "second"} {
		b, _ := n.stick(at, name, fmt.Sprint("10.77.0.", 252-i), MTU1024)
		must(t, b.NS.Sysctl("net.ipv4.conf.eth1.arp_ignore", "1"))
		ip(t, b.NS, "link add link eth1 name "+virtualName+" address "+virtualMAC+" type macvlan mode private")
		must(t, b.NS.Sysctl("net.ipv4.conf."+virtualName+".arp_notify", "1"))
		if i == 0 {
			holdVirtual(t, b.NS)
		}
		b.more = fmt.Sprintf("store: etcd\netcd: {endpoints: [%q], lease: 60s}\n", cluster.Reach(t, b.NS))
		daemons = append(daemons, n.start(b))
		t.Cleanup(func() { _, _ = b.NS.Exec("ip", "link", "del", virtualName) }) // before the daemon stops
	}
	return &stage{Lab: l, judge: newJudge(l), rocast: daemons[0], spine: daemons[1]}
}

func holdVirtual(t *testing.T, ns *netns.NS) {
	t.Helper()
	ip(t, ns, fmt.Sprintf("address add %v/32 dev %s", virtualAddr, virtualName))
	ip(t, ns, "link set "+virtualName+" up")
}

// storyTakeOver kills the first box's daemon in the middle of a transfer, and moves address and MAC
// to the second box. No host does anything.
func storyTakeOver(t *testing.T, ctx context.Context, s *stage) string {
	spec := ordinary()
	spec.bytes, spec.addressing, spec.ip = longBytes, mft.BySwitchIP, virtualAddr
	g := s.addGroup(t, ctx, spec)
	transfer := g.transfer("write", messageBytes, longMessages)
	must(t, g.from.StartTransfer(transfer))
	s.reaches(t, ctx, g, 1000)
	first, second := s.rocast, s.spine
	began := time.Now()
	must(t, first.Kill())
	ip(t, first.site.(inNamespaceOf).box.NS, "link set "+virtualName+" down")
	ip(t, first.site.(inNamespaceOf).box.NS, fmt.Sprintf("address del %v/32 dev %s", virtualAddr, virtualName))
	holdVirtual(t, second.site.(inNamespaceOf).box.NS)
	sent, _ := s.tally(g)
	if sent == longBytes/g.pathMTU {
		t.Error("the source was done before the daemon was killed")
	}
	s.reaches(t, ctx, g, int32(sent))
	outage := time.Since(began)
	s.rocast, s.spine = second, first
	must(t, first.Start(ctx)) // it stands by
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, longBytes)
	return fmt.Sprintf("SIGKILL, new packets reach the receivers %v later: all messages done, hashes equal, QPs live", outage.Round(time.Millisecond))
}
