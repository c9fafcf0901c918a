//go:build softroce

package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/test/softroce/image"
)

// The demo holds in a virtual machine.
func TestTheDemoHolds(t *testing.T) {
	bin := t.TempDir()
	for program, folder := range map[string]string{"rocastd": "../../../cmd/rocastd", "demo-rxe": "../../../demo/rxe"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", bin+"/"+program, folder)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", program, err, out)
		}
	}
	var out strings.Builder
	err := run(t.Context(), &out, bin, 10*time.Minute)
	if errors.Is(err, image.ErrNotPrepared) {
		t.Skip(err)
	}
	if err != nil || !strings.HasSuffix(out.String(), "\nPASS\n") {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}
