package copying

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What gets the mode and time of the source's is what was read or written, and nothing to which
// somebody gives its name meanwhile.
func TestANameThatIsGivenToSomethingElse(t *testing.T) {
	old := time.Unix(1e9, 0)
	for name, replace := range map[string]func(dir string) error{
		"a symlink":  func(dir string) error { return os.Symlink("victim", filepath.Join(dir, "d")) },
		"other file": func(dir string) error { return os.Rename(filepath.Join(dir, "victim"), filepath.Join(dir, "d")) },
	} {
		for kind, make := range map[EntryKind]func(path string) error{
			File:      func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
			Directory: func(path string) error { return os.Mkdir(path, 0o700) },
		} {
			dir := t.TempDir()
			victim, named := filepath.Join(dir, "victim"), filepath.Join(dir, "d")
			target, err := OpenTarget(dir, true)
			if err := errors.Join(err, make(named), make(victim), os.Chtimes(victim, old, old)); err != nil {
				t.Fatal(err)
			}
			before, err := os.Stat(victim)
			if err != nil {
				t.Fatal(err)
			}
			e := &Entry{Kind: kind, Mode: 0o777, Size: 1, Path: "d"}
			c, err := target.has(e)
			if err := errors.Join(err, os.RemoveAll(named), replace(dir)); err != nil {
				t.Fatal(err)
			}
			switch kind {
			case File:
				if kept, err := target.keeps(e, c.info); kept || err != nil {
					t.Errorf("%s: kept %v, %v", name, kept, err)
				}
			case Directory:
				if err := target.finish(&Entry{Kind: DirectoryEnd, Mode: 0o777, Path: "d"}); name == "a symlink" && err == nil {
					t.Error("a symlink is a directory")
				}
			}
			if name == "other file" && kind == Directory { // it has the name that is asked for
				continue
			}
			after, err := os.Stat(named)
			if err != nil || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
				t.Errorf("%s: %v %v was %v %v, %v", name, after.Mode(), after.ModTime(), before.Mode(), before.ModTime(), err)
			}
			if err := target.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A file that nobody touches keeps its bytes, and gets the mode and time of the source's.
func TestAFileThatIsThere(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), []byte("x"))
	target, err := OpenTarget(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	e := &Entry{Kind: File, Mode: 0o640, ModTime: 1e18, Size: 1, Path: "f"}
	c, err := target.has(e)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := target.keeps(e, c.info); !kept || err != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "f")); err != nil || info.Mode() != 0o640 || info.ModTime().UnixNano() != 1e18 {
		t.Errorf("%v, %v", info, err)
	}
	write(t, filepath.Join(dir, "f"), []byte("y")) // as long
	if kept, err := target.keeps(e, c.info); kept || err != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if err := target.Close(); err != nil {
		t.Error(err)
	}
}

// Everything that a receiver writes is on a file system that is flushed at the end, also where
// another one is mounted, and a directory that is changed may be where it is mounted.
func TestEachFileSystemIsFlushed(t *testing.T) {
	target, err := OpenTarget("/", false) // nothing is written
	if err != nil {
		t.Fatal(err)
	}
	device := func(fd int) (dev uint64) {
		var s unix.Stat_t
		if err := unix.Fstat(fd, &s); err != nil {
			t.Error(err)
		}
		return s.Dev
	}
	const path = "dev/shm"
	elsewhere, err := target.root.Open(path)
	if err != nil {
		t.Skip(err)
	}
	defer elsewhere.Close()
	want := map[uint64]int{device(int(elsewhere.Fd())): 1}
	for at := range target.systems {
		want[at] = 1
	}
	if len(want) == 1 {
		t.Skip("/" + path + " is not mounted")
	}
	for range 2 {
		if err := target.changes(path, elsewhere); err != nil {
			t.Error(err)
		}
	}
	flushed := map[uint64]int{}
	target.flush = func(fd int) error { flushed[device(fd)]++; return nil }
	if err := target.sync()(); err != nil || !maps.Equal(flushed, want) {
		t.Errorf("flushed %v, want %v, %v", flushed, want, err)
	}
	if err := target.Close(); err != nil {
		t.Error(err)
	}
}

