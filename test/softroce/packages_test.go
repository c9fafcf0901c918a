//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/host/copying"
	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
	"github.com/rocast/rocast/test/softroce/wire"
)

const (
	packagesMemoryMiB = 512 // of a guest: Python, and what is copied
	packagesLimit     = 3 * time.Minute
)

// TestPackages plays what users of librocast install, on hosts with real queue pairs: rocast-cp,
// and Python with the package rocast. It takes four minutes on each kernel where all is emulated.
func TestPackages(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	var table strings.Builder
	defer func() { t.Log("\n" + table.String()) }()
	for _, kernel := range kernels() {
		t.Run(kernel, func(t *testing.T) {
			s := openStageOf(t, bin, Config{Kernel: kernel, Guests: 4, MTU: MTU4096, MemoryMiB: packagesMemoryMiB, Packages: true})
			s.name(t)
			for _, story := range packageStories {
				fmt.Fprintln(&table, s.playWithin(t, packagesLimit, kernel, story))
			}
		})
	}
}

var packageStories = []story{
	{"rocast-cp", true, storyCopy},
	{"rocast-cp, loss", true, storyCopyLoss},
	{"rocast-cp, killed", true, storyCopyKilled},
	{"rocast-cp, back again", true, storyCopyBackAgain},
	{"Python", true, storyPython},
	{"rocast-cp, box killed", true, storyCopyBoxKilled}, // its group is left for a while
}

// name gives the guests names, which rocast-cp shows.
func (s *stage) name(t *testing.T) {
	t.Helper()
	for _, g := range s.Guests {
		_, err := g.Run(testContext(t, time.Minute), "dash", "-c", fmt.Sprintf("echo guest%d >/proc/sys/kernel/hostname", g.Number))
		must(t, err)
	}
}

// copier is rocast-cp on a guest.
type copier struct {
	guest   *Guest
	process *control.Process
}

// copies starts rocast-cp on a guest.
func (s *stage) copies(t *testing.T, g *Guest, group string, members int, args ...string) *copier {
	t.Helper()
	command := append([]string{image.CopyProgram}, args...)
	command = append(command, "--group", group, "--members", strconv.Itoa(members), "--box", net.JoinHostPort(boxAddr, strconv.Itoa(hostPort)), "--json")
	p, err := g.Start(command...)
	must(t, err)
	c := &copier{g, p}
	s.copiers = append(s.copiers, c)
	return c
}

// copiesAll starts a source on the first guest and receivers on the others.
func (s *stage) copiesAll(t *testing.T, group string, send []string, receive ...string) (source *copier, receivers []*copier) {
	t.Helper()
	source = s.copies(t, s.Guests[0], group, len(s.Guests), append([]string{"send"}, send...)...)
	for _, g := range s.Guests[1:] {
		receivers = append(receivers, s.copies(t, g, group, len(s.Guests), append([]string{"recv"}, receive...)...))
	}
	return source, receivers
}

func (c *copier) String() string {
	return fmt.Sprintf("rocast-cp on %v:\n%s%s", c.guest.Addr, c.process.Stdout, c.process.Stderr)
}

// ends waits until rocast-cp ends with this status.
func (c *copier) ends(t *testing.T, ctx context.Context, s *stage, status int) {
	t.Helper()
	exit, err := c.process.Wait(ctx)
	if err != nil || exit != (control.Exit{Code: status}) {
		t.Fatalf("rocast-cp on %v ends with %v, %v instead of %d; all:\n%v\n%s", c.guest.Addr, exit, err, status, s.copiers, s.Report(context.WithoutCancel(ctx)))
	}
}

// event returns the next event of this kind that suits.
func (c *copier) event(t *testing.T, ctx context.Context, kind string, suits func(copying.Event) bool) copying.Event {
	t.Helper()
	for {
		line, err := c.process.Stdout.ReadLine(ctx)
		if err != nil {
			t.Fatalf("event %s is due, %v: %v", kind, err, c)
		}
		var e copying.Event
		if json.Unmarshal([]byte(line), &e) == nil && e.Event == kind && suits(e) {
			return e
		}
	}
}

// hasBytes suits the progress of who has so many bytes.
func hasBytes(n int64) func(copying.Event) bool {
	return func(e copying.Event) bool { return e.Bytes >= n }
}

const (
	sourceTree = "/tmp/source/tree"
	copiedInto = "/tmp/into"
	// largeBytes are more than all buffers of rocast-cp have together.
	largeBytes = 6<<20 + 123
	// makeTree makes the files of a copy.
	makeTree = `set -e
rm -rf /tmp/source
mkdir -p $0/sub/empty
cd $0
: >nothing
head -c 1 /dev/urandom >sub/one
head -c 1048576 /dev/urandom >sub/piece
head -c $1 /dev/urandom >large
head -c 70000 /dev/urandom >sparse
busybox truncate -s 8M sparse
head -c 5 /dev/urandom >>sparse
chmod 640 sub/piece
busybox touch -d '2020-02-03 04:05:06' large
busybox ln -s large link
`
	// listTree prints what there is of a tree, and how many files have holes.
	listTree = `set -e
cd $0
busybox find . | sort | while read -r f; do
	[ -L "$f" ] && { echo "$f -> $(busybox readlink "$f")"; continue; }
	echo "$f $(busybox stat -c '%F %a %Y' "$f") $([ -d "$f" ] || busybox sha256sum <"$f")"
done
busybox find . -type f | while read -r f; do
	[ $(busybox stat -c %s "$f") -le $(($(busybox stat -c %b "$f") * 512 + 4096)) ] || echo "$f has holes"
done
`
)

