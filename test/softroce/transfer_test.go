//go:build softroce

package softroce

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
)

// fileMiB is the size of the file that examples/transfer sends. The guests get memory for it.
var fileMiB = flag.Int("file", 8, "`MiB` of the file that the story of examples/transfer sends")

// storyTransfer runs the programs of examples/transfer: the coordinator in the box, and in every
// guest a host with the verbs program.
func storyTransfer(t *testing.T, _ context.Context, s *stage) string {
	ctx := testContext(t, storyLimit+time.Duration(*fileMiB)*5*time.Second)
	path := buildTransfer(t, ctx, t.TempDir())
	program, err := os.ReadFile(path)
	must(t, err)
	for _, g := range s.Guests {
		must(t, g.Put(ctx, transferProgram, program))
	}
	at := s.coordinate(t, path)
	_, err = s.Guests[0].Run(ctx, "dash", "-c", fmt.Sprintf("head -c %d /dev/urandom >%s", *fileMiB<<20-1001, transferFile))
	must(t, err)
	var to []string
	var receivers []*control.Process
	for _, g := range s.Guests[1:] {
		p, err := g.Start(transferArgs("receive", at, g.Addr, transferFile)...)
		must(t, err)
		to, receivers = append(to, g.Addr.String()), append(receivers, p)
	}
	began := time.Now()
	out, err := s.Guests[0].Run(ctx, transferArgs("send", at, s.Guests[0].Addr, "-to", strings.Join(to, ","), transferFile)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Report(ctx))
	}
	took := time.Since(began)
	for i, p := range receivers {
		if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
			t.Errorf("receiver %d: %v %v %s", i+1, exit, err, p.Stderr)
		}
	}
	if !strings.Contains(out, " 3 receivers have the file") {
		t.Errorf("the sender says %q", out)
	}
	return fmt.Sprintf("%d MiB in %.1f s from a verbs program to three, by the coordinator of examples/transfer: hashes equal", *fileMiB, took.Seconds())
}

const (
	transferProgram = "/transfer"
	transferFile    = "/file"
	transferPort    = "4792"
)

func transferArgs(word, at string, own netip.Addr, rest ...string) []string {
	return append([]string{transferProgram, word, "-coordinator", at, "-ip", own.String(), "-verbs", "/usr/bin/" + image.VerbsProgram}, rest...)
}

// buildTransfer builds the example into dir. The one machine has it already.
func buildTransfer(t *testing.T, ctx context.Context, dir string) (path string) {
	t.Helper()
	const name = "transfer"
	if *here != "" {
		return filepath.Join(*here, name)
	}
	path = filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", path, "../../examples/transfer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build examples/transfer: %v\n%s", err, out)
	}
	return path
}

// coordinate starts the coordinator in the box and returns its address.
func (s *stage) coordinate(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command(path, "coordinate", "-listen", net.JoinHostPort(boxAddr, transferPort), "-socket", s.rocast.site.path("socket"),
		"-group-ip", groupIP.String(), "-within", "1m")
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, s.Box.(*Namespace).Start(cmd))
	logged := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-logged
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	_, at, listens := strings.Cut(lines.Text(), " at ")
	go func() {
		defer close(logged)
		for lines.Scan() {
			t.Log(lines.Text())
		}
	}()
	if !listens {
		t.Fatal("the coordinator does not say where it listens")
	}
	return at
}
