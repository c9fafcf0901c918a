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

// cacheDir finds the directory that test/softroce/setup.sh has filled. Both use the same rules.
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

// prepared returns an error if test/softroce/setup.sh has not completed dir.
func prepared(dir, what string) error {
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err != nil {
		return fmt.Errorf("%s: %w", what, ErrNotPrepared)
	}
	return nil
}

// lock waits until test/softroce/setup.sh and other builds do not use the cache, and keeps them
// out.
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

// writeFile writes a file and then renames it. So an interrupted build leaves no partial file, and
// a guest that is booting from the old file keeps it.
func writeFile(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
