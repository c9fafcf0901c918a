// Command mutants breaks one rule of merging at a time and runs the tests of
// package feedback against it: every mutant has to be caught. The tree is not
// touched; the broken file is laid over the real one (go test -overlay).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
)

// mutant replaces old, which has to stand in file exactly once, by broken.
type mutant struct {
	rule, name  string
	file        string
	old, broken string
}

const (
	// limit bounds one mutant's tests: some mutants make them hang.
	limit = "20s"
	// buildLimit bounds building them too.
	buildLimit = 2 * time.Minute
)

func main() {
	survivors := 0
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, m := range mutants {
		caught, err := m.try()
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutants: %s: %v\n", m.name, err)
			os.Exit(2)
		}
		if caught == "" {
			survivors++
			caught = "SURVIVED"
		}
		fmt.Fprintf(out, "rule %s\t%s\t%s\n", m.rule, m.name, caught)
	}
	out.Flush()
	fmt.Printf("%d mutants, %d survived\n", len(mutants), survivors)
	if survivors > 0 {
		os.Exit(1)
	}
}

// try returns which test caught the mutant, "" if none did.
func (m mutant) try() (string, error) {
	path, err := filepath.Abs(filepath.Join("feedback", m.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return "", fmt.Errorf("%q stands %d times in %s; the list has to follow the code", m.old, n, m.file)
	}
	dir, err := os.MkdirTemp("", "rocast-mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	broken := filepath.Join(dir, m.file)
	if err := os.WriteFile(broken, bytes.Replace(source, []byte(m.old), []byte(m.broken), 1), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: broken}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	return test(file)
}

var failed = regexp.MustCompile(`--- FAIL: (\S+/\S+/\S+|\S+)`)

func test(overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count=1", "-failfast", "-timeout", limit, "./feedback")
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return "", nil
	case bytes.Contains(out, []byte("[build failed]")):
		return "", fmt.Errorf("does not compile:\n%s", out)
	}
	if bytes.Contains(out, []byte("panic: test timed out")) {
		return "tests do not end", nil
	}
	names := failed.FindAllSubmatch(out, -1)
	if len(names) == 0 {
		return "panic", nil
	}
	return strings.TrimPrefix(string(names[len(names)-1][1]), "TestStories/"), nil
}
