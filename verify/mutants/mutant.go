package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant replaces old, which stands in a file of feedback exactly once, by broken. The zero mutant breaks nothing.
type mutant struct {
	rule, name  string
	file        string
	old, broken string
}

// checkList holds the list against the code.
func checkList() error {
	var errs []error
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			errs = append(errs, fmt.Errorf("two mutants are called %q", m.name))
		}
		names[m.name] = true
		if _, err := m.source(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// source returns the broken file.
func (m mutant) source() (string, error) {
	text, err := os.ReadFile(filepath.Join("feedback", m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s: %q stands %d times in %s; the list has to follow the code", m.name, m.old, n, m.file)
	}
	return strings.Replace(string(text), m.old, m.broken, 1), nil
}

// try runs the tests against the mutant and returns the name of the one that fails, "" if none does.
func (m mutant) try() (caught string, err error) {
	dir, err := os.MkdirTemp("", "rocast-mutant-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	for _, s := range suites {
		if caught, err = s.run(dir, overlay); caught != "" || err != nil {
			return caught, err
		}
	}
	return "", nil
}

// overlay writes the broken file to dir, and the file that tells the compiler to take it instead.
func (m mutant) overlay(dir string) (string, error) {
	replace := map[string]string{}
	if m.file != "" {
		source, err := m.source()
		if err != nil {
			return "", err
		}
		original, err := filepath.Abs(filepath.Join("feedback", m.file))
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, m.file)
		if err := os.WriteFile(replace[original], []byte(source), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
