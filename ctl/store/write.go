package store

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

const unfinishedSuffix = ".new"

// writeFile writes text to path, below a line with its checksum; only the owner may read the file.
// A crash leaves the old content or the new content, and possibly a temporary file, which
// removeUnfinished removes.
func (s *Store) writeFile(path string, text []byte) error { return s.writeMarked(path, text, marks{}) }

// writeMarked is writeFile with marks in the line of the checksum.
func (s *Store) writeMarked(path string, text []byte, with marks) error {
	return s.replaceFile(path, func(w *os.File) error {
		_, err := w.Write(append(checksumLine(text, with), text...))
		return err
	})
}

// checksumPrefix begins the first line of a stored file. To YAML the line is a comment. It is the
// first one, so a file that was cut keeps it. A file of an older release has no such line.
const checksumPrefix = "# checksum "

func checksumLine(text []byte, with marks) []byte {
	return fmt.Appendf(nil, "%s%08x of the lines below%s; if you change them, delete this line\n", checksumPrefix,
		crc32.Checksum(text, castagnoli), with)
}

// marks are the files that a group has beside its text, as the line of the text's checksum says.
type marks struct{ state, links bool }

func (m marks) String() (text string) {
	if m.state {
		text += ", with a state"
	}
	if m.links {
		text += ", with links"
	}
	return text
}

// errEmpty: a text of nothing has a line with its checksum too, so an empty file is a damaged one.
var errEmpty = errors.New("it is empty")

// readFile returns the text that writeFile has written to path, or the whole file if it has no
// checksum.
func readFile(path string) ([]byte, error) {
	text, _, err := readMarked(path)
	return text, err
}

// readMarked is readFile, and returns the marks.
func readMarked(path string) (text []byte, with marks, err error) {
	text, err = os.ReadFile(path)
	prefix := []byte(checksumPrefix)
	switch {
	case err == nil && len(text) == 0:
		return nil, with, fmt.Errorf("the file %s is damaged: %w", path, errEmpty)
	case err != nil || !bytes.HasPrefix(text, prefix) && !bytes.HasPrefix(prefix, text):
		return text, with, err
	}
	line, text, _ := bytes.Cut(text, []byte("\n"))
	line = append(line, '\n')
	for _, with := range []marks{{}, {state: true}, {links: true}, {state: true, links: true}} {
		if bytes.Equal(line, checksumLine(text, with)) {
			return text, with, nil
		}
	}
	return nil, with, fmt.Errorf("the file %s is damaged: its checksum does not match", path)
}

// replaceFile is writeFile for what write writes, without a checksum of it.
func (s *Store) replaceFile(path string, write func(*os.File) error) error {
	dir, name := filepath.Split(path)
	aside := filepath.Join(dir, "."+name+unfinishedSuffix)
	if err := writeSynced(aside, write); err != nil {
		return err
	}
	if err := os.Rename(aside, path); err != nil {
		os.Remove(aside)
		return err
	}
	if err := s.SyncDir(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	return nil
}

// ErrUnsynced: the new content of a file is in place, and a crash of the box may leave the old one.
// After every other error the old content stays.
var ErrUnsynced = errors.New("the directory was not synced")

func writeSynced(path string, write func(*os.File) error) error {
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

// syncDir is Store.SyncDir.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
