//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
	"github.com/rocast/rocast/test/softroce/wire"
)

const (
	mpiMemoryMiB = 768 // of a guest: two buffers of 16 MiB for each rank, and both MPI libraries
	mpiLimit     = 10 * time.Minute

	// abortLimit is how long the launcher may take to end the job after a rank was killed.
	abortLimit = 60 * time.Second

	// mpichExitLimit is how long a job with MPICH may take for MPI_Finalize before it counts as
	// one that hangs there.
	mpichExitLimit = 10 * time.Second
)

// mpiStage is a lab whose guests have MPI libraries, with rocast in its box.
type mpiStage struct {
	*Lab
	*rocast
	mpi image.MPI
}

// mpiRun is one run of a program on all guests.
type mpiRun struct {
	ranks   int    // on each guest; 0: 1
	box     string // where the library looks for the box; "": where it is; "none": nowhere
	verbose bool
	args    []string
}

// TestMPI runs programs that broadcast by MPI_Bcast, with both MPI libraries, on four guests.
func TestMPI(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	var table strings.Builder
	defer func() { t.Log("\n" + table.String()) }()
	kernels := []string{"6.12", "6.1"}
	if testing.Short() {
		kernels = kernels[:1]
	}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			l := openLab(t, Config{Kernel: kernel, Guests: 4, MTU: MTU4096, MemoryMiB: mpiMemoryMiB, MPI: true})
			r := startRocast(t, testContext(t, time.Minute), l, inNamespaceOf{l.Box.(*Namespace), bin, t.TempDir(), boxAddr})
			l.serveShells(t, testContext(t, time.Minute))
			for _, mpi := range image.MPIs(*ofHosts) {
				t.Run(mpi.Name, func(t *testing.T) {
					s := &mpiStage{l, r, mpi}
					for _, story := range mpiStories {
						t.Run(story.name, func(t *testing.T) {
							began := time.Now()
							did := story.run(t, testContext(t, mpiLimit), s)
							t.Log(did)
							fmt.Fprintf(&table, "%s, %s, %s (%.0f s): %s\n", kernel, mpi.Name, story.name, time.Since(began).Seconds(), did)
						})
					}
				})
			}
		})
	}
}

var mpiStories = []struct {
	name string
	run  func(*testing.T, context.Context, *mpiStage) string
}{
	{"alone", storyMPIAlone},
	{"sizes", storyMPISizes},
	{"two ranks a host", storyMPIRanks},
	{"types", storyMPITypes},
	{"communicators", storyMPICommunicators},
	{"splits", storyMPISplits},
	{"panels", storyMPIPanels},
	{"loss", storyMPILoss},
	{"no box", storyMPINoBox},
	{"box killed", storyMPIBoxKilled},
	{"rank killed", storyMPIRankKilled},
}

const (
	// What the library says with ROCAST_VERBOSE.
	byGroup = "by a group"
	noGroup = "no group: "
	byMPI   = "goes by the MPI library from now on: "
)

// serveShells makes the guests hosts of an MPI job: with names, shared memory, and a shell that the
// launchers reach.
func (l *Lab) serveShells(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, g := range l.Guests {
		_, err := g.Run(ctx, "dash", "-c", fmt.Sprintf(`set -e
echo guest%d >/proc/sys/kernel/hostname
mkdir -p /dev/shm
busybox mount -t tmpfs tmpfs /dev/shm`, g.Number))
		must(t, err)
		_, err = g.Start("busybox", "nc", "-ll", "-p", image.ShellPort, "-e", "/bin/sh")
		must(t, err)
		port, err := strconv.Atoi(image.ShellPort)
		must(t, err)
		_, err = g.Run(ctx, "dash", "-c", fmt.Sprintf("until grep -q ':%04X .*:0000 %s' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done", port, stateListen))
		must(t, err)
	}
}

