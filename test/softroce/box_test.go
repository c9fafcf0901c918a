//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// boxKernels are the kernels of a box that is a guest.
var boxKernels = []string{"6.1", "6.12"}

// TestBoxKernel runs the tests of the packages that use the kernel in a guest, and so on another
// kernel than that of this machine.
func TestBoxKernel(t *testing.T) {
	tests := buildTests(t, testContext(t, 5*time.Minute), "bpf", "bpf/edge", "dataplane/xsk", "dataplane/afxdp")
	for _, kernel := range boxKernels {
		t.Run(kernel, func(t *testing.T) {
			l := openLab(t, Config{Kernel: kernel, MTU: MTU1024, BoxNICs: []nicModel{}})
			site := inGuest{l.Box.(*BoxGuest)}
			must(t, site.install(testContext(t, time.Minute), tests))
			programs, err := os.ReadDir(tests)
			must(t, err)
			for _, program := range programs {
				t.Run(program.Name(), func(t *testing.T) { site.runTests(t, program.Name()) })
			}
		})
	}
}

// buildTests builds the tests of packages of this tree.
func buildTests(t *testing.T, ctx context.Context, packages ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range packages {
		program := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags", "-s -w", "-o", program, "./"+name)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the tests of %s: %v\n%s", name, err, out)
		}
	}
	return dir
}

// testLimit bounds the tests of one package in a guest.
const testLimit = 5 * time.Minute

// twoCPUs matches the tests that need two CPUs. A guest has one.
const twoCPUs = "^(TestALostSwapDisarms|TestWhatAsksIsNotedInFrontOfTheSwap|TestARetainedPacketIsWhole)$"

// runTests runs a test program and reports which tests it has skipped.
func (p inGuest) runTests(t *testing.T, program string) {
	out, err := p.box.Run(testContext(t, testLimit), p.path(program),
		"-test.v", "-test.short", "-test.skip", twoCPUs, "-test.timeout", testLimit.String())
	passed := 0
	var skipped []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "--- PASS: ") {
			passed++
		}
		if name, ok := strings.CutPrefix(line, "--- SKIP: "); ok {
			skipped = append(skipped, strings.Fields(name)[0])
		}
	}
	t.Logf("%s: %d tests passed on %s; skipped %v", program, passed, p.box.Kernel, skipped)
	if err != nil || passed == 0 {
		t.Errorf("%v\n%s", err, out[max(0, len(out)-16<<10):])
	}
}

// boxRun is one run of rocastd in a box that is a guest.
type boxRun struct {
	kernel  string
	config  string // of rocastd
	mtu     int    // of the ports
	stories []string
	ports   []string // the classifier's place and the socket's mode of each port, after the stories
	refused string   // rocastd does not start, and the error has these words
	missing []string // the features that this kernel lacks
	carried bool     // the kernel has to carry packets
}

var (
	// mixedNICs are a NIC with native XDP on both kernels, one with native XDP without room for
	// metadata on 6.12, and one without native XDP.
	mixedNICs  = []nicModel{virtioNet, virtioNet, vmxnet3, e1000e}
	fourDeaf   = []nicModel{virtioNetDeaf, virtioNetDeaf, virtioNetDeaf, virtioNetDeaf}
	fourVirtio = []nicModel{virtioNetDMA, virtioNetDMA, virtioNetDMA, virtioNetDMA}

	plainStories = []string{"write", "loss on a leg"}
	allGeneric   = []string{"generic generic", "generic generic", "generic generic", "generic generic"}
	allNative    = []string{"native copy", "native copy", "native copy", "native copy"}
	someNative   = []string{"native copy", "native copy", "generic generic", "generic generic"}

	allZeroCopy = []string{"native zero-copy", "native zero-copy", "native zero-copy", "native zero-copy"}

	missing61  = []string{"multi-buffer", "kick-budget", "kernel-multi-buffer"}
	missing612 = []string{"kick-budget"}
)

