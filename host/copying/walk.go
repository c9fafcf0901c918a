package copying

import (
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// names returns what the arguments are called at the receivers: their last elements.
func names(paths []string) (named map[string]string, order []string, err error) {
	named = map[string]string{}
	for _, p := range paths {
		whole, err := filepath.Abs(p)
		if err != nil {
			return nil, nil, err
		}
		name := filepath.Base(whole)
		if name == "/" {
			return nil, nil, fmt.Errorf("%s has no name that it could have at the receivers", p)
		}
		if other, twice := named[name]; twice {
			return nil, nil, fmt.Errorf("%s and %s would both be %s at the receivers", other, p, name)
		}
		named[name] = whole
		order = append(order, name)
	}
	return named, order, nil
}

// walk calls yield with every entry of the paths, always in the same order. What cannot be read is
// reported to leftOut, and the walk goes on.
func walk(paths []string, yield func(*Entry) error, leftOut func(path, why string)) error {
	named, order, err := names(paths)
	if err != nil {
		return err
	}
	for _, name := range order {
		if err := walkOne(named[name], name, yield, leftOut); err != nil {
			return err
		}
	}
	return nil
}

func walkOne(local, name string, yield func(*Entry) error, leftOut func(path, why string)) error {
	info, err := os.Lstat(local)
	if err != nil {
		leftOut(local, plain(err))
		return nil
	}
	e := &Entry{Mode: info.Mode() & modeBits, ModTime: info.ModTime().UnixNano(), Path: name, local: local}
	switch info.Mode().Type() {
	case 0:
		e.Kind, e.Size = File, info.Size()
	case os.ModeSymlink:
		e.Kind = Symlink
		if e.Target, err = os.Readlink(local); err != nil {
			leftOut(local, plain(err))
			return nil
		}
	case os.ModeDir:
		e.Kind = Directory
	default:
		leftOut(local, "it is neither a file nor a directory nor a symlink")
		return nil
	}
	if strings.HasPrefix(filepath.Base(name), partialPrefix) {
		leftOut(local, "it is what an interrupted rocast-cp has left, and receivers use such names")
		return nil
	}
	if len(name) > maxText || len(e.Target) > maxText {
		leftOut(local, "its name is too long")
		return nil
	}
	if e.Kind != Directory {
		return yield(e)
	}
	list, err := os.ReadDir(local)
	if err != nil {
		leftOut(local, plain(err))
		return nil
	}
	if err := yield(e); err != nil {
		return err
	}
	for _, child := range list {
		if err := walkOne(filepath.Join(local, child.Name()), filepath.Join(name, child.Name()), yield, leftOut); err != nil {
			return err
		}
	}
	end := *e
	end.Kind = DirectoryEnd
	return yield(&end)
}

// plain is an error without the path, which stands beside it.
func plain(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

// span is a part of a file.
type span struct{ from, to int64 }

// dataOf returns the parts of a file, from one byte to another, that are no holes.
func dataOf(f *os.File, from, to int64) (spans []span) {
	for at := from; at < to; {
		s := nextData(f, at, to)
		if s.from < to {
			spans = append(spans, s)
		}
		at = s.to
	}
	return spans
}

// nextData returns the first part of a file from one byte to another that is no hole; it is empty
// and at the end if all is a hole. Where the file system does not know, everything is data.
func nextData(f *os.File, from, to int64) span {
	fd := int(f.Fd())
	begin, err := unix.Seek(fd, from, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO) || err == nil && begin >= to:
		return span{to, to}
	case err != nil:
		return span{from, to}
	}
	end, err := unix.Seek(fd, begin, unix.SEEK_HOLE)
	if err != nil || end > to {
		end = to
	}
	return span{begin, end}
}

// hashOf hashes a part of a file, and calls step with the number of bytes of each step. It reads no
// hole: a sparse file may be longer than any disk.
func hashOf(f *os.File, h hash.Hash, from, to int64, buffer []byte, step func(n int) error) error {
	for at := from; at < to; {
		data := nextData(f, at, to)
		for at < data.to {
			n := int(min(data.to-at, int64(len(buffer))))
			if at < data.from {
				n = int(min(data.from-at, int64(len(zeros))))
				h.Write(zeros[:n])
			} else {
				got, err := f.ReadAt(buffer[:n], at)
				if got < n {
					return fmt.Errorf("it is shorter than it was: %w", err)
				}
				h.Write(buffer[:n])
			}
			if err := step(n); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return nil
}

// zeros are what a hole is hashed as.
var zeros [BlockBytes]byte

// holesIn returns what lies between spans.
func holesIn(spans []span, from, to int64) (holes []span) {
	for _, s := range append(slices.Clone(spans), span{to, to}) {
		if s.from > from {
			holes = append(holes, span{from, s.from})
		}
		from = max(from, s.to)
	}
	return holes
}