// command is the command line of a run, as a user of the library types it.
func (s *mpiStage) command(o mpiRun) []string {
	var hosts []string
	ranks := max(o.ranks, 1)
	program := slices.Clone(o.args)
	program[0] += "." + s.mpi.Name
	if o.box == "" {
		o.box = fmt.Sprintf("%s:%d", boxAddr, hostPort)
	}
	environment := []string{"LD_PRELOAD=" + s.mpi.Preload()}
	if o.box != "none" {
		environment = append(environment, "ROCAST_BOX="+o.box)
	}
	if o.verbose {
		environment = append(environment, "ROCAST_VERBOSE=1")
	}
	number := strconv.Itoa(ranks * len(s.Guests))
	switch s.mpi.Name {
	case "openmpi":
		// Open MPI 5.0 does not know its own host by an address, and then has too few slots.
		hosts = append(hosts, fmt.Sprintf("guest%d:%d", s.Guests[0].Number, ranks))
		for _, g := range s.Guests[1:] {
			hosts = append(hosts, fmt.Sprintf("%v:%d", g.Addr, ranks))
		}
		command := append(slices.Clone(s.mpi.Launcher),
			"--allow-run-as-root", "--host", strings.Join(hosts, ","), "-n", number, "--bind-to", "none",
			"--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "eth0")
		for _, e := range environment {
			command = append(command, "-x", e)
		}
		return append(command, program...)
	default:
		for _, g := range s.Guests {
			hosts = append(hosts, g.Addr.String())
		}
		command := append(slices.Clone(s.mpi.Launcher), "-hosts", strings.Join(hosts, ","), "-n", number, "-ppn", strconv.Itoa(ranks))
		for _, e := range append(environment, "UCX_TLS=tcp,self,posix", "UCX_NET_DEVICES=eth0") {
			name, value, _ := strings.Cut(e, "=")
			command = append(command, "-genv", name, value)
		}
		return append(command, program...)
	}
}

func (s *mpiStage) start(t *testing.T, o mpiRun) *control.Process {
	t.Helper()
	p, err := s.Guests[0].Start(s.command(o)...)
	must(t, err)
	return p
}

// play runs a program to its end. The program has checked what it got, and its groups are left.
func (s *mpiStage) play(t *testing.T, ctx context.Context, o mpiRun) (stdout, stderr string) {
	t.Helper()
	before := len(s.groups(t, ctx))
	p := s.start(t, o)
	err := s.awaitLine(ctx, p, " done")
	for err == nil && len(s.groups(t, ctx)) > before {
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("groups are left: %w", err)
		}
	}
	if err == nil {
		err = s.awaitExit(t, ctx, p)
	}
	stdout, stderr = p.Stdout.String(), p.Stderr.String()
	if err != nil {
		t.Fatalf("%v: %v\n%s\n%s\n%s", o.args, err, stdout, stderr, s.Report(context.WithoutCancel(ctx)))
	}
	return stdout, stderr
}

func (s *mpiStage) groups(t *testing.T, ctx context.Context) []api.GroupSummary {
	t.Helper()
	var list api.Groups
	out, err := s.ask(ctx, "group", "ls")
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return list.Groups
}

// awaitLine returns when the program has printed a line that ends so.
func (s *mpiStage) awaitLine(ctx context.Context, p *control.Process, end string) error {
	for {
		line, err := p.Stdout.ReadLine(ctx)
		if err != nil {
			return fmt.Errorf("await a line that ends with %q: %w", end, err)
		}
		if strings.HasSuffix(line, end) {
			return nil
		}
	}
}

// awaitExit waits for the launcher. Debian's MPICH may hang in MPI_Finalize over TCP, without
// librocast-mpi too: a rank waits for an answer of another one, which waits for the launcher and
// reads no messages any more. Such a job is ended.
func (s *mpiStage) awaitExit(t *testing.T, ctx context.Context, p *control.Process) error {
	limited := ctx
	if s.mpi.Name == "mpich" {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, mpichExitLimit)
		defer cancel()
	}
	exit, err := p.Wait(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		t.Logf("MPICH has not come to the end of MPI_Finalize within %v", mpichExitLimit)
		return s.gone(ctx)
	}
	if err == nil && !exit.OK() {
		err = errors.New(exit.String())
	}
	return err
}

// said checks how often the library has said something.
func said(t *testing.T, stderr, what string, times int) {
	t.Helper()
	if n := strings.Count(stderr, what); n != times {
		t.Errorf("%q was said %d times, want %d:\n%s", what, n, times, stderr)
	}
}

// forwarded is how many data packets the box has sent to receivers.
func (s *mpiStage) forwarded(t *testing.T, ctx context.Context) uint64 {
	t.Helper()
	counters, err := s.Counters(ctx)
	must(t, err)
	return counters["forwarded"]
}