// boxRuns are the tests of TestBoxNICs. docs/install.md has the results as a table.
var boxRuns = []struct {
	nics []nicModel
	runs []boxRun
}{
	{mixedNICs, []boxRun{
		{kernel: "6.1", config: "mode: copy", mtu: MTU1024, stories: plainStories, ports: someNative, missing: missing61},
		{kernel: "6.1", config: "mode: generic", mtu: MTU1024, stories: plainStories, ports: allGeneric, missing: missing61},
		// One buffer is too short for the MTU, and this kernel has no more.
		{kernel: "6.1", config: "mode: copy", mtu: MTU4096, stories: plainStories, ports: allGeneric, missing: missing61},
		{kernel: "6.12", config: "mode: copy", mtu: MTU1024, stories: plainStories, ports: someNative, missing: missing612},
		{kernel: "6.12", config: "mode: generic", mtu: MTU1024, stories: plainStories, ports: allGeneric, missing: missing612},
		{kernel: "6.12", config: "mode: copy", mtu: MTU4096, stories: []string{"path MTU"}, ports: someNative, missing: missing612},
	}},
	{fourDeaf, []boxRun{
		{kernel: "6.12", config: "mode: copy", mtu: MTU1024, stories: plainStories, ports: allGeneric, missing: missing612},
	}},
	{fourVirtio, []boxRun{
		{kernel: "6.1", config: "engine: auto", mtu: MTU1024, stories: plainStories, ports: allNative, missing: missing61, carried: true},
		{kernel: "6.1", config: "mode: zero-copy", mtu: MTU1024, refused: "the device has no zero-copy"},
		{kernel: "6.12", config: "engine: auto", mtu: MTU1024, stories: plainStories, ports: allNative, missing: missing612, carried: true},
		{kernel: "6.12", config: "mode: zero-copy", mtu: MTU1024, refused: "the device has no zero-copy"},
		{kernel: "6.18", config: "mode: zero-copy\nengine: afxdp", mtu: MTU1024, stories: plainStories, ports: allZeroCopy},
		{kernel: "6.18", config: "engine: auto", mtu: MTU1024, stories: plainStories, ports: allNative, carried: true},
	}},
}

// TestBoxNICs checks data integrity on rxe hosts through rocast in a box that is a guest, with each
// NIC model and each mode of a port.
func TestBoxNICs(t *testing.T) {
	bin := buildRocast(t, testContext(t, 5*time.Minute))
	for _, kernel := range append([]string{"6.18"}, boxKernels...) {
		for _, lab := range boxRuns {
			if !slices.ContainsFunc(lab.runs, func(r boxRun) bool { return r.kernel == kernel }) {
				continue
			}
			t.Run(kernel+" "+labName(lab.nics[len(lab.nics)-1]), func(t *testing.T) {
				l := openLab(t, Config{Kernel: kernel, Guests: len(lab.nics), MTU: MTU1024, BoxNICs: lab.nics})
				site := inGuest{l.Box.(*BoxGuest)}
				must(t, site.install(testContext(t, time.Minute), bin))
				s := &stage{Lab: l, judge: newJudge(l), rocast: &rocast{site: site}}
				for _, run := range lab.runs {
					if run.kernel == kernel {
						t.Run(fmt.Sprintf("%s, MTU %d", run.config, run.mtu), func(t *testing.T) { s.box(t, run) })
					}
				}
			})
		}
	}
}

// box runs rocastd with a config, and the stories.
func (s *stage) box(t *testing.T, run boxRun) {
	ctx := testContext(t, 10*time.Minute)
	must(t, s.SetMTU(ctx, run.mtu))
	must(t, s.configure(ctx, s.Lab, run.config+"\n"))
	err := s.Start(ctx)
	if run.refused != "" {
		if err == nil || !strings.Contains(err.Error(), run.refused) {
			t.Errorf("rocastd should refuse to start with %q: %v", run.refused, err)
		}
		t.Log(err)
		return
	}
	must(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, story := range stories {
		if slices.Contains(run.stories, story.name) {
			t.Log(s.play(t, run.kernel, story))
		}
	}
	s.checkPorts(t, ctx, run)
	s.checkFeatures(t, ctx, run)
	counters, err := s.Counters(ctx)
	must(t, err)
	if carried := counters["fan-out-carried"]; run.carried != (carried > 0) {
		t.Errorf("the kernel carried %d packets", carried)
	}
}

func (s *stage) checkPorts(t *testing.T, ctx context.Context, run boxRun) {
	t.Helper()
	var list api.Ports
	out, err := s.ask(ctx, "port", "ls")
	must(t, err)
	must(t, json.Unmarshal(out, &list))
	var ports []string
	for i, p := range list.Ports {
		ports = append(ports, p.Attach+" "+p.Mode)
		t.Logf("%s: %s", modelName(s.Box.(*BoxGuest).nics[i]), ports[i])
	}
	if !slices.Equal(ports, run.ports) {
		t.Errorf("the ports are %q, want %q", ports, run.ports)
	}
}

func (s *stage) checkFeatures(t *testing.T, ctx context.Context, run boxRun) {
	t.Helper()
	var list api.Features
	out, err := s.ask(ctx, "features")
	must(t, err)
	must(t, json.Unmarshal(out, &list))
	var missing []string
	for _, f := range list.Features {
		if f.Status != api.Available {
			missing = append(missing, f.Name)
		}
	}
	if !slices.Equal(missing, run.missing) {
		t.Errorf("%q are missing, want %q: %+v", missing, run.missing, list.Features)
	}
}

// labName is the name of a lab of such NICs.
func labName(model nicModel) string {
	if model == virtioNetDeaf {
		return "deaf " + modelName(model)
	}
	return modelName(model)
}

// modelName is the name of the device without its properties.
func modelName(model nicModel) string {
	name, _, _ := strings.Cut(string(model), ",")
	return name
}
