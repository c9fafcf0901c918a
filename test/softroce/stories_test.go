//go:build softroce

package softroce

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// engine is the engine that carries the groups' packets, as rocastd.yaml has it.
var engine = flag.String("engine", "auto", "the `engine` of the stories' daemon: auto or afxdp")

// repair is the policy of the stories' groups, except where a story says which it needs.
var repair = flag.String("repair", "local", "the `repair` policy of the stories' groups: off or local")

// stage is a lab with rocast in its box and a judge on its wires.
type stage struct {
	*Lab
	*judge
	*rocast
	far     *rocast   // in the second box of two in a row, whose groups are joined by hand; else nil
	spine   *rocast   // in the box between two leaves, if there is one
	allowed []string  // drop reasons that this story may cause
	carried uint64    // packets that the kernel carried in all stories
	played  []string  // the names of the stories so far
	copiers []*copier // the runs of rocast-cp in this story
}

// story is one test on a stage. run returns a sentence about what it has checked.
type story struct {
	name  string
	short bool // whether -short runs it
	run   func(*testing.T, context.Context, *stage) string
}

var stories = []story{
	{"write", true, storyWrite},
	{"write with immediate", false, storyWriteImm},
	{"send", false, storySend},
	{"path MTU", false, storyPathMTU},
	{"port MTU", false, storyPortMTU},
	{"IPv6", false, storyIPv6},

	{"virtual-qpn", false, storyVirtualQPN},
	{"switch-ip", false, storySwitchIP},
	{"virtual-qpn, bystanders", false, storyVirtualQPNBystanders},
	{"switch-ip, bystanders", false, storySwitchIPBystanders},
	{"forged ACK", false, storyForgedACK},

	{"loss on a leg", true, storyLegLoss},
	{"loss on the uplink", false, storyUplinkLoss},
	{"lost twice", false, storyTwice},
	{"receivers' ACKs lost", false, storyReceiverACKs},
	{"merged ACKs lost", false, storyMergedACKs},
	{"last ACK lost", false, storyLastACK},
	{"100 packets", false, storyHundred},
	{"loss on two legs", false, storyTwoLegs},
	{"nak: lower", false, storyLower},
	{"loss everywhere", false, storyEverywhere},
	{"SENDs and loss", false, storySendLoss},

	{"repair, a leg", true, storyRepairLeg},
	{"repair, legs and ACKs", false, storyRepairLegs},
	{"repair, the last packet", false, storyRepairLast},
	{"repair, the end on the uplink", true, storyRepairUplinkEnd},
	{"repair, SENDs", false, storyRepairSend},
	{"repair, short RNR", false, storyRepairRNR},
	{"repair, impatient source", false, storyRepairImpatient},
	{"repair, powered off", false, storyRepairPowerOff},
	{"repair, restart", false, storyRepairRestart},
	{"repair, quorum", false, storyRepairQuorum},
	{"repair, stopped guests", false, storyRepairStopped},

	{"fatal NAK while cut", false, storyFatalWhileCut},
	{"READ while cut", false, storyReadWhileCut},
	{"READ", false, storyRead},
	{"wrong R_Key", false, storyWrongKey},
	{"RNR", false, storyRNR},

	{"receiver powered off", false, storyPowerOff},
	{"group removed", false, storyRemoved},
	{"restart", true, storyRestart},
	{"three restarts", false, storyRestarts},

	{"quorum", false, storyQuorum},
	{"quorum, lossy uplink", false, storyQuorumUplink},
	{"silent one evicted", false, storyEvicted},
	{"members", false, storyMembers},
	{"source switch", false, storySourceSwitch},
	{"fenced", false, storyFenced},

	{"three groups", false, storyGroups},
	{"unicast beside", false, storyUnicast},
	{"perftest", true, storyPerftest},
	{"RDMA-CM", true, storyRDMACM},
	{"transfer", false, storyTransfer},
	{"perftest -R", true, storyPerftestR},
	{"perftest -R, source dies", false, storyPerftestRDies},
	{"RDMA-CM, IPv6", false, storyRDMACMIPv6},
	{"RDMA-CM, churn", false, storyRDMACMChurn},
	{"RDMA-CM, loss", false, storyRDMACMLoss},
	{"RDMA-CM, twice", false, storyRDMACMTwice},
	{"RDMA-CM, killed", false, storyRDMACMKill},
	{"RDMA-CM, dead", false, storyRDMACMDead},
	{"RDMA-CM, silent", false, storyRDMACMSilent},
	{"RDMA-CM, choose", false, storyRDMACMChoose},
	{"RDMA-CM, regions", false, storyRDMACMRegions},
	{"RDMA-CM, rping", false, storyRDMACMRping},
	{"regions", false, storyRegions},
	{"librocast", true, storyHost},
	{"librocast, sources in turn", false, storyHostSources},
	{"librocast, box killed", true, storyHostFallback},
	{"librocast, IPv6", false, storyHostIPv6},
	{"librocast, loss", false, storyHostLoss},
	{"librocast, link cut", false, storyHostCut},
	{"librocast, source leaves", false, storyHostSourceLeaves},
	{"librocast, group ends", false, storyHostEnds},
	{"librocast, two groups", false, storyHostTwoGroups},
	{"librocast, streams", false, storyHostStreams},
	{"librocast, stream, box killed", false, storyHostStreamFallback},
}

