package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A mutant can hang while a package is initialized. The tests have no time limit there yet.
func TestTestsThatHangBeforeTheyStartAreNoticed(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "hangs")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	noticed, err := suite{dir: ".", limit: time.Millisecond}.test(binary)
	if err != nil || noticed.String() != ".: tests do not end" {
		t.Errorf("noticed by %q, error %v", noticed, err)
	}
}

// Tests that only compute are stopped by the CPU time that they use, and not by the time that other
// processes of the machine take from them.
func TestTestsThatComputeForEverAreNoticed(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "spins")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nwhile :; do :; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	noticed, err := suite{dir: ".", cpu: 1}.test(binary)
	if err != nil || noticed.String() != ".: tests do not end" {
		t.Errorf("noticed by %q, error %v", noticed, err)
	}
}
