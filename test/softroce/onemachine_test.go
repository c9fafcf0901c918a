//go:build softroce

package softroce

import (
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// here makes the hosts namespaces of this machine.
var here = flag.String("here", "", "play the stories with hosts that are namespaces of this machine, and with rocast's programs in `DIR`")

// oneMachineLimit bounds all stories in the virtual machine.
const oneMachineLimit = time.Hour

// TestOneMachine plays the stories with the box and all hosts in one virtual machine with the
// newest kernel. In the machine runs this same test program, with -here.
func TestOneMachine(t *testing.T) {
	if *here != "" {
		t.Skip("this is the one machine")
	}
	ctx := testContext(t, oneMachineLimit)
	dir := buildRocast(t, ctx)
	buildTransfer(t, ctx, dir)
	const program = "stories"
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "softroce", "-ldflags", "-s -w", "-o", filepath.Join(dir, program), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the stories: %v\n%s", err, out)
	}
	box := openLab(t, oneGuest(NewestKernel)).Box.(*BoxGuest)
	t.Logf("the machine has kernel %s", box.Kernel)
	site := inGuest{box}
	must(t, site.install(ctx, dir))
	args := []string{site.path(program), "-test.v", "-test.run", "^TestStories$", "-test.timeout", oneMachineLimit.String(),
		"-here", boxDir, "-engine", *engine, "-repair", *repair}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	p, err := box.Start(args...)
	must(t, err)
	played := 0
	for {
		line, err := p.Stdout.ReadLine(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		t.Log(line)
		if strings.Contains(line, "--- PASS: TestStories/"+hereKernel+"/") {
			played++
		}
	}
	exit, err := p.Wait(ctx)
	if err != nil || !exit.OK() || played == 0 {
		t.Errorf("%d stories passed in the machine: %v, %v\n%s\nconsole:\n%s", played, exit, err, p.Stderr, box.Console())
	}
}