// A receiver that may not write says so in one sentence.
func TestAReceiverThatMayNotWrite(t *testing.T) {
	dir := t.TempDir()
	target, err := OpenTarget(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer unprivileged(t)()
	for what, err := range map[string]error{
		"file":      target.data(&Entry{Kind: File, Path: "f", Size: 1}, 0, []byte("x")),
		"directory": target.directory(&Entry{Kind: Directory, Path: "d"}),
		"symlink":   target.finish(&Entry{Kind: Symlink, Path: "l", Target: "x"}),
	} {
		if err == nil || !strings.HasSuffix(said(err).Error(), "permission denied") || strings.Contains(said(err).Error(), "\n") {
			t.Errorf("%s: %v", what, said(err))
		}
	}
}

// A source that may not read a file leaves it out, and sends the others.
func TestASourceThatMayNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "a"), nil, 0o000), os.WriteFile(filepath.Join(dir, "b"), nil, 0o644),
		os.Mkdir(filepath.Join(dir, "c"), 0o000), os.Chmod(filepath.Dir(dir), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &Source{peers: newPeers("", 0, func(Event) {}), leftOut: map[string]string{}}
	s.sendBy(newHub(), nil)
	defer unprivileged(t)()
	var entries []Entry
	err := walk([]string{dir}, func(e *Entry) error { entries = append(entries, *e); return nil }, s.omit)
	plan := map[int]wanted{}
	for i := range entries {
		plan[i] = wanted{}
	}
	if err := errors.Join(err, s.sendFiles(t.Context(), entries, plan)); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"a", "c"} {
		if why := s.leftOut[filepath.Join(dir, name)]; why != "permission denied" {
			t.Errorf("%s: %q", name, why)
		}
	}
	if len(s.leftOut) != 2 {
		t.Error(s.leftOut)
	}
}

// sparse makes a file of this size with some bytes at its beginning and somewhere behind.
func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	write(t, path, random(BlockBytes))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, first := f.WriteAt(random(10), size/2)
	if err := errors.Join(first, f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// readBytes is how much this process has read from files.
func readBytes(t *testing.T) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	}
	if err != nil {
		t.Skip(err)
	}
	return n
}

// A hole is hashed as zeros, and not read.
func TestAHoleIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	sparse(t, path, 64<<20)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range []span{{0, 64 << 20}, {BlockBytes / 2, 3 * BlockBytes / 2}, {40 << 20, 50 << 20}, {32 << 20, 32<<20 + 5}, {7, 7}} {
		h, hashed, before := sha256.New(), int64(0), readBytes(t)
		err := hashOf(f, h, part.from, part.to, make([]byte, BlockBytes), func(n int) error { hashed += int64(n); return nil })
		if read := readBytes(t) - before; read > 2*BlockBytes {
			t.Errorf("%v: %d bytes were read", part, read)
		}
		if want := sha256.Sum256(content[part.from:part.to]); err != nil || [32]byte(h.Sum(nil)) != want || hashed != part.to-part.from {
			t.Errorf("%v: %x, %d bytes, %v", part, h.Sum(nil), hashed, err)
		}
	}
}

// A sparse file that is longer than any disk holds up nobody: a receiver that is interrupted ends
// after the present step.
func TestALongHoleEnds(t *testing.T) {
	target, err := OpenTarget(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	e := &Entry{Kind: File, Size: 1 << 42, Path: "f"}
	if err := target.open(e); err != nil {
		t.Skip(err) // the file system has no such files
	}
	interrupted, steps := errors.New("interrupted"), 0
	target.work = func(int) error {
		if steps++; steps == 10 {
			return interrupted
		}
		return nil
	}
	if _, err := target.complete(e, nil); !errors.Is(err, interrupted) || steps != 10 {
		t.Errorf("%d steps, %v", steps, err)
	}
	if err := target.Close(); err != nil {
		t.Error(err)
	}
}

// Where the file system makes no holes, a file whose holes were data comes once more from its
// beginning, and no zeros are written.
func TestAFileSystemWithoutHoles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	file := filepath.Join(t.TempDir(), "f")
	sparse(t, file, 16*BlockBytes)
	write(t, filepath.Join(dir, partialName("f")), random(16*BlockBytes))
	b := newBench(t, 2, file)
	h := b.receiver(dir, true)
	var written, punched int
	h.Target.punch = func(int, int64, int64) error { punched++; return unix.EOPNOTSUPP }
	h.Target.write = func(f *os.File, p []byte, at int64) (int, error) {
		written += len(p)
		return f.WriteAt(p, at)
	}
	b.complete(file, h.start(t.Context()), b.receiver(filepath.Join(t.TempDir(), "new"), false).start(t.Context()))
	if punched == 0 || written > 5*BlockBytes {
		t.Errorf("%d holes were tried, %d bytes written", punched, written)
	}
}

