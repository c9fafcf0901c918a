package boxes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// Program builds rocastd, once, and returns its path.
var Program = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "rocast-program-")
	if err != nil {
		return "", err
	}
	programDir = dir
	netns.RemoveAtSignal(dir)
	path = filepath.Join(dir, "rocastd")
	// A test of another module builds with the versions of this one.
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/rocast/rocast").Output()
	if err != nil {
		return path, fmt.Errorf("find the module of rocastd: %w", err)
	}
	build := exec.Command("go", "build", "-o", path, "./cmd/rocastd")
	build.Dir = strings.TrimSpace(string(module))
	if out, err := build.CombinedOutput(); err != nil {
		return path, fmt.Errorf("build rocastd: %w: %s", err, out)
	}
	return path, nil
})

// programDir is the directory of what Program has built; empty: nothing.
var programDir string

// RemoveProgram removes what Program has built, if a test has called that. It is called last.
func RemoveProgram() {
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
}