// tree makes the files of a copy on the first guest, and a place for them on the others.
func (s *stage) tree(t *testing.T, ctx context.Context, bytes int) {
	t.Helper()
	s.copiers = nil
	_, err := s.Guests[0].Run(ctx, "dash", "-c", makeTree, sourceTree, strconv.Itoa(bytes))
	must(t, err)
	for _, g := range s.Guests[1:] {
		_, err := g.Run(ctx, "dash", "-c", "rm -rf $0 && mkdir $0", copiedInto)
		must(t, err)
	}
}

// same checks that guests have the tree.
func (s *stage) same(t *testing.T, ctx context.Context, guests ...*Guest) {
	t.Helper()
	want, err := s.Guests[0].Run(ctx, "dash", "-c", listTree, sourceTree)
	must(t, err)
	if !strings.Contains(want, "sparse has holes") {
		t.Errorf("the source's files:\n%s", want)
	}
	for _, g := range guests {
		got, err := g.Run(ctx, "dash", "-c", listTree, copiedInto+"/tree")
		must(t, err)
		if got != want {
			t.Errorf("%v has\n%s\nand the source\n%s", g.Addr, got, want)
		}
	}
}

// storyCopy copies a directory to all hosts.
func storyCopy(t *testing.T, ctx context.Context, s *stage) string {
	return s.copyTree(t, ctx, "c1")
}

func (s *stage) copyTree(t *testing.T, ctx context.Context, group string) string {
	t.Helper()
	s.tree(t, ctx, largeBytes)
	began := time.Now()
	source, receivers := s.copiesAll(t, group, []string{sourceTree}, copiedInto)
	for _, c := range append(receivers, source) {
		c.ends(t, ctx, s, 0)
	}
	took := time.Since(began)
	if out := source.process.Stdout.String(); strings.Contains(out, `"event":"way"`) {
		t.Errorf("the group did not carry all: %v", source)
	}
	s.same(t, ctx, s.Guests[1:]...)
	s.noGroups(t, ctx)
	return fmt.Sprintf("a directory at %d hosts in %.1f s: hashes, modes, times and holes equal", len(receivers), took.Seconds())
}

// storyCopyLoss does so where each wire loses RoCE frames.
func storyCopyLoss(t *testing.T, ctx context.Context, s *stage) string {
	end := s.lossy(t)
	did := s.copyTree(t, ctx, "c2")
	lost := end()
	return fmt.Sprintf("%s; %d frames were lost", did, lost)
}

// killInTheMiddle begins a copy, and kills the last receiver when that one has a part of the large
// file.
func (s *stage) killInTheMiddle(t *testing.T, ctx context.Context, group string) (source *copier, others []*copier, killed *Guest) {
	t.Helper()
	s.tree(t, ctx, largeBytes)
	source, receivers := s.copiesAll(t, group, []string{sourceTree, "--rate", "1M"}, copiedInto, "--resume")
	victim := receivers[len(receivers)-1]
	victim.event(t, ctx, copying.Progress, hasBytes(largeBytes/2))
	must(t, victim.process.Signal(syscall.SIGKILL))
	if exit, err := victim.process.Wait(ctx); err != nil || exit.Signal == "" {
		t.Fatalf("it ended with %v, %v before it was killed: %v", exit, err, victim)
	}
	e := source.event(t, ctx, copying.Gone, hasBytes(0))
	if !strings.HasPrefix(e.Host, victim.guest.Addr.String()) {
		t.Errorf("%+v, and %v was killed", e, victim.guest.Addr)
	}
	return source, receivers[:len(receivers)-1], victim.guest
}

