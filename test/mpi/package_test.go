package mpi

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The package has the library where the dynamic loader finds it by its name alone. It says so when
// a setting is wrong, at each rank.
func TestThePackage(t *testing.T) {
	needs(t)
	build := t.TempDir()
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	run("make", "-s", "mpi-library", "BUILD="+build, "VERSION=v1.2.3")
	packages, err := filepath.Glob(filepath.Join(build, "packages", "librocast-mpi_1.2.3-1_*.deb"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages %q, %v", packages, err)
	}
	root := filepath.Join(build, "root")
	run("dpkg-deb", "-x", packages[0], root)
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			name := "librocast-mpi-" + l.name + ".so"
			installed, err := filepath.Glob(filepath.Join(root, "usr/lib/*", name))
			if err != nil || len(installed) != 1 {
				t.Fatalf("%s: %q, %v", name, installed, err)
			}
			dir := l.build(t)
			stderr := l.launch(t, dir, []string{
				"LD_PRELOAD=" + name, "LD_LIBRARY_PATH=" + filepath.Dir(installed[0]), "ROCAST_BOX=10.77.0.254:7472", "ROCAST_MPI_BYTES=64k",
			}, 2, []string{"check", "loop", "1", "100000"})
			if n := strings.Count(stderr, "rocast: ROCAST_MPI_BYTES is 64k, so no broadcast goes by a group"); n != 2 {
				t.Errorf("said %d times, want 2:\n%s", n, stderr)
			}
		})
	}
}
