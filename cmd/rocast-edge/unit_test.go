package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rocast/rocast/bpf/edge"
	"github.com/rocast/rocast/cmd/rocast-edge/agent"
)

const unit = "../../packaging/rocast-edge.service"

// The unit and the program have to mean the same by an exit status and by a path.
func TestTheUnitFitsTheProgram(t *testing.T) {
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{
		"Type=notify", "Restart=always", "RestartPreventExitStatus=" + strconv.Itoa(exitUsage),
		"RuntimeDirectory=" + filepath.Base(filepath.Dir(defaultState)), "ReadWritePaths=" + filepath.Dir(edge.DefaultPins),
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit has no line %s", want)
		}
	}
}

// What the package installs as its config starts the program.
func TestTheConfigOfThePackage(t *testing.T) {
	output, err := exec.Command("sh", "-c", `. ../../packaging/edge.conf && printf %s "$ROCAST_EDGE"`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var found bool
	words := strings.Fields(string(output))
	for i, word := range words[:len(words)-1] {
		if word == "--box" {
			_, err := parse(new(agent.Config), []string{words[i+1]}, nil, nil)
			if found = true; err != nil {
				t.Error(err)
			}
		}
	}
	if !found {
		t.Errorf("the config names no box: %q", output)
	}
}

// systemd knows every word of the unit, and gives it a good mark.
func TestTheUnitIsConfined(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	output, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", unit).CombinedOutput()
	found := regexp.MustCompile(`exposure level for rocast-edge.service: ([0-9.]+)`).FindSubmatch(output)
	if found == nil {
		t.Skipf("this systemd does not mark a file: %v\n%s", err, output)
	}
	if mark, err := strconv.ParseFloat(string(found[1]), 64); err != nil || mark > 4.5 {
		t.Errorf("systemd-analyze security: %s, and at most 4.5 is wanted\n%s", found[1], output)
	}
	output, err = exec.Command("systemd-analyze", "verify", unit).CombinedOutput()
	scanner := bufio.NewScanner(strings.NewReader(string(output)))
	for scanner.Scan() {
		line := scanner.Text()
		if strings.Contains(line, "rocast-edge.service:") && !strings.Contains(line, "is not executable") {
			t.Errorf("systemd-analyze verify: %s (%v)", line, err)
		}
	}
}