// storyCopyKilled kills a receiver in the middle. The source names it, and the others get
// everything. With a further copy and --resume it gets what it lacks, and no more.
func storyCopyKilled(t *testing.T, ctx context.Context, s *stage) string {
	source, others, killed := s.killInTheMiddle(t, ctx, "c3")
	for _, c := range others {
		c.ends(t, ctx, s, 0)
	}
	source.ends(t, ctx, s, 3)
	last := source.process.Stderr.String()
	if !strings.Contains(last, "1 of 3 receivers do not have everything: "+killed.Addr.String()) {
		t.Errorf("the source ends with %q, and %v was killed", last, killed.Addr)
	}
	for _, c := range others {
		s.same(t, ctx, c.guest)
	}
	if out, err := killed.Run(ctx, "dash", "-c", "! [ -e $0/large ]", copiedInto+"/tree"); err != nil {
		t.Errorf("what was interrupted has its name: %v %s", err, out)
	}
	s.noGroups(t, ctx)
	packets := map[roce.PSN]bool{}
	restore := s.filterAll(func(g *Guest, d wire.Direction) wire.Filter {
		return func(frame []byte) wire.Verdict {
			var v roce.View
			if g == killed && d == wire.ToGuest && v.Decode(frame, len(frame)) == nil && v.Opcode.IsRequest() {
				packets[v.PSN(frame)] = true
			}
			return wire.Pass
		}
	})
	source = s.copies(t, s.Guests[0], "c4", 2, "send", sourceTree)
	receiver := s.copies(t, killed, "c4", 2, "recv", copiedInto, "--resume")
	receiver.ends(t, ctx, s, 0)
	source.ends(t, ctx, s, 0)
	restore()
	s.same(t, ctx, killed)
	s.noGroups(t, ctx)
	if whole := (largeBytes + 1<<20) / 4096; len(packets) > whole*3/4 {
		t.Errorf("it got %d packets, and %d are the whole copy", len(packets), whole)
	}
	return fmt.Sprintf("%v killed in the middle and named, %d others have everything; with --resume it got the rest in %d packets", killed.Addr, len(others), len(packets))
}

// storyCopyBackAgain has a killed receiver that comes again while the copy runs. It gets what it
// lacks when the others have everything.
func storyCopyBackAgain(t *testing.T, ctx context.Context, s *stage) string {
	source, others, killed := s.killInTheMiddle(t, ctx, "c5")
	again := s.copies(t, killed, "c5", len(s.Guests), "recv", copiedInto, "--resume")
	for _, c := range append(others, again) {
		c.ends(t, ctx, s, 0)
	}
	source.ends(t, ctx, s, 0)
	s.same(t, ctx, s.Guests[1:]...)
	s.noGroups(t, ctx)
	return fmt.Sprintf("%v killed in the middle, and started again with --resume: all have everything", killed.Addr)
}

// storyCopyBoxKilled kills the box in the middle. The source goes on by TCP.
func storyCopyBoxKilled(t *testing.T, ctx context.Context, s *stage) string {
	s.tree(t, ctx, largeBytes)
	source, receivers := s.copiesAll(t, "c6", []string{sourceTree, "--rate", "1M"}, copiedInto)
	receivers[0].event(t, ctx, copying.Progress, hasBytes(largeBytes/4))
	must(t, s.Kill())
	defer func() { must(t, s.Start(ctx)) }()
	e := source.event(t, ctx, copying.Way, hasBytes(0))
	for _, c := range append(receivers, source) {
		c.ends(t, ctx, s, 0)
	}
	s.same(t, ctx, s.Guests[1:]...)
	return "the box killed in the middle: " + e.Reason
}

// pythonAnswer is a line of python/member.py.
type pythonAnswer struct {
	Event string `json:"event"`
	Hash  string `json:"hash"`
}

// storyPython lets Python programs broadcast into bytearrays and send a stream: the first broadcast
// where nothing is lost, and all else where RoCE frames are.
func storyPython(t *testing.T, ctx context.Context, s *stage) string {
	program, err := os.ReadFile("python/member.py")
	must(t, err)
	var members []*control.Process
	for i, g := range s.Guests {
		const name = "/tmp/member.py"
		must(t, g.Put(ctx, name, program))
		p, err := g.Start(image.Python, "-W", "error", name, net.JoinHostPort(boxAddr, strconv.Itoa(hostPort)), roleOf(i == 0), "p1", strconv.Itoa(len(s.Guests)))
		must(t, err)
		members = append(members, p)
	}
	source := members[0]
	all := func(want string) {
		t.Helper()
		var sent pythonAnswer
		for i, p := range members {
			line, err := p.Stdout.ReadLine(ctx)
			var a pythonAnswer
			if err == nil {
				err = json.Unmarshal([]byte(line), &a)
			}
			if i == 0 {
				sent = a
			}
			if err != nil || a.Event != want || a.Hash != sent.Hash {
				t.Fatalf("%v, %q is due with the hash of %+v: %q, %v\n%s\n%s", s.Guests[i].Addr, want, sent, line, err, p.Stderr, s.Report(ctx))
			}
		}
	}
	next := func() {
		t.Helper()
		_, err := io.WriteString(source, "go\n")
		must(t, err)
	}
	all("joined")
	next()
	all("broadcast")
	end := s.lossy(t)
	next()
	all("broadcast")
	next()
	all("broadcast")
	all("left after 0 fallbacks")
	all("joined")
	next()
	all("stream")
	all("left after 0 fallbacks")
	lost := end()
	for i, p := range members {
		if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
			t.Errorf("%v: %v, %v\n%s", s.Guests[i].Addr, exit, err, p.Stderr)
		}
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("three broadcasts of bytearrays and a stream, %d frames lost, hashes equal", lost)
}
