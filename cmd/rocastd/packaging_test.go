package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/config"
)

// The unit and the program have to mean the same by an exit status. 2 is how a Go program ends that
// panics.
func TestTheUnitStartsAgainWhatCanBeMended(t *testing.T) {
	text, err := os.ReadFile("../../packaging/rocastd.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{
		"Restart=always", "RestartSec=20ms", "Nice=-10", "StartLimitIntervalSec=0", fmt.Sprintf("RestartPreventExitStatus=%d %d", exitUsage, exitConfig),
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit has no line %s", want)
		}
	}
	if panicked := 2; exitUsage == panicked || exitConfig == panicked {
		t.Error("a daemon that panics would not be started again")
	}
}

// makeInstall runs make install as sudo does, without Go in its PATH, for binaries in build.
func makeInstall(build, root string) (string, error) {
	cmd := exec.Command("make", "-C", "../..", "install", "BUILD="+build, "DESTDIR="+root)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func TestInstallKeepsTheConfigAndNeedsNoGo(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make:", err)
	}
	build, root := t.TempDir(), t.TempDir()
	output, err := makeInstall(build, root)
	if err == nil || !strings.Contains(output, "run make first") {
		t.Errorf("without binaries: %v\n%s", err, output)
	}
	for _, program := range []string{"rocastd", "rocast"} {
		if err := os.WriteFile(filepath.Join(build, program), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if output, err := makeInstall(build, root); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for path, mode := range map[string]os.FileMode{
		"usr/sbin/rocastd": 0o755, "usr/bin/rocast": 0o755,
		"usr/lib/systemd/system/rocastd.service": 0o644, "usr/share/doc/rocast/rocastd.yaml": 0o644,
		"usr/lib/sysusers.d/rocast.conf": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	installed := filepath.Join(root, "etc/rocast/rocastd.yaml")
	if _, err := config.Load(installed); err != nil {
		t.Errorf("the first installation's config: %v", err)
	}
	const edited = "ports: [enp1s0]\n"
	if err := os.WriteFile(installed, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := makeInstall(build, root); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if text, err := os.ReadFile(installed); err != nil || string(text) != edited {
		t.Errorf("after the second installation the config is %q, %v", text, err)
	}
}