// carries runs a program whose broadcasts in all large communicators go by groups.
func (s *mpiStage) carries(t *testing.T, ctx context.Context, o mpiRun, groups int) (stdout string) {
	t.Helper()
	before := s.forwarded(t, ctx)
	o.verbose = true
	stdout, stderr := s.play(t, ctx, o)
	said(t, stderr, byGroup, groups)
	said(t, stderr, noGroup, 0)
	said(t, stderr, byMPI, 0)
	if s.forwarded(t, ctx) == before {
		t.Error("the box has forwarded nothing")
	}
	return stdout
}

// storyMPIAlone has no box in its environment: nothing goes by a group.
func storyMPIAlone(t *testing.T, ctx context.Context, s *mpiStage) string {
	before := s.forwarded(t, ctx)
	_, stderr := s.play(t, ctx, mpiRun{box: "none", verbose: true, args: []string{"check", "types"}})
	said(t, stderr, "rocast: ", 0)
	if s.forwarded(t, ctx) != before {
		t.Error("the box has forwarded packets")
	}
	return "as without the library"
}

// storyMPISizes broadcasts every size from every rank, and compares the times with those of the MPI
// library's own broadcast.
func storyMPISizes(t *testing.T, ctx context.Context, s *mpiStage) string {
	out := s.carries(t, ctx, mpiRun{args: []string{"check", "sizes"}}, 1)
	return "milliseconds by the group and by the MPI library itself, each hash equal:\n" + out
}

func storyMPIRanks(t *testing.T, ctx context.Context, s *mpiStage) string {
	out := s.carries(t, ctx, mpiRun{ranks: 2, args: []string{"check", "sizes", "1048576"}}, 1)
	return out
}

// storyMPITypes also shows that the library is silent.
func storyMPITypes(t *testing.T, ctx context.Context, s *mpiStage) string {
	before := s.forwarded(t, ctx)
	_, stderr := s.play(t, ctx, mpiRun{args: []string{"check", "types"}})
	said(t, stderr, "rocast: ", 0)
	if s.forwarded(t, ctx) == before {
		t.Error("the box has forwarded nothing")
	}
	return "16 pairs of datatypes at the root and at the others"
}

// storyMPICommunicators has groups for two communicators, and none for an intercommunicator.
func storyMPICommunicators(t *testing.T, ctx context.Context, s *mpiStage) string {
	out := s.carries(t, ctx, mpiRun{args: []string{"check", "communicators"}}, 2)
	_, stderr := s.play(t, ctx, mpiRun{verbose: true, args: []string{"check", "intercommunicator"}})
	said(t, stderr, byGroup, 0)
	return strings.TrimSpace(out)
}

// storyMPISplits makes communicators and frees them in a loop: each has a group, and none is left.
func storyMPISplits(t *testing.T, ctx context.Context, s *mpiStage) string {
	s.carries(t, ctx, mpiRun{args: []string{"check", "splits", "6"}}, 6)
	return "6 groups one after the other"
}

func storyMPIPanels(t *testing.T, ctx context.Context, s *mpiStage) string {
	return strings.TrimSpace(s.carries(t, ctx, mpiRun{args: []string{"panel", "768", "128"}}, 1))
}

// storyMPILoss loses a share of all RoCE frames on all wires.
func storyMPILoss(t *testing.T, ctx context.Context, s *mpiStage) string {
	all := func(*roce.View, []byte) bool { return true }
	dropped := func() (n uint64) {
		for _, g := range s.Guests {
			n += g.Wire.Counts(wire.ToGuest).Dropped + g.Wire.Counts(wire.ToBox).Dropped
		}
		return n
	}
	before := dropped()
	for i, g := range s.Guests {
		g.Wire.SetFilter(wire.ToGuest, wire.RandomLoss(uint64(2*i+1), 0.003, all))
		g.Wire.SetFilter(wire.ToBox, wire.RandomLoss(uint64(2*i+2), 0.003, all))
		defer g.Wire.SetFilter(wire.ToGuest, nil)
		defer g.Wire.SetFilter(wire.ToBox, nil)
	}
	s.carries(t, ctx, mpiRun{args: []string{"check", "loop", "8", strconv.Itoa(3 << 20)}}, 1)
	lost := dropped() - before
	if lost == 0 {
		t.Error("nothing was lost")
	}
	return fmt.Sprintf("%d frames lost in 8 broadcasts of 3 MiB, hashes equal", lost)
}

