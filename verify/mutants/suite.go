package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// suite is some tests of one package.
type suite struct {
	dir   string
	flags []string
	limit time.Duration // 0: testLimit
	cpu   int           // seconds; 0: cpuLimit
}

// Quick suites stand before slow ones. Random tests that fail say so without a search for a shorter
// failure, and write nothing down.
var (
	stories       = suite{dir: "feedback", flags: []string{"-test.run=Stories"}}
	otherFeedback = suite{dir: "feedback", flags: []string{"-test.skip=Stories", "-rapid.nofailfile", "-rapid.shrinktime=0s"}}
	smallWorlds   = suite{dir: "verify/model", flags: []string{"-test.run=Worlds", "-test.short"}}

	mergingTests = room{dir: "feedback", suites: []suite{stories, otherFeedback, smallWorlds}}
	nicTests     = room{dir: "internal/rnic", suites: []suite{{dir: "internal/rnic"}}}
	cmTests      = room{dir: "ctl/cm", suites: []suite{{dir: "ctl/cm", flags: []string{"-test.run=Stories|Identification"}}}}
	agentTests   = room{dir: "cmd/rocast-edge/agent", suites: []suite{{dir: "cmd/rocast-edge/agent", flags: []string{"-test.run=Wire"}}}}
	kernelTests  = room{dir: "bpf", suites: []suite{{dir: "bpf", flags: []string{"-test.run=Wide"}}}}
	wideTests    = room{dir: "dataplane/afxdp", suites: []suite{{dir: "dataplane/afxdp", flags: []string{"-test.run=SeveralBuffers|LongPathMTU"}}}}
	engineTests  = room{dir: "dataplane", suites: []suite{{dir: "dataplane"}, {dir: "verify/sim", flags: []string{"-test.run=Seeds|MadeAgain|Rack", "-test.short"}}}}
)

const (
	// cpuLimit bounds the CPU time of the tests in seconds: with some mutants they do not end. Time
	// alone would take a busy machine for such a mutant. testLimit is for mutants that wait for
	// ever, and should hardly be reached: most tests bound what they wait for.
	cpuLimit  = 120
	testLimit = 10 * time.Minute
	// A suite may take slack times what it takes without a mutant, and load for whatever else runs.
	slack, load = 10, 3 * time.Second
	// The tests get ending to print where they hang before they are killed. A mutant that hangs
	// while a package is initialized, before the tests watch their time, prints nothing.
	ending = 3 * time.Second
	// buildLimit bounds the compilation of a suite, and should never be reached.
	buildLimit = 10 * time.Minute
	// memoryLimit bounds the address space of the tests in KiB: with some mutants they only grow.
	memoryLimit = "8000000"
)

// errCompile says that a mutant does not compile.
var errCompile = errors.New("compile")

// run returns the test that fails. dir is for the test binary.
func (s suite) run(dir, overlay string) (noticer, error) {
	binary, err := s.build(dir, overlay)
	if err != nil {
		return noticer{}, err
	}
	return s.test(binary)
}

// pass fails if the tests fail without a mutant, and bounds their time by what they take.
func (s *suite) pass(dir, overlay string) error {
	binary, err := s.build(dir, overlay)
	if err != nil {
		return err
	}
	start := time.Now()
	noticed, err := s.test(binary)
	s.limit = slack*time.Since(start) + load
	if err == nil && noticed != (noticer{}) {
		err = fmt.Errorf("without any mutant there fails %q in %s", noticed, s.dir)
	}
	return err
}

// build compiles the tests.
func (s suite) build(dir, overlay string) (binary string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	binary = filepath.Join(dir, strings.ReplaceAll(s.dir, "/", "-")+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./"+s.dir)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errCompile, err, out)
	}
	return binary, nil
}

// test returns the test that fails.
func (s suite) test(binary string, env ...string) (noticer, error) {
	limit := cmp.Or(s.limit, testLimit)
	ctx, cancel := context.WithTimeout(context.Background(), limit+ending)
	defer cancel()
	limited := []string{"-c", `ip link set lo up 2>/dev/null; ulimit -v ` + memoryLimit + `; ulimit -t ` + strconv.Itoa(cmp.Or(s.cpu, cpuLimit)) + `; exec "$0" "$@"`, binary, "-test.failfast",
		"-test.timeout=" + limit.String()}
	test := exec.CommandContext(ctx, "sh", append(limited, s.flags...)...)
	test.Dir = s.dir
	if os.Geteuid() == 0 {
		// Two runs of a test that listens on a fixed port would disturb each other.
		test.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	test.Env = append(test.Environ(), env...)
	out, err := test.CombinedOutput()
	switch {
	case err == nil:
		return noticer{}, nil
	case ctx.Err() != nil, killed(test), bytes.Contains(out, []byte("panic: test timed out")):
		return noticer{dir: s.dir, all: "tests do not end"}, nil
	}
	return s.failed(out)
}

// killed reports whether a command was killed, as at the limit of its CPU time.
func killed(c *exec.Cmd) bool {
	status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGXCPU)
}

var failed = regexp.MustCompile(`--- FAIL: (\S+)`)

// failed returns the deepest test that failed.
func (s suite) failed(out []byte) (noticer, error) {
	name := ""
	for _, m := range failed.FindAllSubmatch(out, -1) {
		if n := string(m[1]); len(n) > len(name) {
			name = n
		}
	}
	switch {
	case name == "" && bytes.Contains(out, []byte("panic: ")), bytes.Contains(out, []byte("fatal error: ")):
		return noticer{dir: s.dir, all: "tests crash"}, nil
	case name == "":
		return noticer{}, fmt.Errorf("%s: tests fail and name none:\n%s", s.dir, out)
	}
	return noticer{dir: s.dir, test: name}, nil
}
