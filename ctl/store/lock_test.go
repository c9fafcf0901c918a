package store

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A program that is being started has every file of this process for a moment.
func TestTheLockIsReleasedWhoeverHasItsFile(t *testing.T) {
	dir := t.TempDir()
	file, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := dropLock(file); err != nil {
		t.Error(err)
	}
	again, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := dropLock(again); err != nil {
		t.Error(err)
	}
}
