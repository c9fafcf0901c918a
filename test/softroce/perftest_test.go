//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/test/softroce/control"
)

// perftestRuns are command lines. A user adds the IP of the group on the source, and nothing on the
// receivers.
var perftestRuns = [][]string{
	{"ib_write_bw", "-s", "8192", "-n", "200"},
	{"ib_write_bw", "-s", "1001", "-n", "50", "-m", "1024", "-q", "3"},
	{"ib_send_bw", "-s", "4096", "-n", "200"},
	{"ib_write_bw", "-a", "-n", "5"},
	{"ib_write_bw", "-s", "4096", "-D", "1"},
	{"ib_send_bw", "-s", "1001", "-n", "50", "-q", "2"},
}

// storyPerftest runs unmodified perftest through the connection helper: servers on all receivers,
// and a client that connects to the group's IP. With -short it runs the first command line only.
func storyPerftest(t *testing.T, ctx context.Context, s *stage) string {
	return s.playPerftest(t, ctx, perftestRuns)
}

// storyPerftestThrough is storyPerftest through several boxes. The longer command lines take too
// long on links that lose packets.
func storyPerftestThrough(t *testing.T, ctx context.Context, s *stage) string {
	return s.playPerftest(t, ctx, perftestRuns[:3])
}

func (s *stage) playPerftest(t *testing.T, ctx context.Context, runs [][]string) string {
	s.helperUp(t, ctx)
	if testing.Short() {
		runs = runs[:1]
	}
	did := s.runPerftest(t, ctx, runs)
	s.refuses(t, ctx)
	return fmt.Sprintf("%d runs of unmodified perftest through the group, ib_read_bw refused: %s", len(runs), strings.Join(did, "; "))
}

// perftestAttempts is how often perftest may run until it has measured something.
const perftestAttempts = 4

func (s *stage) runPerftest(t *testing.T, ctx context.Context, runs [][]string) (did []string) {
	t.Helper()
	for _, run := range runs {
		began := time.Now()
		// In an emulated guest the cycle counter by which the tool measures may stand still for a
		// run: the tool is through, and reports no throughput. Then it runs again.
		result := s.perftest(t, ctx, run)
		for n := 1; result.Gbps <= 0 && result.PeakGbps <= 0; n++ {
			if n == perftestAttempts {
				t.Errorf("%v: no throughput in %d runs: %s", run, n, result.Output)
				break
			}
			result = s.perftest(t, ctx, run)
		}
		did = append(did, fmt.Sprintf("%s (%.1f s)", strings.Join(run, " "), time.Since(began).Seconds()))
	}
	return did
}

// perftest runs the tool once, between a client on the source's host and servers on all receivers.
func (s *stage) perftest(t *testing.T, ctx context.Context, run []string) Perftest {
	t.Helper()
	servers := s.servers(t, ctx, run)
	result, err := s.Guests[0].RunPerftest(ctx, groupIP, run[0], run[1:]...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", run, err, s.Report(ctx))
	}
	for i, p := range servers {
		if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
			t.Errorf("%v: server %d: %v %v", run, i+1, exit, err)
		}
	}
	return result
}

func (s *stage) helperUp(t *testing.T, ctx context.Context) {
	t.Helper()
	var receivers []string
	for _, guest := range s.Guests[1:] {
		receivers = append(receivers, guest.Addr.String())
	}
	_, err := s.ask(ctx, "perftest", "up", "--group-ip", groupIP.String(), "--receivers", strings.Join(receivers, ","))
	must(t, err)
	t.Cleanup(func() {
		_, err := s.ask(context.WithoutCancel(ctx), "perftest", "down", "--group-ip", groupIP.String())
		must(t, err)
	})
}

// servers starts the tool on all receivers.
func (s *stage) servers(t *testing.T, ctx context.Context, run []string) (servers []*control.Process) {
	t.Helper()
	for _, guest := range s.Guests[1:] {
		p, err := guest.StartPerftest(ctx, run[0], run[1:]...)
		must(t, err)
		servers = append(servers, p)
	}
	return servers
}

// refuses checks that a test which no group can carry is refused, and that the user can see the
// reason.
func (s *stage) refuses(t *testing.T, ctx context.Context) {
	t.Helper()
	run := []string{"ib_read_bw", "-s", "4096", "-n", "5"}
	servers := s.servers(t, ctx, run)
	if _, err := s.Guests[0].RunPerftest(ctx, groupIP, run[0], run[1:]...); err == nil {
		t.Errorf("%v went through a group", run)
	}
	for _, p := range servers {
		if _, err := p.Wait(ctx); err != nil {
			t.Errorf("%v: %v", run, err)
		}
	}
	out, err := s.ask(ctx, "perftest", "ls")
	must(t, err)
	var list api.Perftests
	must(t, json.Unmarshal(out, &list))
	last := list.Perftests[0].Runs[len(list.Perftests[0].Runs)-1]
	if last.State != "refused" || last.Reason == "" {
		t.Errorf("perftest ls does not say that the run was refused and why: %s", out)
	}
}
