// Package examples has programs that a user is to copy. It has no code of its own.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A copy of an example builds as a module of its own: what it uses can be had outside this tree.
func TestACopyBuildsOutsideTheTree(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range []string{"replicate", "transfer"} {
		t.Run(example, func(t *testing.T) {
			dir := t.TempDir()
			files, err := filepath.Glob(filepath.Join(example, "*.go"))
			if err != nil || len(files) == 0 {
				t.Fatalf("found %q, %v", files, err)
			}
			for _, name := range files {
				if !strings.HasSuffix(name, "_test.go") { // tests have their lab in this tree
					copyFile(t, name, filepath.Join(dir, filepath.Base(name)))
				}
			}
			// The versions are those of this tree, so that nothing has to be looked up.
			copyFile(t, "../go.mod", filepath.Join(dir, "go.mod"))
			copyFile(t, "../go.sum", filepath.Join(dir, "go.sum"))
			command(t, dir, "go", "mod", "edit", "-module=example.org/copy", "-require=github.com/rocast/rocast@v0.0.0",
				"-replace=github.com/rocast/rocast="+root)
			command(t, dir, "go", "build", "-o", os.DevNull, ".")
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
