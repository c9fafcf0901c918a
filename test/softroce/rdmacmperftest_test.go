//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// perftestRRuns are command lines with RDMA-CM. With -short only the first two are run.
var perftestRRuns = [][]string{
	{"ib_write_bw", "-R", "-s", "8192", "-n", "200"},
	{"ib_send_bw", "-R", "-s", "4096", "-n", "200"},
	{"ib_write_bw", "-R", "-s", "1001", "-n", "50", "-q", "3"},
	{"ib_send_bw", "-R", "-s", "1001", "-n", "50", "-q", "2"},
	{"ib_write_bw", "-R", "-a", "-n", "5"},
}

// storyPerftestR runs unmodified perftest with -R, whose programs connect by RDMA-CM and exchange
// their parameters by SENDs.
func storyPerftestR(t *testing.T, ctx context.Context, s *stage) string {
	s.cmUp(t, ctx, groupIP, ipv4, perftestPort, "perftest")
	runs := perftestRRuns
	if testing.Short() {
		runs = runs[:2]
	}
	did := s.runPerftest(t, ctx, runs)
	s.noGroups(t, ctx)
	return fmt.Sprintf("%d runs of unmodified perftest that connects by RDMA-CM: %s", len(runs), strings.Join(did, "; "))
}

// cmUp answers RDMA-CM at the group IP, for the programs of all receivers.
func (s *stage) cmUp(t *testing.T, ctx context.Context, ip netip.Addr, addr func(*Guest) netip.Addr, port int, memory string) {
	t.Helper()
	s.cmStart(t, ctx, ip, addr, port, memory)
	t.Cleanup(func() {
		_, err := s.ask(context.WithoutCancel(ctx), "cm", "down", "--group-ip", ip.String())
		must(t, err)
	})
}

func (s *stage) cmStart(t *testing.T, ctx context.Context, ip netip.Addr, addr func(*Guest) netip.Addr, port int, memory string) {
	t.Helper()
	var receivers []string
	for _, guest := range s.Guests[1:] {
		receivers = append(receivers, addr(guest).String())
	}
	_, err := s.ask(ctx, "cm", "up", "--group-ip", ip.String(), "--port", strconv.Itoa(port), "--receivers", strings.Join(receivers, ","), "--memory", memory)
	must(t, err)
}
