package copying

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Target is the directory that a receiver writes to. Each file is written under another name beside
// its own, which it gets when its SHA-256 is that of the source. No name leads out of the
// directory, and none through a symlink.
type Target struct {
	root *os.Root
	keep bool // what is not complete stays when this process ends
	use  bool // what is there is used
	// write is how bytes get into a file, and flush how they get from there to the disk, with
	// everything else of a file system; tests let them fail.
	write func(f *os.File, b []byte, at int64) (int, error)
	flush func(fd int) error
	// punch makes a hole.
	punch func(fd int, at, length int64) error
	// systems are a directory on each file system that is written to, by its device.
	systems map[uint64]*os.File
	// touched are the changes that this process has made to files with several names since the
	// claims of a batch.
	touched map[inode]touch

	checked string // the last directory of which each element is a directory and no symlink
	file    *partial
	paused  []string // names of files that are not complete and may be gone on with
	buffer  []byte   // for hashing
	// work hears of the bytes that were read or hashed, and ends what takes long by an error.
	work func(int) error
}

// OpenTarget makes the directory if it is not there. With resume, what an interrupted receiver has
// left is used, and stays if this one is interrupted.
func OpenTarget(directory string, resume bool) (*Target, error) {
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	t := &Target{
		root: root, keep: resume, use: resume, write: (*os.File).WriteAt, flush: unix.Syncfs, systems: map[uint64]*os.File{}, touched: map[inode]touch{},
		buffer: make([]byte, BlockBytes), work: func(int) error { return nil },
		punch: func(fd int, at, length int64) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
		},
	}
	whole, err := root.Open(".")
	if err == nil {
		err = errors.Join(t.changes(".", whole), whole.Close())
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// changes notes that a file is about to be changed: its file system has to be flushed at the end.
func (t *Target) changes(path string, f *os.File) error {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return err
	}
	if t.systems[s.Dev] != nil {
		return nil
	}
	at := path // its parent may be on another file system
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		at = filepath.Dir(path)
	}
	directory, err := t.root.Open(at)
	if err == nil {
		t.systems[s.Dev] = directory
	}
	return err
}

// sync returns what waits until the disk has everything: contents, names, modes and times. One call
// for a file system costs far less than one for each file. The Target may be closed meanwhile.
func (t *Target) sync() func() error {
	systems := t.systems
	t.systems = map[uint64]*os.File{}
	return func() (first error) {
		for _, directory := range systems {
			err := t.flush(int(directory.Fd()))
			if first == nil && err != nil {
				first = fmt.Errorf("bring %q to the disk: %w", filepath.Clean(directory.Name()), err)
			}
			_ = directory.Close() // nothing was written to it
		}
		return first
	}
}

// Close removes what is not complete, unless it may be used later.
func (t *Target) Close() error {
	var err error
	if t.file != nil {
		err = t.drop(!t.keep)
	}
	if !t.keep {
		for _, name := range t.paused {
			err = errors.Join(err, t.discard(name))
		}
	}
	for _, directory := range t.systems {
		err = errors.Join(err, directory.Close())
	}
	return errors.Join(err, t.root.Close())
}

// partial is a file that is being written.
type partial struct {
	*os.File
	entry *Entry
	name  string // until it is complete
	hash  hash.Hash
	// hashed is how far hash has come. A source sends a file in order; after a write below hashed
	// the file comes once more.
	hashed int64
	again  bool
}

// partialPrefix begins the names of files that are not complete.
const partialPrefix = ".rocast-cp-"

// partialName is always the same for a file, so that a later process finds it.
func partialName(path string) string {
	sum := sha256.Sum256([]byte(filepath.Base(path)))
	return filepath.Join(filepath.Dir(path), partialPrefix+hex.EncodeToString(sum[:8]))
}

// parents refuses a name whose directories are not all directories.
func (t *Target) parents(path string) error {
	directory := filepath.Dir(path)
	if directory == "." || directory == t.checked {
		return nil
	}
	at := ""
	for _, element := range strings.Split(directory, "/") {
		at = filepath.Join(at, element)
		info, err := t.root.Lstat(at)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%q is not written to, because %q is no directory", path, at)
		}
	}
	t.checked = directory
	return nil
}

