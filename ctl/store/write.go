package store

import (
	"errors"
	"os"
	"path/filepath"
)

const unfinishedSuffix = ".new"

// WriteFile gives path the content text, for its owner alone. A crash leaves the old content or the new, and at worst a
// file beside it for removeUnfinished.
func WriteFile(path string, text []byte) error {
	dir, name := filepath.Split(path)
	aside := filepath.Join(dir, "."+name+unfinishedSuffix)
	if err := writeSynced(aside, text); err != nil {
		return err
	}
	if err := os.Rename(aside, path); err != nil {
		os.Remove(aside)
		return err
	}
	return syncDir(dir)
}

func writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}

// removeUnfinished removes what writes that a crash ended have left in dir. What cannot be removed is in nobody's way.
func removeUnfinished(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, ".*"+unfinishedSuffix))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// removeIfThere removes a file. A read-only disk refuses even for one that is not there.
func removeIfThere(path string) error {
	err := os.Remove(path)
	if err == nil {
		return nil
	}
	if _, missing := os.Lstat(path); errors.Is(missing, os.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir makes a rename or a removal in dir outlive the box.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