// TestStories checks data integrity on rxe hosts through rocast. The guests are booted once for
// each kernel. With -short it uses one kernel and the stories that cover most.
func TestStories(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	var table strings.Builder
	defer func() { t.Log("\n" + table.String()) }()
	kernels := kernels()
	if testing.Short() {
		kernels = kernels[:1]
	}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			s := openStage(t, kernel, bin)
			for _, story := range stories {
				if testing.Short() && !story.short {
					continue
				}
				fmt.Fprintln(&table, s.play(t, kernel, story))
			}
			fmt.Fprintf(&table, "engine %s, kernel %s: the kernel carried %d packets\n", *engine, kernel, s.carried)
			if slices.Contains(s.played, "write") && (s.carried > 0) != (*engine == "auto") { // it needs nothing that the kernel cannot carry
				t.Errorf("with engine %s the kernel carried %d packets", *engine, s.carried)
			}
		})
	}
}

func openStage(t *testing.T, kernel, bin string) *stage {
	t.Helper()
	return openStageOf(t, bin, Config{Kernel: kernel, Guests: 4, MTU: MTU4096, MemoryMiB: guestMemoryMiB + 3*(*fileMiB-8)})
}

func openStageOf(t *testing.T, bin string, c Config) *stage {
	t.Helper()
	l := openLab(t, c)
	site := inNamespaceOf{l.Box.(*Namespace), bin, t.TempDir(), boxAddr}
	return &stage{Lab: l, judge: newJudge(l), rocast: startRocast(t, testContext(t, time.Minute), l, site)}
}

// play runs one story and returns its line of the table.
func (s *stage) play(t *testing.T, kernel string, story story) string {
	return s.playWithin(t, storyLimit, kernel, story)
}

func (s *stage) playWithin(t *testing.T, limit time.Duration, kernel string, story story) string {
	var verified string
	start := time.Now()
	passed := t.Run(story.name, func(t *testing.T) {
		ctx := testContext(t, limit)
		must(t, s.CheckClocks(ctx))
		s.played = append(s.played, story.name)
		before := s.count(t, ctx)
		t.Cleanup(func() { s.finish(t, before) })
		verified = story.run(t, ctx, s)
	})
	if !passed {
		verified = "FAILED"
	}
	return fmt.Sprintf("%-24s %-5s %5.1f s  %s", story.name, kernel, time.Since(start).Seconds(), verified)
}

var (
	// mustStayZero are the drop reasons that no story causes.
	mustStayZero = []string{
		"malformed", "unknown-opcode", "wrong-transport", "bad-icrc", "wrong-port", "wrong-vlan", "wrong-qpn",
		"wrong-destination", "not-source", "not-member", "not-receiver", "over-mtu", "hop-limit-exceeded", "handoff-full",
		"source-out-of-step",
	}
	// zeroWithoutRestart are the drop reasons that no story causes, except one that starts the
	// daemon again: the new daemon gets responses to packets that it has not sent.
	zeroWithoutRestart = []string{"beyond-sent", "outside-window"}
)

// count is the daemon's counters at one moment.
type count struct {
	by     *daemon
	frames map[string]uint64
}

func (s *stage) count(t *testing.T, ctx context.Context) count {
	t.Helper()
	frames, err := s.Counters(ctx)
	if err != nil {
		t.Error(err)
	}
	return count{s.daemon, frames}
}

// finish checks what has to be true after every story, and prepares the stage for the next story.
func (s *stage) finish(t *testing.T, before count) {
	for _, violation := range s.reset() {
		t.Error(violation)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	after, never := s.count(t, ctx), mustStayZero
	if after.by == before.by {
		never = append(zeroWithoutRestart, never...)
	} else {
		before.frames = nil // the new daemon counts from 0
	}
	s.carried += after.frames["fan-out-carried"] - before.frames["fan-out-carried"]
	for _, name := range never {
		if slices.Contains(s.allowed, name) {
			continue
		}
		n, exists := after.frames[name]
		if n -= before.frames[name]; n > 0 || !exists {
			t.Errorf("rocast counted %d frames as %s, want 0; it has this counter: %t", n, name, exists)
		}
	}
	s.allowed = nil
	if err := s.restore(ctx); err != nil {
		t.Error(err)
	}
}

// restore boots guests that are off or have died. It starts the daemon if a story has failed and
// left no daemon.
func (s *stage) restore(ctx context.Context) error {
	err := s.Revive(ctx)
	select {
	case <-s.daemon.exited:
		return errors.Join(err, s.Start(ctx))
	default:
		return err
	}
}

const traceLines = 150

// reportFailure reports on a story that has failed: the last frames in the log, and all frames in
// the artifacts of the test.
func (s *stage) reportFailure(t *testing.T, ctx context.Context, groups ...string) {
	var tail strings.Builder
	s.writeTrace(&tail, traceLines)
	t.Logf("the last frames, with PSNs counted from the first of the turn:\n%s\n%s", tail.String(), s.Report(ctx, groups...))
	all, err := os.Create(filepath.Join(t.ArtifactDir(), "frames.txt"))
	if err != nil {
		t.Log(err)
		return
	}
	defer all.Close()
	s.writeTrace(all, maxTrace)
}

// await waits until seen is closed. event says in words what closes it.
func (s *stage) await(t *testing.T, ctx context.Context, event string, seen <-chan struct{}) {
	t.Helper()
	select {
	case <-seen:
	case <-ctx.Done():
		t.Fatalf("never seen: %s", event)
	}
}
