//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

// spineAddr is the address of the box in the middle.
const spineAddr = "10.77.0.252"

// treeStories are the stories that run through a spine and two leaves. The first leaf is the root:
// it asks the spine for the receivers behind it, and the spine asks the other leaf.
var treeStories = []story{
	{"write", true, storyWrite},
	{"loss everywhere", false, storyEverywhere},
	{"repair, legs and ACKs", false, storyRepairLegs},
	{"source switch", false, storySourceSwitch},
	{"restart of the root", false, storyRestart},
	{"restart of the spine", true, storySpineRestart},
	{"perftest", true, storyPerftestThrough},
	{"perftest, restart of the spine", true, storyPerftestSpineRestart},
	{"RDMA-CM", true, storyRDMACM},
	{"perftest -R", false, storyPerftestRThrough},
	{"librocast", true, storyHost},
	{"librocast, sources in turn", false, storyHostSources},
	{"librocast, group ends", false, storyHostEnds},
}

// TestLeafSpine plays stories on Soft-RoCE hosts, of which two are at each of two leaves, on links
// without loss and on links that lose packets.
func TestLeafSpine(t *testing.T) { playOnLinks(t, treeStories, openLeafSpine) }

func openLeafSpine(t *testing.T, kernel, bin string, loses bool) *stage {
	t.Helper()
	l := openLab(t, Config{Kernel: kernel, Guests: 4, MTU: MTU1024})
	n := &neighbours{t: t, bin: bin}
	root := n.add(l.Box.(*Namespace), "leaf1", boxAddr, 1, 2)
	root.more = fmt.Sprintf("hosts: {listen: '%s:%d', groupIPs: [10.77.0.200]}\n", boxAddr, hostPort)
	spine := n.add(openBox(t), "spine", spineAddr)
	leaf := n.add(openBox(t), "leaf2", farAddr, 3, 4)
	n.join(root, spine, loses)
	n.join(spine, leaf, loses)
	n.start(leaf)
	return &stage{Lab: l, judge: newJudge(l), spine: n.start(spine), rocast: n.start(root)}
}

// storySpineRestart kills the spine's daemon in the middle of a transfer.
func storySpineRestart(t *testing.T, ctx context.Context, s *stage) string {
	return rowRestart(t, ctx, s, func(g *group) {
		s.rocast, s.spine = s.spine, s.rocast
		s.crash(t, ctx, g, 1000)
		s.rocast, s.spine = s.spine, s.rocast
	})
}

// storyPerftestSpineRestart kills the spine's daemon in the middle of a run of unmodified
// ib_write_bw.
func storyPerftestSpineRestart(t *testing.T, ctx context.Context, s *stage) string {
	s.helperUp(t, ctx)
	run := []string{"ib_write_bw", "-s", "65536", "-n", "400"}
	servers := s.servers(t, ctx, run)
	client := make(chan error, 1)
	go func() {
		_, err := s.Guests[0].RunPerftest(ctx, groupIP, run[0], run[1:]...)
		client <- err
	}()
	before := s.carriesPerftest(t, ctx, 1000)
	must(t, s.spine.Kill())
	must(t, s.spine.Start(ctx))
	after := s.carriesPerftest(t, ctx, before+1)
	if err := <-client; err != nil {
		t.Fatalf("%v: %v\n%s", run, err, s.Report(ctx))
	}
	for i, p := range servers {
		if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
			t.Errorf("%v: server %d: %v %v", run, i+1, exit, err)
		}
	}
	return fmt.Sprintf("SIGKILL after %d packets of %s, the root had sent %d soon after; all sides ended well", before, strings.Join(run, " "), after)
}

// carriesPerftest waits until the group of the present perftest run has carried so many packets of
// the source, and returns how many.
func (s *stage) carriesPerftest(t *testing.T, ctx context.Context, packets uint64) uint64 {
	t.Helper()
	for ctx.Err() == nil {
		var list api.Perftests
		out, err := s.ask(ctx, "perftest", "ls")
		must(t, err)
		must(t, json.Unmarshal(out, &list))
		runs := list.Perftests[0].Runs
		if len(runs) == 0 || len(runs[len(runs)-1].Groups) == 0 {
			continue
		}
		var shown api.Group
		if out, err = s.ask(ctx, "group", "show", runs[len(runs)-1].Groups[0]); err != nil {
			t.Fatalf("the run was over too soon: %v", err)
		}
		must(t, json.Unmarshal(out, &shown))
		if n := shown.Counters["forwarded"]; n >= packets {
			return n
		}
	}
	t.Fatalf("perftest's group has not carried %d packets\n%s", packets, s.Report(ctx))
	return 0
}
