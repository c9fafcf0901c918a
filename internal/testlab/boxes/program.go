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
	path = filepath.Join(dir, "rocastd")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/rocast/rocast/cmd/rocastd").CombinedOutput(); err != nil {
		return path, fmt.Errorf("build rocastd: %w: %s", err, out)
	}
	return path, nil
})

// RemoveProgram removes what Program has built. It is called last.
func RemoveProgram() {
	if path, _ := Program(); path != "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
}
