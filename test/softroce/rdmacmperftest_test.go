//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/roce/cm"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/wire"
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
	args := []string{"cm", "up", "--group-ip", ip.String(), "--port", strconv.Itoa(port), "--receivers", strings.Join(receivers, ",")}
	if memory != "" {
		args = append(args, "--memory", memory)
	}
	_, err := s.ask(ctx, append(args, more...)...)
	must(t, err)
}

// storyPerftestRDies ends the source of a run in several ways, and lets another host connect then:
// its program is killed in the transfer, its host says nothing more before the transfer and in it,
// and its last messages are lost when the receivers are through.
func storyPerftestRDies(t *testing.T, _ context.Context, s *stage) string {
	ctx := testContext(t, 4*storyLimit) // eight runs, of which four are long
	receivers := s.Guests[1:3]
	s.cmUpFor(t, ctx, groupIP, receivers, ipv4, perftestPort, "perftest")
	var did []string
	for _, c := range []struct {
		name string
		args []string
		// dies returns when the source says nothing more; after it has, all frames of it are lost.
		dies func(source *control.Process)
		// reason is why the box ends the run, if it is known before another source asks.
		reason string
	}{
		{"killed in the transfer", longRun, func(p *control.Process) {
			s.forwards(t, ctx)
			must(t, p.Signal(syscall.SIGKILL))
		}, "the source disconnected"},
		{"silent before the transfer", longRun, func(*control.Process) { s.dieAfter(t, ctx, 3) }, ""},
		{"silent in the transfer", longRun, func(*control.Process) {
			s.forwards(t, ctx)
			s.cut(s.Guests[0])
		}, ""},
		{"silent after the transfer", shortRun, func(*control.Process) { s.dieAtTheEnd(t, ctx) }, "every receiver has disconnected"},
	} {
		servers := s.serversOn(t, ctx, receivers, c.args)
		source, err := s.Guests[0].Start(s.clientArgs(t, ctx, s.Guests[0], c.args)...)
		must(t, err)
		c.dies(source)
		_ = source.Signal(syscall.SIGKILL) // fails if it has ended
		_, _ = source.Wait(ctx)            // it was killed
		if c.reason != "" {
			s.runEnded(t, ctx, c.reason)
		}
		took := s.otherConnects(t, ctx, receivers, servers)
		if c.reason == "" {
			s.runEnded(t, ctx, fmt.Sprintf("source %v does not answer, and %v waits for its receivers", s.Guests[0].Addr, s.Guests[3].Addr))
		}
		const bar = 2 * time.Second
		if took > bar {
			t.Errorf("%s: the other host's request was with the receivers after %v, want less than %v", c.name, took, bar)
		}
		s.filter(s.Guests[0], nil)() // what the source's host still repeats reaches nobody's run
		did = append(did, fmt.Sprintf("%s: %.2f s", c.name, took.Seconds()))
	}
	s.noGroups(t, ctx)
	return "another host's request was with the receivers after the source was " + strings.Join(did, "; ")
}

var (
	longRun  = []string{"ib_write_bw", "-R", "-s", "8192", "-n", "500000"}
	shortRun = []string{"ib_write_bw", "-R", "-s", "8192", "-n", "50"}
)

func (s *stage) serversOn(t *testing.T, ctx context.Context, guests []*Guest, run []string) (servers []*control.Process) {
	t.Helper()
	for _, guest := range guests {
		p, err := guest.StartPerftest(ctx, run[0], run[1:]...)
		must(t, err)
		servers = append(servers, p)
	}
	return servers
}

// clientArgs is the command line of a source.
func (s *stage) clientArgs(t *testing.T, ctx context.Context, guest *Guest, run []string) []string {
	t.Helper()
	args, err := guest.perftestArgs(ctx, run[0], append(slices.Clone(run[1:]), groupIP.String()))
	must(t, err)
	return args
}

// forwards returns when the box has forwarded data of the source.
func (s *stage) forwards(t *testing.T, ctx context.Context) {
	t.Helper()
	for before := s.count(t, ctx).frames["forwarded"]; s.count(t, ctx).frames["forwarded"] == before; {
		must(t, ctx.Err())
	}
}

