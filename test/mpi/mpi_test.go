package mpi

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var installed = flag.Bool("installed", false, "run the tests that need Open MPI and MPICH; make mpi installs them")

// needs leaves the test out, unless make mpi runs it: also where the MPI libraries are installed,
// because ranks that wait spin, for minutes.
func needs(t *testing.T) {
	t.Helper()
	if !*installed {
		t.Skip("needs Open MPI and MPICH, and minutes; make mpi runs it")
	}
}

// limit is how long a run may take. A run that hangs takes longer.
const limit = 3 * time.Minute

// library is an MPI library of this machine.
type library struct {
	name     string
	compiler string
	launcher []string
	set      string // the launcher's option in front of a variable
	assigned string // between its name and its value
}

var libraries = []library{
	{
		name: "openmpi", compiler: "mpicc.openmpi", set: "-x", assigned: "=",
		launcher: []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
			"--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", "--mca", "btl_tcp_if_include", "lo",
			"--mca", "btl_vader_single_copy_mechanism", "none"},
	},
	{
		name: "mpich", compiler: "mpicc.mpich", set: "-genv", assigned: " ",
		launcher: []string{"mpiexec.hydra", "-launcher", "fork"},
	},
}

// What the library says with ROCAST_VERBOSE.
const (
	byGroup = "by a group"
	noGroup = "no group: "
	byMPI   = "goes by the MPI library from now on: "
)

// run is a program with its environment, and what the library says of it.
type run struct {
	name        string
	ranks       int
	args        []string
	environment []string
	says        map[string]int // how often; what is not named is not said
}

var runs = []run{
	{"sizes", 4, []string{"check", "sizes", "4194304"}, nil, map[string]int{byGroup: 1}},
	{"nodes of two ranks", 6, []string{"check", "sizes", "262144"}, []string{"FAKE_RANKS=2"}, map[string]int{byGroup: 1}},
	{"two nodes", 2, []string{"check", "types"}, nil, nil},
	{"types", 4, []string{"check", "types"}, nil, map[string]int{byGroup: 1}},
	{"types, nodes of two ranks", 6, []string{"check", "types"}, []string{"FAKE_RANKS=2"}, map[string]int{byGroup: 1}},
	{"communicators", 4, []string{"check", "communicators"}, nil, map[string]int{byGroup: 2}},
	{"intercommunicator", 6, []string{"check", "intercommunicator"}, nil, nil},
	{"panels", 4, []string{"panel", "512", "64"}, nil, map[string]int{byGroup: 1}},
	{"small ones", 4, []string{"check", "loop", "4", "65535"}, nil, nil},
	{"the size is set", 4, []string{"check", "loop", "4", "1000"}, []string{"ROCAST_MPI_BYTES=1000"}, map[string]int{byGroup: 1}},
	{"below the size that is set", 4, []string{"check", "loop", "4", "999"}, []string{"ROCAST_MPI_BYTES=1000"}, nil},

	{"broadcasts that do not wait", 4, []string{"check", "nonblocking"}, nil, map[string]int{byGroup: 1}},

	{"one rank cannot keep a channel", 4, []string{"check", "loop", "3", "100000"}, []string{"FAKE_KEEP=2"}, map[string]int{byGroup: 1}},
	{"one rank cannot keep its only channel", 4, []string{"check", "loop", "1", "100000"}, []string{"FAKE_KEEP=0"}, nil},
	{"an attribute is not deleted", 4, []string{"check", "loop", "2", "100000"}, []string{"FAKE_DELETE=1"}, map[string]int{byGroup: 1}},
	{"no device at one rank", 4, []string{"check", "types"}, []string{"FAKE_OPEN=2"}, map[string]int{noGroup + "no device": 1}},
	{"refused at one rank", 4, []string{"check", "types"}, []string{"FAKE_JOIN=0"}, map[string]int{noGroup + "refused": 1}},
	{"a policy that spares ranks", 4, []string{"check", "types"}, []string{"ROCAST_POLICY=nak=lower,evict=true"}, map[string]int{noGroup + "ROCAST_POLICY lets a group go on without some ranks": 1}},
	{"a policy", 4, []string{"check", "types"}, []string{"ROCAST_POLICY=nak=lower,repair=off"}, map[string]int{byGroup: 1}},
	{"no device each time", 4, []string{"check", "splits", "5"}, []string{"FAKE_OPEN=0"}, map[string]int{noGroup + "no device": 3}},
	{"a write fails", 4, []string{"check", "loop", "8", "3000000"}, []string{"FAKE_WRITE=1,4"}, map[string]int{byGroup: 1, byMPI: 1}},
	{"the first write fails", 4, []string{"check", "loop", "8", "3000000"}, []string{"FAKE_WRITE=0,1"}, map[string]int{byGroup: 1, byMPI: 1}},
	{"a receiver fails", 4, []string{"check", "loop", "8", "3000000"}, []string{"FAKE_POLL=2,7"}, map[string]int{byGroup: 1, byMPI: 1}},
	{"a receiver fails, nodes of two ranks", 6, []string{"check", "loop", "8", "9000000"}, []string{"FAKE_POLL=2,20", "FAKE_RANKS=2"}, map[string]int{byGroup: 1, byMPI: 1}},
	{"source and receiver fail", 4, []string{"check", "loop", "8", "9000000"}, []string{"FAKE_POLL=2,1", "FAKE_WRITE=0,1"}, map[string]int{byGroup: 1, byMPI: 1}},
	{"types, a write fails", 4, []string{"check", "types"}, []string{"FAKE_WRITE=3,2"}, map[string]int{byGroup: 1, byMPI: 1}},
	{"one of two communicators fails", 4, []string{"check", "communicators"}, []string{"FAKE_WRITE=3,3"}, map[string]int{byGroup: 2, byMPI: 1}},
}

