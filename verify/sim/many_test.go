package sim

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/roce"
)

// With 64 and with 512 receivers all invariants hold, and with losses on every link every receiver
// gets everything.
func TestManyReceivers(t *testing.T) {
	testlab.Long(t)
	const seeds = uint64(8)
	for _, receivers := range []int{64, 512} {
		t.Run(fmt.Sprint(receivers), func(t *testing.T) {
			var r Runner
			for seed := range seeds {
				s := DrawReceivers(seed, receivers)
				if len(s.Hosts) != 1+receivers {
					t.Fatalf("%d hosts were drawn", len(s.Hosts))
				}
				if result := play(t, &r, s); result.Failure != nil {
					t.Errorf("seed %d: %v\nreplay: go run ./verify/sim/rocsim -receivers %d -replay %d", seed, result.Failure, receivers, seed)
				}
			}
			everyoneGetsEverything(t, &r, receivers)
		})
	}
}

func everyoneGetsEverything(t *testing.T, r *Runner, receivers int) {
	s := calm()
	s.Hosts[0].Messages = messages(8)
	one := s.Hosts[1]
	for len(s.Hosts) < 1+receivers {
		one.RecvPSN = roce.PSN(0xFFFFFF - 2*len(s.Hosts))
		s.Hosts = append(s.Hosts, one)
	}
	s.eachLink(func(l *Link) { l.Loss = 1e-2 })
	result := play(t, r, s)
	if result.Failure != nil || result.Status != rnic.Success {
		t.Fatal(result.Failure, result.Status)
	}
	for i := range r.w.hosts[1:] {
		if h := &r.w.hosts[1+i]; h.next[0] != 32 {
			t.Errorf("%v has %d packets of 32", h, h.next[0])
		}
	}
	if n := result.Tally[Loss]; n.Data == 0 || n.Feedback == 0 {
		t.Errorf("nothing was lost: %+v", n)
	}
}

// Each host has addresses of its own, which differ from those of the group and of the switch.
func TestHostsHaveTheirOwnAddresses(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		w := world{s: &Scenario{IPv6: v6}}
		ips := map[netip.Addr]bool{w.groupIP(): true}
		macs := map[roce.MAC]bool{switchMAC: true}
		names := map[string]bool{}
		for host := range 1 + MaxReceivers {
			ip, mac, name := w.address(host), hostMAC(host), hostName(host)
			if ips[ip] || macs[mac] || names[name] || ip.Is4() == v6 {
				t.Fatalf("host %d: %v, %v, %s", host, ip, mac, name)
			}
			ips[ip], macs[mac], names[name] = true, true, true
		}
	}
}
