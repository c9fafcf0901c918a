//go:build softroce

package softroce

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rocast/rocast/roce"
)

// The addresses of the last box.
const farAddr, farAddr6 = "10.77.0.253", "fd77::253"

// The ends of the link between the boxes.
const (
	nearQPN, farQPN     = 0x600, 0x601
	nearSends, farSends = roce.PSN(0xFFFFE0), roce.PSN(0x123456)
	firstFarGuest       = 2 // an index into Lab.Guests: guests from there on are at the second box
)

// rowStories are the stories that run through two boxes in a row. The judge on the wires of the
// guests must not notice that there are two.
var rowStories = []story{
	{"write", true, storyWrite},
	{"send", false, storySend},
	{"IPv6", false, storyIPv6},
	{"loss on a leg", true, storyLegLoss},
	{"loss everywhere", false, storyEverywhere},
	{"merged ACKs lost", false, storyMergedACKs},
	{"repair, legs and ACKs", false, storyRepairLegs},
	{"source switch", false, storySourceSwitch},
	{"restart of the first box", false, storyRestart},
	{"restart of the second box", true, storyFarRestart},
	{"restarts of both", false, storyBothRestart},
	{"perftest", true, storyPerftestThrough},
}

// TestTwoBoxes plays stories on Soft-RoCE hosts of which two are behind each of two boxes, on a
// link without loss and on one that loses packets.
func TestTwoBoxes(t *testing.T) { playOnLinks(t, rowStories, openRow) }

// openRow is a stage with two boxes. Their groups are joined by hand (rowFiles), except where the
// first box asks the second one for a part: perftest's.
func openRow(t *testing.T, kernel, bin string, loses bool) *stage {
	t.Helper()
	l := openLab(t, Config{Kernel: kernel, Guests: 4, MTU: MTU1024})
	n := &neighbours{t: t, bin: bin}
	near := n.add(l.Box.(*Namespace), "near", boxAddr, 1, 2)
	far := n.add(openBox(t), "far", farAddr, 3, 4)
	n.join(near, far, loses)
	return &stage{Lab: l, judge: newJudge(l), rocast: n.start(near), far: n.start(far)}
}

// create creates the group, or its part in each box.
func (s *stage) create(ctx context.Context, g *group) error {
	if s.far == nil {
		return s.Create(ctx, g.name, g.groupFile())
	}
	near, far := g.rowFiles()
	if err := s.Create(ctx, g.name, near); err != nil {
		return err
	}
	return s.far.Create(ctx, g.name, far)
}

// rowFiles are the group files of the two boxes.
func (g *group) rowFiles() (near, far string) {
	head, members, _ := strings.Cut(g.groupFile(), "members:\n")
	head += "members:\n"
	near, far = head, head
	lines := strings.SplitAfter(strings.TrimSuffix(members, "\n"), "\n")
	regions := fmt.Sprintf("regions: [{va: %#x, length: %d, rkey: %#x}]", virtualVA, g.bytes, virtualKey)
	nearIP, farIP := boxAddr, farAddr
	if g.ip.Is6() {
		nearIP, farIP = boxAddr6, farAddr6
	}
	toNear := fmt.Sprintf("ip: %q, qpn: %d, remoteIP: %q, remoteQPN: %d", nearIP, nearQPN, farIP, farQPN)
	toFar := fmt.Sprintf("ip: %q, qpn: %d, remoteIP: %q, remoteQPN: %d", farIP, farQPN, nearIP, nearQPN)
	if g.both {
		far += fmt.Sprintf("  - {%s, psn: %d, sendPSN: %d, role: both, %s}\n", toNear, farSends, nearSends, regions)
	} else {
		far += fmt.Sprintf("  - {%s, psn: %d, role: source}\n", toNear, nearSends)
	}
	near += strings.TrimSuffix(lines[0], "\n") + "\n"
	for i, line := range lines[1:] {
		line = strings.TrimSuffix(line, "\n") + "\n"
		if g.receivers[i] >= firstFarGuest {
			far += line
		} else {
			near += line
		}
	}
	if g.both {
		near += fmt.Sprintf("  - {%s, psn: %d, sendPSN: %d, role: both, %s}\n", toFar, nearSends, farSends, regions)
	} else {
		near += fmt.Sprintf("  - {%s, psn: %d, %s}\n", toFar, nearSends, regions)
	}
	return near, far
}

// storyFarRestart kills the second box's daemon in the middle of a transfer.
func storyFarRestart(t *testing.T, ctx context.Context, s *stage) string {
	return rowRestart(t, ctx, s, func(g *group) {
		s.swap()
		s.crash(t, ctx, g, 1000)
		s.swap()
	})
}

// swap makes the other daemon the one that the story works with.
func (s *stage) swap() { s.rocast, s.far = s.far, s.rocast }

// storyBothRestart kills both daemons, one after the other, twice.
func storyBothRestart(t *testing.T, ctx context.Context, s *stage) string {
	return rowRestart(t, ctx, s, func(g *group) {
		for i := range int32(4) {
			s.crash(t, ctx, g, 500+700*i)
			s.swap()
		}
	})
}

func rowRestart(t *testing.T, ctx context.Context, s *stage, crash func(*group)) string {
	t.Helper()
	spec := ordinary()
	spec.bytes = longBytes
	g := s.addGroup(t, ctx, spec)
	transfer := g.transfer("write", messageBytes, longMessages)
	must(t, g.from.StartTransfer(transfer))
	crash(g)
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, longBytes)
	return "all messages done, hashes equal, QPs live"
}
