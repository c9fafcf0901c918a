//go:build softroce

package softroce

import (
	"path"
	"strings"
	"testing"
	"time"
)

// TestEdgePackage installs the package of hosts with an edge into a Debian that has just booted.
// The service attaches the program before a box answers. An upgrade keeps it, and a removal leaves
// the host as it was.
func TestEdgePackage(t *testing.T) {
	deb := makeDebOf(t, "rocast-edge", "v1.0.0")
	l := openLab(t, Config{Kernel: "6.1", Guests: 1, MTU: MTU1024, System: "bookworm"})
	b, ctx := l.Box.(*System), testContext(t, systemLimit)
	b.copyIn(t, ctx, deb)
	install := "dpkg -i /root/" + path.Base(deb)
	b.sh(t, ctx, install)
	if state, _ := b.shell(ctx, "systemctl show --value -p UnitFileState -p ActiveState rocast-edge"); strings.Join(strings.Fields(state), " ") != "inactive disabled" {
		t.Errorf("after the installation the service is %q", state)
	}
	b.sh(t, ctx, "ip link set eth1 up && ip addr add 10.99.0.2/24 dev eth1")
	before := b.sh(t, ctx, "ip -d link show dev eth1; tc qdisc show dev eth1")
	b.sh(t, ctx, `echo 'ROCAST_EDGE="--box 10.99.0.9:7472"' >/etc/rocast/edge.conf && systemctl enable --now rocast-edge`)
	attached := func(when string) {
		t.Helper()
		var status string
		for end := time.Now().Add(stepLimit); time.Now().Before(end); {
			status = b.sh(t, ctx, "rocast-edge status; systemctl show --value -p ActiveState rocast-edge")
			if strings.HasPrefix(status, "eth1  xdp ") && strings.HasSuffix(status, "\nactive") {
				t.Logf("%s:\n%s", when, status)
				return
			}
		}
		log, _ := b.shell(ctx, "journalctl -u rocast-edge -n 20 --no-pager")
		t.Fatalf("%s: %s\n%s", when, status, log)
	}
	attached("started")
	b.sh(t, ctx, "systemctl kill -s KILL rocast-edge")
	attached("killed")
	b.sh(t, ctx, install)
	if text := b.sh(t, ctx, "cat /etc/rocast/edge.conf"); !strings.Contains(text, "10.99.0.9") {
		t.Errorf("after an upgrade the config is %q", text)
	}
	attached("upgraded")
	b.sh(t, ctx, "dpkg -r rocast-edge")
	if after := b.sh(t, ctx, "ip -d link show dev eth1; tc qdisc show dev eth1"); after != before {
		t.Errorf("the interface was\n%s\nand is\n%s", before, after)
	}
	if left := b.sh(t, ctx, "find /sys/fs/bpf /usr/sbin -name rocast-edge"); left != "" {
		t.Errorf("left are %q", left)
	}
}
