package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// suite is tests of one package.
type suite struct {
	dir   string
	flags []string
}

// suites are tried in this order, the quick ones first, until one fails. Tests that found something by chance say so
// without looking for a shorter way to it, and write nothing down.
var suites = []suite{
	{"feedback", []string{"-test.run=Stories"}},
	{"feedback", []string{"-test.skip=Stories", "-rapid.nofailfile", "-rapid.shrinktime=0s"}},
	{"verify/model", []string{"-test.run=Worlds", "-test.short"}},
}

const (
	// testLimit bounds what tests take: with some mutants they do not end.
	testLimit = "30s"
	// tryLimit bounds a suite with its compilation, and is far off.
	tryLimit = 5 * time.Minute
)

// run returns the name of the test that fails, "" if none does. dir is for the test binary.
func (s suite) run(dir, overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tryLimit)
	defer cancel()
	binary := filepath.Join(dir, filepath.Base(s.dir)+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binary, "./"+s.dir)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile: %w\n%s", err, out)
	}
	test := exec.CommandContext(ctx, binary, append(s.flags, "-test.failfast", "-test.timeout="+testLimit)...)
	test.Dir = s.dir
	out, err := test.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return "", nil
	case bytes.Contains(out, []byte("panic: test timed out")):
		return s.dir + ": tests do not end", nil
	}
	return s.failed(out)
}

var failed = regexp.MustCompile(`--- FAIL: (\S+)`)

// failed returns the deepest test that failed, without what every story has in common.
func (s suite) failed(out []byte) (string, error) {
	name := ""
	for _, m := range failed.FindAllSubmatch(out, -1) {
		if n := string(m[1]); len(n) > len(name) {
			name = n
		}
	}
	if name == "" {
		return "", fmt.Errorf("%s: tests fail and name none:\n%s", s.dir, out)
	}
	if story, ok := strings.CutPrefix(name, "TestStories/"); ok {
		name = "story " + strings.TrimPrefix(story, "plain/")
	}
	return strings.TrimPrefix(name, "TestEverydayWorlds/"), nil
}