// directory makes a directory, in which files can be made whatever its mode is at the end.
func (t *Target) directory(e *Entry) error {
	if err := t.parents(e.Path); err != nil {
		return err
	}
	info, err := t.root.Lstat(e.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t.root.Mkdir(e.Path, 0o700|e.Mode.Perm())
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%q is a directory at the source, and here it is something else", e.Path)
	case info.Mode().Perm()&0o700 != 0o700:
		return t.root.Chmod(e.Path, info.Mode()&modeBits|0o700)
	}
	return nil
}

// finish does what comes after the files of a batch: symlinks, and the modes and times of
// directories.
func (t *Target) finish(e *Entry) error {
	if err := t.parents(e.Path); err != nil {
		return err
	}
	switch e.Kind {
	case DirectoryEnd:
		d, err := t.openSame(e.Path)
		if err != nil {
			return err
		}
		return errors.Join(t.attributes(e, d), d.Close())
	case Symlink:
		return t.symlink(e)
	}
	return nil
}

func (t *Target) symlink(e *Entry) error {
	if now, err := t.root.Readlink(e.Path); err != nil || now != e.Target {
		if err := t.vacant(e.Path); err != nil {
			return err
		}
		name := partialName(e.Path)
		if err := t.discard(name); err != nil {
			return err
		}
		if err := t.root.Symlink(e.Target, name); err != nil {
			return err
		}
		if err := t.root.Rename(name, e.Path); err != nil {
			return errors.Join(err, t.root.Remove(name))
		}
	}
	parent, err := t.root.Open(filepath.Dir(e.Path))
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := t.changes(filepath.Dir(e.Path), parent); err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(e.ModTime)}
	return unix.UtimesNanoAt(int(parent.Fd()), filepath.Base(e.Path), times, unix.AT_SYMLINK_NOFOLLOW)
}

// vacant refuses a name that a directory has: a file never replaces a directory.
func (t *Target) vacant(path string) error {
	info, err := t.root.Lstat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%q is a directory here, and at the source it is something else", path)
	}
	return nil
}

// has says what there is of a file already.
func (t *Target) has(e *Entry) (claim, error) {
	if !t.use {
		return claim{}, nil
	}
	if err := t.parents(e.Path); err != nil {
		return claim{}, err
	}
	if f, err := t.openSame(e.Path); err == nil {
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() == e.Size {
			h := sha256.New()
			if err := t.hash(f, h, 0, e.Size); err == nil {
				return claim{Whole: h.Sum(nil), info: info}, nil
			}
		}
	}
	f, err := t.openSame(partialName(e.Path))
	if err != nil {
		return claim{}, nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return claim{}, nil
	}
	var c claim
	unit := unitBytes(e.Size)
	for at := int64(0); at < e.Size; at += unit {
		end := min(at+unit, e.Size)
		h := sha256.New()
		if len(dataOf(f, at, end)) == 0 || t.hash(f, h, at, end) != nil {
			c.Units = append(c.Units, nil) // it is not there, or cannot be read: it will be sent
			continue
		}
		c.Units = append(c.Units, h.Sum(nil))
	}
	return c, nil
}

// openSame opens what has this name for reading, and follows no symlink.
func (t *Target) openSame(path string) (*os.File, error) {
	f, err := t.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not hold it up
	if err != nil {
		return nil, err
	}
	if !same(t.root, path, f) {
		return nil, errors.Join(fmt.Errorf("%q is a symlink, or was replaced meanwhile", path), f.Close())
	}
	return f, nil
}

// attributes gives an open file or directory the mode and time of the source's. Names are not used,
// because another program may give them to something else meanwhile.
func (t *Target) attributes(e *Entry, f *os.File) error {
	if err := t.changes(e.Path, f); err != nil {
		return err
	}
	return t.touches(f, func() error {
		if err := f.Chmod(e.Mode); err != nil {
			return err
		}
		return os.Chtimes(fmt.Sprint("/proc/self/fd/", f.Fd()), time.Time{}, time.Unix(0, e.ModTime))
	})
}