// dieAfter loses every frame of the source from its n-th message on the control connection on.
func (s *stage) dieAfter(t *testing.T, ctx context.Context, n int) {
	t.Helper()
	dead := make(chan struct{})
	var mu sync.Mutex
	seen := 0
	s.filter(s.Guests[0], func(frame []byte) wire.Verdict {
		mu.Lock()
		defer mu.Unlock()
		var v roce.View
		if v.Decode(frame, len(frame)) == nil && v.Opcode == roce.OpSendOnly {
			if seen++; seen == 2*n { // the answers count too
				close(dead)
			}
		}
		if seen >= 2*n {
			return wire.Drop
		}
		return wire.Pass
	})
	s.await(t, ctx, "messages of a control connection", dead)
}

// dieAtTheEnd loses what the source says when its run is over: its DREQs.
func (s *stage) dieAtTheEnd(t *testing.T, ctx context.Context) {
	t.Helper()
	ends := make(chan struct{})
	var once sync.Once
	s.filter(s.Guests[0], func(frame []byte) wire.Verdict {
		if mad, err := cm.Decode(frame); err == nil && (mad.Message.Attribute() == cm.AttrDREQ || mad.Message.Attribute() == cm.AttrDREP) {
			once.Do(func() { close(ends) })
			return wire.Drop
		}
		return wire.Pass
	})
	s.await(t, ctx, "a DREQ of the source", ends)
}

// runEnded returns when a connection has ended for a reason.
func (s *stage) runEnded(t *testing.T, ctx context.Context, reason string) {
	t.Helper()
	for {
		l := s.cms(t, ctx).Connections
		if slices.ContainsFunc(l, func(c api.CMConnection) bool { return strings.HasPrefix(c.Reason, reason) }) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no connection has ended because %q: %+v", reason, l)
		}
	}
}

// otherConnects lets another host connect, and returns how long its request takes to a receiver.
// Then it plays a whole run between that host and programs that the receivers have started anew.
func (s *stage) otherConnects(t *testing.T, ctx context.Context, receivers []*Guest, old []*control.Process) time.Duration {
	t.Helper()
	other := s.Guests[3]
	var mu sync.Mutex
	var asked, passed time.Time
	reached := make(chan struct{})
	isREQ := func(frame []byte) bool {
		mad, err := cm.Decode(frame)
		return err == nil && mad.Message.Attribute() == cm.AttrREQ
	}
	other.Wire.SetFilter(wire.ToBox, func(frame []byte) wire.Verdict {
		mu.Lock()
		defer mu.Unlock()
		if isREQ(frame) && asked.IsZero() {
			asked = time.Now()
		}
		return wire.Pass
	})
	receivers[0].Wire.SetFilter(wire.ToGuest, func(frame []byte) wire.Verdict {
		mu.Lock()
		defer mu.Unlock()
		if isREQ(frame) && !asked.IsZero() && passed.IsZero() {
			passed = time.Now()
			close(reached)
		}
		return wire.Pass
	})
	first, err := other.Start(s.clientArgs(t, ctx, other, shortRun)...)
	must(t, err)
	s.await(t, ctx, "the request of the other host at a receiver", reached)
	_, _ = first.Wait(ctx) // the receivers' programs are still those of the first run
	for _, p := range old {
		_ = p.Signal(syscall.SIGKILL) // fails if it has ended, as it should
		_, _ = p.Wait(ctx)            // it has failed, or was through
	}
	for _, guest := range []*Guest{other, receivers[0]} {
		for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
			guest.Wire.SetFilter(d, func(frame []byte) wire.Verdict { return s.see(guest, d, frame) })
		}
	}
	servers := s.serversOn(t, ctx, receivers, shortRun)
	if out, err := other.Run(ctx, s.clientArgs(t, ctx, other, shortRun)...); err != nil {
		t.Errorf("the other host's run: %v\n%s\n%s", err, out, s.Report(ctx))
	}
	for i, p := range servers {
		if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
			t.Errorf("server %d of the other host's run: %v %v", i+1, exit, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return passed.Sub(asked)
}
