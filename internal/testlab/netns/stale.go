package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

const prefix = "rc"

var ours = regexp.MustCompile(`^` + prefix + `[a-z]*([0-9]+)-[0-9]+$`)

// RemoveStale removes the namespaces of this package whose process is gone. A namespace in which
// another process still runs only loses its name.
func RemoveStale() error {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if match := ours.FindStringSubmatch(entry.Name()); match != nil && processGone(match[1]) {
			errs = append(errs, remove(filepath.Join(Dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

func processGone(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && errors.Is(unix.Kill(n, 0), unix.ESRCH)
}

// remove removes a name. The error EINVAL means that nothing is mounted there, because the process
// was killed before it mounted.
func remove(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}

// lockDir prepares Dir as iproute2 does, under the same lock. Dir must be a shared mount of its own
// before the first namespace is mounted in it. Otherwise a later "ip netns add" would hide our
// namespaces, and their names could not be removed.
func lockDir() (unlock func(), err error) {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.Open(Dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", Dir, err)
	}
	if err := shareDir(); err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

func shareDir() error {
	share := func() error { return unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind mount %s: %w", Dir, err)
	}
	return share()
}