func (t *Target) hash(f *os.File, h hash.Hash, from, to int64) error {
	return hashOf(f, h, from, to, t.buffer, t.work)
}

// open begins a file, or goes on with it.
func (t *Target) open(e *Entry) (err error) {
	if t.file != nil {
		if t.file.entry == e {
			return nil
		}
		if err := t.drop(!t.keep); err != nil {
			return err
		}
	}
	if err := t.parents(e.Path); err != nil {
		return err
	}
	if err := t.vacant(e.Path); err != nil {
		return err
	}
	p := &partial{entry: e, name: partialName(e.Path), hash: sha256.New()}
	if p.File, err = t.lock(p.name, os.O_CREATE); err != nil {
		if errors.Is(err, errBusy) {
			err = fmt.Errorf("%q is being written by another rocast-cp", e.Path)
		}
		return err
	}
	t.file = p
	if err := t.changes(p.name, p.File); err != nil {
		return err
	}
	if !t.use {
		if err := p.Truncate(0); err != nil {
			return err
		}
	}
	return p.Truncate(e.Size)
}

// errBusy says that another process writes a file.
var errBusy = errors.New("it is being written")

// lock opens a file that is not complete. Nobody else writes it, renames or removes it while it is
// open: another rocast-cp that receives into this directory does so only with its lock.
func (t *Target) lock(name string, flags int) (*os.File, error) {
	for {
		if info, err := t.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
			if err := t.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		f, err := t.root.OpenFile(name, os.O_RDWR|flags, 0o600)
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, errors.Join(errBusy, f.Close())
		}
		if same(t.root, name, f) {
			return f, nil
		}
		// It was renamed or removed before it was locked.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// same reports whether a name is that of an open file.
func same(root *os.Root, name string, f *os.File) bool {
	there, err := root.Lstat(name)
	if err != nil {
		return false
	}
	own, err := f.Stat()
	return err == nil && os.SameFile(there, own)
}

// discard removes a file that is not complete, unless another process writes it.
func (t *Target) discard(name string) error {
	f, err := t.lock(name, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errBusy):
		return nil
	case err != nil:
		return err
	}
	return errors.Join(t.root.Remove(name), f.Close())
}

// again begins a file from nothing.
func (t *Target) again(e *Entry) error {
	if t.file != nil && t.file.entry == e {
		return t.drop(true)
	}
	return t.discard(partialName(e.Path))
}

// data writes bytes that have come.
func (t *Target) data(e *Entry, at int64, b []byte) error {
	if at < 0 || at > e.Size-int64(len(b)) {
		return fmt.Errorf("bytes have come for %q that are beyond its end", e.Path)
	}
	if err := t.open(e); err != nil {
		return err
	}
	p := t.file
	if err := t.hashUpTo(at); err != nil {
		return err
	}
	if _, err := t.write(p.File, b, at); err != nil {
		return fmt.Errorf("write %q: %s", e.Path, plain(err))
	}
	if at == p.hashed {
		p.hash.Write(b)
		p.hashed += int64(len(b))
	} else {
		p.again = true
	}
	return nil
}

// hole makes a part of the file zeros. Where the file system makes no holes, what was there stays,
// because zeros may take very long to write. If it was data, the SHA-256 is not the source's, and
// the file comes once more, into a file of zeros.
func (t *Target) hole(e *Entry, at, length int64) error {
	if at < 0 || length < 0 || at > e.Size-length {
		return fmt.Errorf("a hole has come for %q that is beyond its end", e.Path)
	}
	if err := t.open(e); err != nil {
		return err
	}
	t.file.again = t.file.again || at < t.file.hashed
	_ = t.punch(int(t.file.Fd()), at, length)
	return nil
}

// upTo hashes a file up to an offset below which nothing more comes.
func (t *Target) upTo(e *Entry, to int64) error {
	if to < 0 || to > e.Size {
		return errForeign
	}
	if err := t.open(e); err != nil {
		return err
	}
	return t.hashUpTo(to)
}

