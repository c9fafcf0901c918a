package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const lockFile = "lock"

// checkLock returns the error with which takeLock fails as long as a directory is in the place of
// its file.
func checkLock(dir string) error {
	path := filepath.Join(dir, lockFile)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("lock the state directory: %w", &os.PathError{Op: "open", Path: path, Err: unix.EISDIR})
	}
	return nil
}

// takeLock locks dir for this process. The kernel releases the lock when the process ends, even
// after a crash. The PID in the file is only for people, so takeLock ignores a failure to write it:
// groups must also be restored from a disk that is full or read-only.
func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.EROFS) {
		file, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		file.Close()
		return nil, notLocked(dir, string(holder), err)
	}
	_ = file.Truncate(0)
	_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return file, nil
}

// dropLock releases the lock. A child that is being started has the file open until it runs its
// program, so to close the file is not enough (flock(2)).
func dropLock(file *os.File) error {
	return errors.Join(unix.Flock(int(file.Fd()), unix.LOCK_UN), file.Close())
}

// notLocked is the error for a directory that cannot be locked. holder is the content of the lock's
// file.
func notLocked(dir, holder string, err error) error {
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("lock the state directory %s: %w", dir, err)
	}
	by := "another rocastd"
	if pid := strings.TrimSpace(holder); pid != "" {
		by = "the rocastd with PID " + pid
	}
	return fmt.Errorf("state directory %s is in use by %s; stop that process, or write another stateDir into this "+
		"config", dir, by)
}
