//go:build softroce

package softroce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stage is a lab with rocast in its box and a judge on its wires.
type stage struct {
	*Lab
	*judge
	*rocast
}

// A story returns what it has verified.
type story struct {
	name  string
	short bool // part of the short form
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

	{"three groups", false, storyGroups},
	{"unicast beside", false, storyUnicast},
	{"perftest", true, storyPerftest},
}

// TestStories is data integrity on rxe through rocast. Guests are booted once per kernel. With -short it is one kernel and
// the stories that say most.
func TestStories(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	var table strings.Builder
	defer func() { t.Log("\n" + table.String()) }()
	kernels := []string{"6.1", "6.12"}
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
		})
	}
}

func openStage(t *testing.T, kernel, bin string) *stage {
	t.Helper()
	l := openLab(t, kernel, 4)
	return &stage{Lab: l, judge: newJudge(l), rocast: startRocast(t, testContext(t, time.Minute), l, bin)}
}

// play runs one story and returns its line of the table.
func (s *stage) play(t *testing.T, kernel string, story story) string {
	var verified string
	start := time.Now()
	passed := t.Run(story.name, func(t *testing.T) {
		ctx := testContext(t, storyLimit)
		before := s.count(t, ctx)
		t.Cleanup(func() { s.conclude(t, before) })
		verified = story.run(t, ctx, s)
	})
	if !passed {
		verified = "FAILED"
	}
	return fmt.Sprintf("%-24s %-5s %5.1f s  %s", story.name, kernel, time.Since(start).Seconds(), verified)
}

// blunders are the reasons for a drop that no story gives; unheard are those that answers give which a daemon finds on
// their way when it starts.
var (
	blunders = []string{
		"malformed", "unknown-opcode", "wrong-transport", "bad-icrc", "wrong-port", "wrong-qpn", "wrong-destination", "not-source",
		"not-member", "not-receiver", "over-mtu", "handoff-full", "source-out-of-step",
	}
	unheard = []string{"beyond-sent", "outside-window"}
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

// conclude checks, after everything has been taken away, what holds in every story, and makes ready for the next.
func (s *stage) conclude(t *testing.T, before count) {
	for _, offence := range s.reset() {
		t.Error(offence)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	after, never := s.count(t, ctx), blunders
	if after.by == before.by {
		never = append(unheard, never...)
	} else {
		before.frames = nil // it counts from 0 again
	}
	for _, name := range never {
		if n := after.frames[name] - before.frames[name]; n > 0 {
			t.Errorf("rocast counted %d frames as %s", n, name)
		}
	}
	if err := s.mend(ctx); err != nil {
		t.Error(err)
	}
}

// mend boots guests that are off, and starts the daemon if a story that failed has left none.
func (s *stage) mend(ctx context.Context) (err error) {
	for _, g := range s.Guests {
		if g.machine() == nil {
			err = errors.Join(err, g.Boot(ctx))
		}
	}
	select {
	case <-s.daemon.exited:
		return errors.Join(err, s.Start(ctx))
	default:
		return err
	}
}

const traceLines = 150

// tell reports on a story that has failed: the last frames in the log, all of them in the test's artifacts.
func (s *stage) tell(t *testing.T, ctx context.Context, groups ...string) {
	var tail strings.Builder
	s.writeTrace(&tail, traceLines)
	t.Logf("the last frames, PSNs counted from the group's first:\n%s\n%s", tail.String(), s.Report(ctx, groups...))
	all, err := os.Create(filepath.Join(t.ArtifactDir(), "frames.txt"))
	if err != nil {
		t.Log(err)
		return
	}
	defer all.Close()
	s.writeTrace(all, maxTrace)
}

// await waits for a frame.
func (s *stage) await(t *testing.T, ctx context.Context, what string, seen <-chan struct{}) {
	t.Helper()
	select {
	case <-seen:
	case <-ctx.Done():
		t.Fatalf("never seen: %s", what)
	}
}
