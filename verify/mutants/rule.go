package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// rule is a mutant that breaks one rule of merging: it replaces old, a text that stands in a file
// exactly once, by broken. The file is one of feedback, or has its path.
type rule struct {
	rule, name  string
	file        string
	old, broken string
}

// checkRules compares the list with the code.
func checkRules() error {
	var errs []error
	names := map[string]bool{}
	for _, r := range rules {
		if names[r.name] {
			errs = append(errs, fmt.Errorf("two rules are called %q", r.name))
		}
		names[r.name] = true
		if _, err := r.source(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// source returns the broken file.
func (r rule) source() (string, error) {
	text, err := os.ReadFile(r.path())
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), r.old); n != 1 {
		return "", fmt.Errorf("%s: %q stands %d times in %s; change the list with the code", r.name, r.old, n, r.file)
	}
	return strings.Replace(string(text), r.old, r.broken, 1), nil
}

func (r rule) path() string {
	if strings.Contains(r.file, "/") {
		return r.file
	}
	return filepath.Join("feedback", r.file)
}

// tests are those that have to notice the mutant.
func (r rule) tests() *room {
	switch {
	case strings.HasPrefix(r.file, "internal/rnic/"):
		return &nicTests
	case strings.HasPrefix(r.file, "ctl/cm/"):
		return &cmTests
	case strings.HasPrefix(r.file, "cmd/rocast-edge/"):
		return &agentTests
	case r.inKernel():
		return &kernelTests
	case strings.HasPrefix(r.file, "dataplane/afxdp/"):
		return &wideTests
	case r.path() == r.file:
		return &engineTests
	}
	return &mergingTests
}

// try returns the test that notices the mutant. The number is that of its copy, 0 if it has none.
// The test that noticed it before is tried first.
func (r rule) try(number int, before noticer) (noticed noticer, err error) {
	suites := r.tests().suitesFrom(before)
	if number > 0 {
		return r.tests().runGuarded(number, suites)
	}
	broken, err := r.source()
	if err != nil {
		return noticer{}, err
	}
	if r.inKernel() {
		return tryInKernel(r.path(), broken, suites)
	}
	return tryBroken(r.path(), broken, suites)
}
