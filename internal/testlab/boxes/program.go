package boxes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Program builds rocastd, once, and returns its path.
var Program = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "rocast-program-")
	if err != nil {
		return "", err
	}
	programDir = dir
	path = filepath.Join(dir, "rocastd")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/rocast/rocast/cmd/rocastd").CombinedOutput(); err != nil {
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
