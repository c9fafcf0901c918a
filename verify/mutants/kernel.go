package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A rule may break a program of the kernel. Then the broken program is compiled, and the tests get
// its object in place of the one that is in the tree.

const (
	programsDir    = "bpf"
	programsObject = "bpf/programs_bpfel.o"
)

// inKernel reports whether the rule breaks a program of the kernel.
func (r rule) inKernel() bool { return strings.HasSuffix(r.file, ".h") }

// tryInKernel returns the test that notices a program with a broken file. A program that the
// verifier refuses is noticed too.
func tryInKernel(file, broken string, suites []suite) (noticed noticer, err error) {
	dir, err := os.MkdirTemp("", "rocast-mutant-")
	if err != nil {
		return noticer{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sources, err := filepath.Glob(filepath.Join(programsDir, "*.[ch]"))
	if err != nil {
		return noticer{}, err
	}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			return noticer{}, err
		}
		if name == file {
			text = []byte(broken)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			return noticer{}, err
		}
	}
	// As go generate does in package bpf, but what a mutant leaves unused is no error.
	compile := exec.Command("clang", "-O2", "-g", "-mcpu=v3", "-target", "bpfel", "-c", "programs.c", "-o", "programs.o")
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		return noticer{}, fmt.Errorf("%w: %w\n%s", errCompile, err, out)
	}
	object, err := os.ReadFile(filepath.Join(dir, "programs.o"))
	if err != nil {
		return noticer{}, err
	}
	return tryBroken(programsObject, string(object), suites)
}
