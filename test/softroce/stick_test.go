//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/test/softroce/control"
)

const stickAddr = "10.77.0.252"

// stick is a stage whose box has one port, towards a switch that snoops. Behind that are all
// guests. Those of the receivers have edges.
type stick struct {
	*stage
	link     *lossy.Link // of the box's port: it counts what passes, and loses nothing
	packaged string      // folder with what the package of rocast-edge installs
	edges    map[int]*control.Process
}

// stickStories are the stories in which receivers share the copies.
var stickStories = []struct {
	name  string
	short bool
	run   func(*testing.T, context.Context, *stick) string
}{
	{"shared", true, storyShared},
	{"shared, path MTU 4096", false, storySharedMTU4096},
	{"shared, loss on a leg", true, storySharedLoss},
	{"shared, an edge is killed", true, storySharedEdgeKilled},
	{"shared, box killed", false, storySharedRestart},
}

// TestStick plays stories with a box on a stick, on Soft-RoCE hosts with rocast-edge.
func TestStick(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	deb, packaged := makeDebOf(t, "rocast-edge", "v1.0.0"), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", deb, packaged).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", deb, err, out)
	}
	var table strings.Builder
	defer func() { t.Log("\n" + table.String()) }()
	for _, kernel := range boxKernels {
		t.Run(kernel, func(t *testing.T) {
			s := openStick(t, kernel, bin, packaged)
			for _, one := range stickStories {
				if testing.Short() && !one.short {
					continue
				}
				fmt.Fprintln(&table, s.play(t, kernel, story{one.name, one.short, func(t *testing.T, ctx context.Context, _ *stage) string {
					return one.run(t, ctx, s)
				}}))
			}
		})
	}
}

func openStick(t *testing.T, kernel, bin, packaged string) *stick {
	t.Helper()
	l := openLab(t, Config{Kernel: kernel, Guests: 4, MTU: MTU4096})
	at, n := l.Box.(*Namespace), &neighbours{t: t, bin: bin}
	b, end := n.stick(at, "stick", stickAddr, MTU4096)
	must(t, edges.Snoop(at.NS, bridgeName))
	link, err := lossy.Attach(end, 1, 0)
	must(t, err)
	t.Cleanup(func() { must(t, link.Close()) })
	b.more = fmt.Sprintf("hosts: {listen: \"%s:%d\", groupIPs: [10.77.0.200]}\nedges: {addresses: [239.77.0.0/28]}\n", stickAddr, hostPort)
	s := &stick{&stage{Lab: l, judge: newJudge(l), rocast: n.start(b)}, link, packaged, map[int]*control.Process{}}
	ctx := testContext(t, 2*time.Minute)
	for i, g := range l.Guests[1:] {
		must(t, s.install(ctx, g))
		must(t, s.startEdge(i+1))
	}
	return s
}

// install gives a guest the files of the package. The box in the config is that of the lab.
func (s *stick) install(ctx context.Context, g *Guest) error {
	for _, name := range []string{"usr/sbin/rocast-edge", "etc/rocast/edge.conf"} {
		content, err := os.ReadFile(filepath.Join(s.packaged, name))
		if err != nil {
			return err
		}
		if _, err := g.Run(ctx, "mkdir", "-p", "/"+filepath.Dir(name)); err != nil {
			return err
		}
		if filepath.Ext(name) == ".conf" {
			content = []byte(strings.Replace(string(content), boxAddr, stickAddr, 1))
		}
		if err := g.Put(ctx, "/"+name, content); err != nil {
			return err
		}
	}
	_, err := g.Run(ctx, "dash", "-c", "busybox mount -t bpf bpf /sys/fs/bpf")
	return err
}

const edgeUnit = "usr/lib/systemd/system/rocast-edge.service"

// startEdge starts what the unit of the package starts in a guest, which is an index into
// Lab.Guests. There is no systemd in the guests.
func (s *stick) startEdge(guest int) error {
	unit, err := os.ReadFile(filepath.Join(s.packaged, edgeUnit))
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(string(unit), "\nExecStart=")
	command, _, _ := strings.Cut(rest, "\n")
	if !found {
		return fmt.Errorf("%s has no ExecStart", edgeUnit)
	}
	s.edges[guest], err = s.Guests[guest].Start("dash", "-c", "mkdir -p /run/rocast-edge; . /etc/rocast/edge.conf; exec "+command)
	return err
}

// killEdge ends the service without a warning, and with it the membership of the multicast address.
// Its program stays at the interface.
func (s *stick) killEdge(ctx context.Context, guest int) error {
	p := s.edges[guest]
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := p.Wait(ctx)
	return err
}

func (s *stick) shown(t *testing.T, ctx context.Context, g *group) (shown api.Group) {
	t.Helper()
	out, err := s.ask(ctx, "group", "show", g.name)
	must(t, err)
	must(t, json.Unmarshal(out, &shown))
	return shown
}

// sharing waits until all receivers share one leg, and returns it.
func (s *stick) sharing(t *testing.T, ctx context.Context, g *group) api.Share {
	t.Helper()
	for {
		shown := s.shown(t, ctx, g)
		if len(shown.Shares) == 1 && shown.Shares[0].Working == len(g.to) && !shown.Shares[0].Retired {
			return shown.Shares[0]
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			for guest, p := range s.edges {
				status, err := s.Guests[guest].Run(context.WithoutCancel(ctx), "/usr/sbin/rocast-edge", "status")
				t.Logf("the edge of guest %d: %s%s%v", guest+1, p.Stderr, status, err)
			}
			t.Fatalf("the receivers do not share: %+v", shown)
		}
	}
}