// hashUpTo hashes from the disk what did not come: holes, and what was there.
func (t *Target) hashUpTo(to int64) error {
	p := t.file
	if p.again || p.hashed >= to {
		return nil
	}
	err := t.hash(p.File, p.hash, p.hashed, to)
	p.hashed = to
	return err
}

// complete gives a file its name, if it is the source's. Otherwise verified is false, and the file
// is as if nothing had come.
func (t *Target) complete(e *Entry, want []byte) (verified bool, err error) {
	if err := t.open(e); err != nil {
		return false, err
	}
	p := t.file
	if err := t.hashUpTo(e.Size); err != nil {
		return false, err
	}
	if p.again || !bytes.Equal(p.hash.Sum(nil), want) {
		return false, t.drop(true)
	}
	if err := t.publish(p); err != nil {
		return false, errors.Join(err, t.drop(!t.keep))
	}
	t.file = nil
	return true, nil
}

func (t *Target) publish(p *partial) error {
	if err := t.attributes(p.entry, p.File); err != nil {
		return err
	}
	if err := closed(p.File); err != nil {
		return err
	}
	if !same(t.root, p.name, p.File) {
		return fmt.Errorf("%q was removed or replaced while it was written", p.name)
	}
	if err := t.rename(p.name, p.entry.Path); err != nil {
		return err
	}
	_ = p.Close() // everything is written
	return nil
}

// rename gives a file its name. The file that had the name may have others.
func (t *Target) rename(from, to string) error {
	rename := func() error { return t.root.Rename(from, to) }
	old, err := t.openSame(to)
	if err != nil {
		return rename()
	}
	return errors.Join(t.touches(old, rename), old.Close())
}

// inode is a file, whatever its names are.
type inode struct{ device, number uint64 }

// touch is the change time of a file before a change of this process, and after.
type touch struct{ from, to unix.Timespec }

// touches makes a change, and notes it if the file has several names: each has a claim with a
// change time.
func (t *Target) touches(f *os.File, change func() error) error {
	var before, after unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &before); err != nil {
		return err
	}
	if err := change(); err != nil || before.Nlink == 1 {
		return err
	}
	if err := unix.Fstat(int(f.Fd()), &after); err != nil {
		return err
	}
	at := inode{before.Dev, before.Ino}
	was := touch{before.Ctim, after.Ctim}
	if last, known := t.touched[at]; known && last.to == before.Ctim {
		was.from = last.from
	}
	t.touched[at] = was
	return nil
}

// unchanged reports whether a file is as it was read: nothing but this process has changed it
// since, and what this process gave it is what the entry needs.
func (t *Target) unchanged(e *Entry, now, read os.FileInfo) bool {
	if !os.SameFile(now, read) {
		return false
	}
	if changeTime(now) == changeTime(read) {
		return true
	}
	s, ok := now.Sys().(*syscall.Stat_t)
	return ok && t.touched[inode{s.Dev, s.Ino}] == touch{changeTime(read), changeTime(now)} &&
		now.Mode()&modeBits == e.Mode && now.ModTime().UnixNano() == e.ModTime
}

// closed does what a close does: on some file systems what could not be written is known only then.
// The file stays open, and so it stays locked.
func closed(f *os.File) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// keeps gives a file that was there already the mode and time of the source's. It reports false if
// the file is not the one that was read, or was changed since.
func (t *Target) keeps(e *Entry, read os.FileInfo) (bool, error) {
	f, err := t.openSame(e.Path)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil || !t.unchanged(e, now, read) {
		return false, err
	}
	return true, t.attributes(e, f)
}

// pause closes the file that is being written, if there is one: another pass begins, in which what
// is there is used.
func (t *Target) pause() error {
	t.use = true
	if t.file == nil {
		return nil
	}
	t.paused = append(t.paused, t.file.name)
	return t.drop(false)
}

// drop closes the file that is being written.
func (t *Target) drop(remove bool) error {
	p := t.file
	t.file = nil
	var err error
	if remove { // while it is locked
		err = t.root.Remove(p.name)
	}
	return errors.Join(err, p.Close())
}