// A name that leads out of the directory ends the copy, before anything has its name.
func TestAReceiverRefusesANameThatEscapes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	b := newBench(t, 1)
	h := b.receiver(dir, false)
	h.line = &line{}
	m := appendRecord(new(header).append(nil), kindBatch, numbers(0))
	m = appendRecord(m, kindEntry, (&Entry{Kind: Directory, Mode: 0o777, Path: "d"}).append(nil))
	m = appendRecord(m, kindEntry, (&Entry{Kind: File, Mode: 0o666, Path: "d/../../x"}).append(nil))
	if err := h.take(m); err == nil || err.Error() != `the name "d/../../x" leads out of the directory, so nothing was written to it` {
		t.Error(err)
	}
	if list := append(listOf(t, dir), listOf(t, filepath.Dir(dir))...); len(list) != 1 {
		t.Errorf("%q", list)
	}
	if err := h.Target.Close(); err != nil {
		t.Error(err)
	}
}

// A source that is interrupted while it hashes a long file ends, and does not call the file unread.
func TestASourceIsInterruptedWhileItHashes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<42)); err != nil {
		t.Skip(err) // the file system has no such files
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	s := &Source{peers: newPeers("", 0, func(Event) {}), leftOut: map[string]string{}}
	s.sendBy(newHub(), nil)
	err := walk([]string{file}, func(e *Entry) error { return s.sendFile(ctx, 0, e, wanted{none: true}) }, s.omit)
	if !errors.Is(err, context.Canceled) || len(s.leftOut) > 0 {
		t.Error(err, s.leftOut)
	}
}

// Files with one content that are one file here, under two names: what the first one gets as its
// mode and time changes nothing of the second one, which is not sent. If they need to differ, they
// become two files.
func TestAFileWithTwoNames(t *testing.T) {
	for _, differ := range []bool{false, true} {
		tree := filepath.Join(t.TempDir(), "tree")
		content := random(4 * BlockBytes)
		for _, name := range []string{"a", "b", "c", "d"} {
			write(t, filepath.Join(tree, name), content)
			if err := os.Chtimes(filepath.Join(tree, name), time.Time{}, time.Unix(1e9, 1)); err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(tree, "c"), random(BlockBytes)) // here it is another one
		if differ {
			if err := os.Chmod(filepath.Join(tree, "b"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := newBench(t, 1, tree)
		h := b.receiver(filepath.Join(t.TempDir(), "r"), true)
		first := filepath.Join(h.dir, "tree", "a")
		write(t, first, content)
		for _, name := range []string{"b", "c", "d"} {
			if err := os.Link(first, filepath.Join(h.dir, "tree", name)); err != nil {
				t.Fatal(err)
			}
		}
		b.complete(tree, h.start(t.Context()))
		most := int64(2 * BlockBytes)
		if differ {
			most += 4 * BlockBytes
		}
		if b.hub.sent > most {
			t.Errorf("%v: %d bytes were sent", differ, b.hub.sent)
		}
	}
}

// What another program does to a file with two names counts, also between two changes of this one.
func TestAFileWithTwoNamesIsChanged(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), []byte("x"))
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	target, err := OpenTarget(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	e := &Entry{Kind: File, Mode: 0o640, ModTime: 1e18, Size: 1, Path: "a"}
	c, err := target.has(e)
	if err != nil {
		t.Fatal(err)
	}
	f, err := target.openSame("b")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stat := func() os.FileInfo {
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	// The clock of a file system may stand still for some milliseconds.
	until := func(change func() error) {
		for before := stat(); changeTime(stat()) == changeTime(before); {
			if err := change(); err != nil {
				t.Fatal(err)
			}
		}
	}
	own := func() error { return target.attributes(e, f) }
	until(own)
	if !target.unchanged(e, stat(), c.info) {
		t.Error("a change of its own is one of another program")
	}
	until(func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("y"), 0) })
	until(own)
	if target.unchanged(e, stat(), c.info) {
		t.Error("a change of another program is not seen")
	}
	if err := target.Close(); err != nil {
		t.Error(err)
	}
}
