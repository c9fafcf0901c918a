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
	runs := perftestRRuns
	if testing.Short() {
		runs = runs[:2]
	}
	return s.perftestR(t, ctx, runs)
}

// storyPerftestRThrough is storyPerftestR with receivers behind other boxes.
func storyPerftestRThrough(t *testing.T, ctx context.Context, s *stage) string {
	return s.perftestR(t, ctx, perftestRRuns[:3])
}

func (s *stage) perftestR(t *testing.T, ctx context.Context, runs [][]string) string {
	t.Helper()
	s.cmUp(t, ctx, groupIP, ipv4, perftestPort, "perftest")
	did := s.runPerftest(t, ctx, runs)
	s.refusesR(t, ctx)
	s.noGroups(t, ctx)
	return fmt.Sprintf("%d runs of unmodified perftest that connects by RDMA-CM, ib_read_bw refused: %s", len(runs), strings.Join(did, "; "))
}

// refusesR checks that all programs of a test that no group can carry end, although they poll, and
// that the user can see the reason.
func (s *stage) refusesR(t *testing.T, ctx context.Context) {
	t.Helper()
	run := []string{"ib_read_bw", "-R", "-s", "4096", "-n", "5"}
	servers := s.servers(t, ctx, run)
	if _, err := s.Guests[0].RunPerftest(ctx, groupIP, run[0], run[1:]...); err == nil {
		t.Errorf("%v went through a group", run)
	}
	for _, p := range servers {
		if _, err := p.Wait(ctx); err != nil {
			t.Errorf("%v: %v", run, err)
		}
	}
	for _, c := range s.cms(t, ctx).Connections {
		if strings.Contains(c.Reason, "READs or atomics") {
			return
		}
	}
	t.Errorf("cm ls does not say why: %+v", s.cms(t, ctx).Connections)
}

// cmUp answers RDMA-CM at the group IP, for the programs of all receivers.
func (s *stage) cmUp(t *testing.T, ctx context.Context, ip netip.Addr, addr func(*Guest) netip.Addr, port int, memory string, more ...string) {
	t.Helper()
	s.cmUpFor(t, ctx, ip, s.Guests[1:], addr, port, memory, more...)
}

func (s *stage) cmUpFor(t *testing.T, ctx context.Context, ip netip.Addr, receivers []*Guest, addr func(*Guest) netip.Addr, port int, memory string, more ...string) {
	t.Helper()
	s.cmStart(t, ctx, ip, receivers, addr, port, memory, more...)
	t.Cleanup(func() {
		_, err := s.ask(context.WithoutCancel(ctx), "cm", "down", "--group-ip", ip.String())
		must(t, err)
	})
}

func (s *stage) cmStart(t *testing.T, ctx context.Context, ip netip.Addr, guests []*Guest, addr func(*Guest) netip.Addr, port int, memory string, more ...string) {
	t.Helper()
	var receivers []string
	for _, guest := range guests {
		receivers = append(receivers, addr(guest).String())
	}
	args := []string{"cm", "up", "--group-ip", ip.String(), "--port", strconv.Itoa(port), "--receivers", strings.Join(receivers, ","), "--memory", memory}
	_, err := s.ask(ctx, append(args, more...)...)
	must(t, err)
}