// storyMPINoBox has a box that does not answer, and one that no host can reach.
func storyMPINoBox(t *testing.T, ctx context.Context, s *mpiStage) string {
	_, stderr := s.play(t, ctx, mpiRun{box: boxAddr + ":1", args: []string{"check", "types"}})
	said(t, stderr, "rocast: ", 0)
	_, stderr = s.play(t, ctx, mpiRun{box: boxAddr + ":1", verbose: true, args: []string{"check", "types"}})
	said(t, stderr, "rocast: ", 1)
	said(t, stderr, noGroup, 1)
	return strings.TrimSpace(stderr)
}

// storyMPIBoxKilled kills the daemon between two broadcasts. The program comes to its end.
func storyMPIBoxKilled(t *testing.T, ctx context.Context, s *mpiStage) string {
	p := s.start(t, mpiRun{verbose: true, args: []string{"check", "loop", "6", strconv.Itoa(2 << 20)}})
	s.awaitBroadcast(t, ctx, p, 2)
	must(t, s.Kill())
	defer func() { must(t, s.Start(ctx)) }()
	err := s.awaitLine(ctx, p, " done")
	if err == nil {
		err = s.awaitExit(t, ctx, p)
	}
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, p.Stdout, p.Stderr)
	}
	said(t, p.Stderr.String(), byGroup, 1)
	said(t, p.Stderr.String(), byMPI, 1)
	return strings.TrimSpace(p.Stderr.String())
}

// awaitBroadcast returns when the program has done a broadcast.
func (s *mpiStage) awaitBroadcast(t *testing.T, ctx context.Context, p *control.Process, number int) {
	t.Helper()
	for {
		line, err := p.Stdout.ReadLine(ctx)
		if err != nil {
			t.Fatalf("await broadcast %d: %v\n%s", number, err, p.Stderr)
		}
		if strings.HasPrefix(line, fmt.Sprintf("broadcast %d ", number)) {
			return
		}
	}
}

// gone returns when none of the programs runs on any guest. Zombies do not count: process 1 of a
// guest leaves those of others as they are.
func (s *mpiStage) gone(ctx context.Context) error {
	script := fmt.Sprintf(`alive() {
	for p in $(busybox pidof check.%[1]s panel.%[1]s); do grep -q 'State:.[^ZX]' /proc/$p/status 2>/dev/null && return 0; done
	return 1
}
while alive; do sleep 0.1; done`, s.mpi.Name)
	for _, g := range s.Guests {
		if _, err := g.Run(ctx, "dash", "-c", script); err != nil {
			return fmt.Errorf("ranks are left: %w", err)
		}
	}
	return nil
}

// storyMPIRankKilled kills a rank during a broadcast. The launcher ends the job, as without the
// library, and the next job has a group again. The box ends the group of the killed job, which
// nobody has left. Those of a job that ended while the box was away stay until they are removed.
func storyMPIRankKilled(t *testing.T, ctx context.Context, s *mpiStage) string {
	before := s.groups(t, ctx)
	p := s.start(t, mpiRun{args: []string{"check", "loop", "0", strconv.Itoa(4 << 20)}})
	s.awaitBroadcast(t, ctx, p, 2)
	killed := s.groups(t, ctx)
	_, err := s.Guests[2].Run(ctx, "dash", "-c", "kill -9 $(busybox pidof check."+s.mpi.Name+")")
	must(t, err)
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, abortLimit)
	defer cancel()
	if exit, err := p.Wait(limited); err != nil || exit.OK() {
		t.Fatalf("the launcher ends with %v, %v\n%s", exit, err, p.Stderr)
	}
	took := time.Since(began)
	if err := s.gone(limited); err != nil {
		t.Error(err)
	}
	s.carries(t, ctx, mpiRun{args: []string{"check", "loop", "2", strconv.Itoa(1 << 20)}}, 1)
	if len(killed) != len(before)+1 {
		t.Fatalf("groups %+v, and while the job ran %+v", before, killed)
	}
	for len(s.groups(t, ctx)) > len(before) {
		if ctx.Err() != nil {
			t.Fatalf("the group of the killed job is left\n%s", s.Report(context.WithoutCancel(ctx)))
		}
	}
	must(t, ctx.Err())
	for _, g := range before {
		_, err := s.ask(ctx, "group", "rm", g.Name)
		must(t, err)
	}
	return fmt.Sprintf("the job has ended after %.1f s, the next one has a group, and the box has ended that of the first one; %d older ones were removed",
		took.Seconds(), len(before))
}