// left is what has left the box by its port since before, beside answers to the source.
type left struct {
	packets uint64 // data of the group
	alone   int    // of these, for one receiver
	source  int    // packets of the source that came to the box, each once
}

func (s *stick) passed(t *testing.T, g *group) left {
	t.Helper()
	in, _, err := s.link.Passed()
	must(t, err)
	var l left
	s.locked(func() { l = left{in - uint64(g.answers), g.alone, int(g.sent) + 1} })
	return l
}

const (
	sharedBytes    = 24 << 20
	sharedMessages = sharedBytes / messageBytes
)

func (s *stick) group(t *testing.T, ctx context.Context, pathMTU int) *group {
	t.Helper()
	spec := patient()
	spec.bytes, spec.pathMTU = sharedBytes, pathMTU
	g := s.addGroup(t, ctx, spec)
	soon, cancel := context.WithTimeout(ctx, storyLimit/4)
	defer cancel()
	s.sharing(t, soon, g)
	return g
}

// write WRITEs all of the memory, and does something meanwhile.
func (s *stick) write(t *testing.T, ctx context.Context, g *group, meanwhile func()) left {
	t.Helper()
	before := s.passed(t, g)
	transfer := g.transfer("write", messageBytes, sharedMessages)
	must(t, g.from.StartTransfer(transfer))
	meanwhile()
	g.await(t, ctx, transfer)
	g.delivered(t, ctx, sharedBytes)
	after := s.passed(t, g)
	return left{after.packets - before.packets, after.alone - before.alone, after.source - before.source}
}

// shared checks that one packet at most has left for each of the source's, beside those that are
// for one receiver, and in all no more than most percent.
func (l left) shared(t *testing.T, g *group, most int) string {
	t.Helper()
	if shared := int(l.packets) - l.alone; shared > l.source*101/100 || int(l.packets) > l.source*most/100 {
		t.Errorf("the source has sent %d packets; %d have left the box, and %d of them for one receiver", l.source, l.packets, l.alone)
	}
	return fmt.Sprintf("%d packets of the source, %d out of the box instead of %d, of which %d for one receiver: hashes equal, QPs live",
		l.source, l.packets, l.source*len(g.to), l.alone)
}

// A guest that gets no CPU for a while is sent packets again, also where nothing is lost.
const mostIdeally = 125

func storyShared(t *testing.T, ctx context.Context, s *stick) string {
	g := s.group(t, ctx, 1024)
	return s.write(t, ctx, g, func() {}).shared(t, g, mostIdeally)
}

func storySharedMTU4096(t *testing.T, ctx context.Context, s *stick) string {
	g := s.group(t, ctx, 4096)
	return s.write(t, ctx, g, func() {}).shared(t, g, mostIdeally)
}

func storySharedLoss(t *testing.T, ctx context.Context, s *stick) string {
	g := s.group(t, ctx, 1024)
	s.lose(randomly(41, 0.01, to(1)))
	said := s.write(t, ctx, g, func() {}).shared(t, g, 300) // a NIC drops what comes behind a gap
	_, lost := s.tally(g)
	if lost == 0 {
		t.Error("nothing was lost")
	}
	return fmt.Sprintf("%d lost on a leg, %s", lost, said)
}

// storySharedEdgeKilled kills an edge in mid-transfer. The switch forwards nothing to its host any
// more, so the box sends this receiver copies of its own. Started again, the edge shares again.
func storySharedEdgeKilled(t *testing.T, ctx context.Context, s *stick) string {
	const victim = 2
	g := s.group(t, ctx, 1024)
	l := s.write(t, ctx, g, func() {
		s.reaches(t, ctx, g, 2000)
		must(t, s.killEdge(ctx, victim))
		s.await(t, ctx, "copies for one receiver", s.whenTrue(func() bool { return g.alone > 1000 }))
		must(t, s.startEdge(victim))
	})
	said := l.shared(t, g, 200)
	// It is tried again as long as the source sends.
	again := 0
	for ; ; again++ {
		leg := s.shown(t, ctx, g).Shares[0]
		if leg.Working == len(g.to) {
			break
		}
		g.run(t, ctx, g.transfer("write", messageBytes, 16))
	}
	g.delivered(t, ctx, sharedBytes)
	return fmt.Sprintf("%s; shares again after %d WRITEs more", said, 16*again)
}

// storySharedRestart kills the box's daemon in mid-transfer. The leg gets another QPN.
func storySharedRestart(t *testing.T, ctx context.Context, s *stick) string {
	g := s.group(t, ctx, 1024)
	before := s.sharing(t, ctx, g)
	l := s.write(t, ctx, g, func() {
		s.reaches(t, ctx, g, 2000)
		must(t, s.Kill())
		must(t, s.Start(ctx))
		must(t, s.Ready(ctx, g.name))
	})
	after := s.sharing(t, ctx, g)
	if after.QPN == before.QPN {
		t.Errorf("the leg still has the QPN %d", after.QPN)
	}
	return l.shared(t, g, 200)
}
