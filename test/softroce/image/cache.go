package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNotPrepared says that test/softroce/setup.sh has to run first.
var ErrNotPrepared = errors.New("not prepared: run test/softroce/setup.sh")

// cacheDir finds the directory that test/softroce/setup.sh filled, by the same rules.
func cacheDir() (string, error) {
	dir := os.Getenv("ROCAST_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, "rocast")
	}
	return filepath.Join(dir, "softroce"), nil
}

// prepared fails unless test/softroce/setup.sh has completed dir.
func prepared(dir, what string) error {
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err != nil {
		return fmt.Errorf("%s: %w", what, ErrNotPrepared)
	}
	return nil
}

// lock keeps test/softroce/setup.sh and other builds out of the cache.
func lock(cache string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return func() { file.Close() }, nil
}

// writeFile publishes a file at once: an interrupted build leaves no half of it, and a guest that is booting from the
// file before keeps that one.
func writeFile(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
