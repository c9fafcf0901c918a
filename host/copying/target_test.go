package copying

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
// another one is mounted.
func TestEachFileSystemIsFlushed(t *testing.T) {
	dir := t.TempDir()
	target, err := OpenTarget(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := os.Open("/dev/shm")
	if err != nil {
		t.Skip(err)
	}
	defer elsewhere.Close()
	for range 2 {
		if err := target.changes("f", elsewhere); err != nil {
			t.Error(err)
		}
	}
	flushed := 0
	target.flush = func(int) error { flushed++; return nil }
	if err := target.sync(); err != nil || flushed != 2 {
		t.Errorf("flushed %d, %v", flushed, err)
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
