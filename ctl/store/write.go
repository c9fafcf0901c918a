package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

const unfinishedSuffix = ".new"

// WriteFile writes text to path; only the owner may read the file. A crash leaves the old content
// or the new content, and possibly a temporary file, which removeUnfinished removes.
func WriteFile(path string, text []byte) error {
	return replaceFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// replaceFile is WriteFile for what write writes.
func replaceFile(path string, write func(io.Writer) error) error {
	dir, name := filepath.Split(path)
	aside := filepath.Join(dir, "."+name+unfinishedSuffix)
	if err := writeSynced(aside, write); err != nil {
		return err
	}
	if err := os.Rename(aside, path); err != nil {
		os.Remove(aside)
		return err
	}
	return syncDir(dir)
}

func writeSynced(path string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // once the text is synced, closing cannot lose it
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}

// removeUnfinished removes the temporary files that a crash left in dir. A file that cannot be
// removed does no harm.
func removeUnfinished(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, ".*"+unfinishedSuffix))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// removeIfThere removes a file if it exists. A read-only disk returns an error even for a file that
// does not exist.
func removeIfThere(path string) error {
	err := os.Remove(path)
	if _, missing := os.Lstat(path); errors.Is(missing, os.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir makes a rename or a removal in dir survive a crash of the box.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