// onlyRuns are those that differ, by the name of the MPI library. Debian's MPICH cannot spawn, and
// Open MPI has more communicators than a test can make.
var onlyRuns = map[string][]run{
	"openmpi": {
		{"faults", 4, []string{"check", "faults"}, nil, map[string]int{byGroup: 5, byMPI: 3}},
		{"live communicators", 3, []string{"check", "live", "66"}, nil, map[string]int{byGroup: 64, noGroup + "the program has 64": 2}},
		{"faults, nodes of two ranks", 6, []string{"check", "faults"}, []string{"FAKE_RANKS=2"}, map[string]int{byGroup: 5, byMPI: 3}},
		{"splits", 3, []string{"check", "splits", "66"}, nil, map[string]int{byGroup: 66}},
		{"spawn", 3, []string{"check", "spawn"}, nil, nil},
	},
	"mpich": {
		{"faults", 4, []string{"check", "faults"}, nil, map[string]int{byGroup: 3, byMPI: 1}},
		{"splits", 3, []string{"check", "splits", "6"}, nil, map[string]int{byGroup: 6}},
		{"no communicator is left", 3, []string{"check", "exhausted"}, nil, nil},
	},
}

func TestBroadcasts(t *testing.T) {
	needs(t)
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			dir := l.build(t)
			for _, r := range slices.Concat(runs, onlyRuns[l.name]) {
				t.Run(r.name, func(t *testing.T) {
					stderr := l.launch(t, dir, append(r.environment, preload(dir), "ROCAST_BOX=fake", "ROCAST_VERBOSE=1"), r.ranks, r.args)
					for _, what := range []string{byGroup, noGroup, byMPI} {
						want := 0
						for text, times := range r.says {
							if strings.HasPrefix(text, what) {
								what, want = text, times
							}
						}
						if n := strings.Count(stderr, what); n != want {
							t.Errorf("%q was said %d times, want %d:\n%s", what, n, want, stderr)
						}
					}
				})
			}
		})
	}
}

// Without ROCAST_VERBOSE the library says nothing, and without ROCAST_BOX it does nothing.
func TestSilence(t *testing.T) {
	needs(t)
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			dir := l.build(t)
			for _, environment := range [][]string{
				{"ROCAST_BOX=fake", "FAKE_OPEN=2"},
				{"ROCAST_BOX=fake", "FAKE_WRITE=1,1"},
				{"ROCAST_VERBOSE=1"},
			} {
				if stderr := l.launch(t, dir, append(environment, preload(dir)), 4, []string{"check", "types"}); strings.Contains(stderr, "rocast: ") {
					t.Errorf("%v: %s", environment, stderr)
				}
			}
		})
	}
}

// preload loads the library that build has built.
func preload(dir string) string { return "LD_PRELOAD=" + filepath.Join(dir, "preload.so") }

// build builds the library, with the stand-in for librocast, and the programs.
func (l library) build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	sources, err := filepath.Glob("../../host/mpi/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources of the library: %v", err)
	}
	l.compile(t, filepath.Join(dir, "preload.so"), append(sources, "fake/librocast.c"), "-shared", "-fPIC", "-fvisibility=hidden",
		"-Wl,--wrap=PMPI_Comm_set_attr,--wrap=PMPI_Comm_delete_attr")
	for _, program := range []string{"check", "panel"} {
		l.compile(t, filepath.Join(dir, program), []string{"programs/" + program + ".c"}, "-pthread", "-lm")
	}
	return dir
}

func (l library) compile(t *testing.T, target string, sources []string, rest ...string) {
	t.Helper()
	args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", target}, sources...)
	if out, err := exec.Command(l.compiler, append(args, rest...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", target, err, out)
	}
}

// launch runs a program of dir to its end. The program has checked what it got.
func (l library) launch(t *testing.T, dir string, environment []string, ranks int, args []string) (stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	command := append([]string{}, l.launcher...)
	for _, e := range environment {
		name, value, _ := strings.Cut(e, "=")
		command = append(command, l.set)
		command = append(command, strings.Split(name+l.assigned+value, " ")...)
	}
	command = append(command, "-n", strconv.Itoa(ranks), filepath.Join(dir, args[0]))
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], args[1:]...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the launcher ends the ranks
	cmd.WaitDelay = 10 * time.Second
	var stdout, said strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &said
	err := cmd.Run()
	if err == nil && !strings.HasSuffix(stdout.String(), " done\n") {
		err = errors.New("the program has not come to its end")
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s\n%s", args, err, &stdout, &said)
	}
	return said.String()
}
