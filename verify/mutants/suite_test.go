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
	if err != nil || noticed != ".: tests do not end" {
		t.Errorf("noticed by %q, error %v", noticed, err)
	}
}
