package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/store"
)

// findPaths returns an error if a file or directory that a start makes cannot be made now. It
// makes nothing. systemd tries such a start again, because a disk may be mounted meanwhile. A path
// that is forbidden is no error here: the config may be checked by another user than that of the
// daemon.
func findPaths(c *config.Config) error {
	for _, path := range store.Paths(c.StateDir) {
		if err := canMake(path, "stateDir"); err != nil {
			return fmt.Errorf("create the state directory: %w", err)
		}
	}
	notes := addressNotes(c.StateDir)
	if err := canMake(notes, "stateDir"); err != nil && !errors.Is(err, unix.EROFS) { // groups need no notes there
		return fmt.Errorf("create the state directory: %w", err)
	}
	err := canMake(filepath.Dir(c.Socket), "socket")
	if err == nil {
		err = canWrite(filepath.Dir(c.Socket), c.Socket, "socket")
	}
	if err != nil {
		return fmt.Errorf("open the socket %s: %w", c.Socket, err)
	}
	return nil
}

// addressNotes is the directory of the notes of addresses.
func addressNotes(stateDir string) string { return filepath.Join(stateDir, "addresses") }

// canMake returns an error if a path is not there and cannot be made. The config's key names it.
func canMake(path, key string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return nil // findMistakes reports other errors
	}
	if to, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		return fmt.Errorf("%s is a symbolic link to %s, which does not exist; make that directory or mount its disk, or write another %s into the config",
			path, to, key)
	}
	parent := filepath.Dir(path)
	if err := canMake(parent, key); err != nil {
		return err
	}
	return canWrite(parent, path, key)
}

// canWrite returns an error if a directory that is there is on a disk that is read-only.
func canWrite(dir, path, key string) error {
	if err := unix.Access(dir, unix.W_OK); errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w; let the disk be written (mount -o remount,rw), or write another %s into the config",
			&os.PathError{Op: "mkdir", Path: path, Err: unix.EROFS}, key)
	}
	return nil
}
