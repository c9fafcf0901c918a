package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // fails if the test has closed it
	return s
}

func groups(t *testing.T, s *Store) string {
	t.Helper()
	groups, err := s.Restore()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range groups {
		if g.Err != nil {
			t.Error(g.Err)
		}
		out = append(out, fmt.Sprintf("%s=%s idle=%v", g.Name, g.Text, g.Idle))
		if g.Clean {
			out[len(out)-1] += " clean"
		}
	}
	return strings.Join(out, "; ")
}

func put(t *testing.T, s *Store, name, text string) {
	t.Helper()
	if err := s.Put(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestGroupsOutliveTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for", "it")
	s := open(t, dir)
	put(t, s, "b", "1")
	put(t, s, "a", "2")
	put(t, s, "b", "3")
	put(t, s, "gone", "4")
	if err := s.Delete("gone"); err != nil {
		t.Fatal(err)
	}
	s.Close() // as the end of the process would
	if got, want := groups(t, open(t, dir)), "a=2 idle=false; b=3 idle=false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAStateLivesAndDiesWithItsGroup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	put(t, s, "a.state", "2") // a valid name of a group
	put(t, s, "b", "3")
	for _, name := range []string{"a", "b", "orphan"} {
		if err := s.PutState(name, []byte("of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutState("b", nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir)
	for range 2 { // the next start finds it again
		groups, err := s.Restore()
		if err != nil || len(groups) != 3 || string(groups[1].State) != "of a" || groups[0].State != nil || groups[2].State != nil {
			t.Errorf("%+v, %v", groups, err)
		}
		for _, g := range groups {
			if g.Err != nil {
				t.Error(g.Err)
			}
		}
	}
	if err := s.Delete("a"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "groups", "*.state"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "b.state" {
		t.Errorf("left %v, %v", left, err)
	}
}

// A state that is missing is not taken for that of a new group, also where it said nothing. A group
// that an older release has stored may have none.
func TestAStateThatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(s *Store) error
		missed  bool
	}{
		"a state":      {func(s *Store) error { return errors.Join(s.PutState("a", []byte("x")), s.Put("a", []byte("1"))) }, true},
		"an empty one": {func(s *Store) error { return errors.Join(s.PutState("a", nil), s.Put("a", []byte("1"))) }, true},
		"a state that has gone": {func(s *Store) error {
			return errors.Join(s.PutState("a", []byte("x")), s.Put("a", []byte("1")), s.PutState("a", nil))
		}, true},
		"it is stored once more": {func(s *Store) error {
			return errors.Join(s.Put("a", []byte("1")), s.PutState("a", []byte("x")), s.Put("a", []byte("2")))
		}, true},
		"an older release": {func(s *Store) error { return errors.Join(s.Put("a", []byte("1")), s.PutState("a", nil)) }, false},
	} {
		dir := t.TempDir()
		s := open(t, dir)
		if err := c.prepare(s); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "groups", "a.state")
		groups, err := s.Restore()
		if err != nil || len(groups) != 1 || groups[0].Err != nil {
			t.Errorf("%s, before: %+v, %v", name, groups, err)
		}
		if err := os.Remove(path); c.missed != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		groups, err = s.Restore()
		if err != nil || len(groups) != 1 || (groups[0].Err != nil) != c.missed {
			t.Errorf("%s: %+v, %v", name, groups, err)
		}
		if want := "the state of group a is missing, which was in " + path; c.missed && groups[0].Err.Error() != want {
			t.Errorf("%s: %v", name, groups[0].Err)
		}
	}
}

// A state of nothing is written when the group has none or another one, and not each time.
func TestAStateOfNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	synced := 0
	s.SyncDir = func(string) error { synced++; return nil }
	for _, state := range []string{"x", "", "", "y", ""} {
		var text []byte
		if state != "" {
			text = []byte(state)
		}
		if err := s.PutState("a", text); err != nil {
			t.Fatal(err)
		}
	}
	if synced != 4 {
		t.Errorf("written %d times, want 4", synced)
	}
}

// The links to other boxes are stored beside their group, and without it they are forgotten.
func TestLinksLiveAndDieWithTheirGroup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	put(t, s, "b", "2")
	for _, name := range []string{"b", "orphan"} {
		if err := s.PutTree(name, []byte("of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, dir)
	for range 2 { // the next start finds them again
		groups, err := s.Restore()
		if err != nil || len(groups) != 2 || groups[0].Tree != nil || string(groups[1].Tree) != "of b" || groups[1].State != nil {
			t.Errorf("%+v, %v", groups, err)
		}
	}
	if err := s.Delete("b"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "groups", "*.tree"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The text of a group reports whether it has links, from its first one on until its last one has
// gone.
func TestLinksThatAreMissing(t *testing.T) {
	links, other := []byte("links"), []byte("other links")
	for name, c := range map[string]struct {
		do     func(*Store) error
		missed bool
	}{
		"links, then the text": {func(s *Store) error { return errors.Join(s.PutTree("a", links), s.Put("a", []byte("text"))) }, true},
		"the text, then links": {func(s *Store) error { return errors.Join(s.Put("a", []byte("text")), s.PutTree("a", links)) }, true},
		"other links": {func(s *Store) error {
			return errors.Join(s.Put("a", []byte("text")), s.PutTree("a", links), s.PutTree("a", other))
		}, true},
		"another text": {func(s *Store) error {
			return errors.Join(s.PutTree("a", links), s.Put("a", []byte("x")), s.Put("a", []byte("text")))
		}, true},
		"no links": {func(s *Store) error { return errors.Join(s.PutTree("a", nil), s.Put("a", []byte("text"))) }, false},
		"no links any more": {func(s *Store) error {
			return errors.Join(s.PutTree("a", links), s.Put("a", []byte("text")), s.PutTree("a", nil))
		}, false},
		"links of the group before": {func(s *Store) error {
			return errors.Join(s.PutTree("a", links), s.Put("a", []byte("x")), s.Delete("a"), s.Put("a", []byte("text")))
		}, false},
	} {
		for _, state := range []bool{false, true} {
			dir := t.TempDir()
			s := open(t, dir)
			if state {
				must(t, s.PutState("a", []byte("{}")))
			}
			must(t, c.do(s))
			path := filepath.Join(dir, "groups", "a.tree")
			must(t, removeIfThere(path))
			got, err := s.Restore()
			must(t, err)
			state = state && name != "links of the group before"
			want := "the links of group a are missing, which were in " + path
			if g := got[0]; string(g.Text) != "text" || (g.Err != nil) != c.missed || c.missed && g.Err.Error() != want || string(g.State) != map[bool]string{true: "{}"}[state] {
				t.Errorf("%s, state %v: %+v", name, state, g)
			}
			if state {
				must(t, os.Remove(filepath.Join(dir, "groups", "a.state")))
				if got, err = s.Restore(); err != nil || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "the state of group a is missing") {
					t.Errorf("%s, without its state: %+v, %v", name, got, err)
				}
			}
		}
	}
}

// A text that is damaged, or of an older release, does not keep links from being stored, and is
// left as it is.
func TestLinksOfATextThatCannotBeMarked(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	path := filepath.Join(dir, "groups", "a.yaml")
	for _, text := range []string{"", "# checksum 00000000 of the lines below\ntext\n"} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		must(t, s.PutTree("a", []byte("links")))
		if got, err := os.ReadFile(path); string(got) != text || err != nil {
			t.Errorf("%q has become %q, %v", text, got, err)
		}
	}
	must(t, os.WriteFile(path, []byte("old\n"), 0o600))
	must(t, s.PutTree("a", []byte("links")))
	if got, err := s.Get("a"); string(got) != "old\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatACleanStopKnewHoldsForOneStart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "carried", "")
	put(t, s, "idle", "")
	if err := s.Stopped([]string{"idle"}, nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir)
	if got, want := groups(t, s), "carried= idle=false clean; idle= idle=true clean"; got != want {
		t.Errorf("after a clean stop: got %s, want %s", got, want)
	}
	if err := s.Stopped([]string{"idle"}, []string{"carried"}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir)
	if got, want := groups(t, s), "carried= idle=false; idle= idle=true clean"; got != want {
		t.Errorf("after a clean stop for one of them: got %s, want %s", got, want)
	}
	s.Close() // a crash: nothing is recorded
	if got, want := groups(t, open(t, dir)), "carried= idle=false; idle= idle=false"; got != want {
		t.Errorf("after a crash: got %s, want %s", got, want)
	}
}

// A byte that has changed is noticed wherever it is, and so is a file that was cut.
func TestADamagedFileIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "g1", "name: g1\n")
	put(t, s, "g2", "name: g2\n")
	if err := errors.Join(s.PutState("g1", []byte("{}")), s.PutTree("g1", []byte("[]"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Stopped([]string{"g1", "g2"}, nil); err != nil {
		t.Fatal(err)
	}
	idle, err := os.ReadFile(s.idlePath())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"groups/g1.yaml", "groups/g1.state", "groups/g1.tree", "idle"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(s.idlePath(), idle, 0o600); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole {
			damaged := [][]byte{whole[:at]}
			if at >= len(checksumPrefix) {
				flipped := slices.Clone(whole)
				flipped[at] ^= 1
				damaged = append(damaged, flipped)
			}
			for _, bad := range damaged {
				if err := errors.Join(os.WriteFile(s.idlePath(), idle, 0o600), os.WriteFile(path, bad, 0o600)); err != nil {
					t.Fatal(err)
				}
				s.Close()
				s = open(t, dir)
				groups, err := s.Restore()
				if err != nil || len(groups) != 2 || groups[1].Err != nil {
					t.Fatalf("%+v, %v", groups, err)
				}
				said, clean := groups[0].Err, true
				if name == "idle" && len(bad) == 0 {
					continue // see TestFilesWithoutAChecksum
				}
				if name == "idle" {
					said, clean = s.Damage, false
				}
				if said == nil || !strings.Contains(said.Error(), path+" is damaged") || groups[1].Clean != clean || groups[1].Idle != clean {
					t.Errorf("%q: %v, %+v", bad, said, groups[1])
				}
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if groups, err := s.Restore(); err != nil || groups[0].Err != nil {
		t.Errorf("%+v, %v", groups, err)
	}
}

// Files of an older release, or those that somebody has edited, have no checksum.
func TestFilesWithoutAChecksum(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for name, text := range map[string]string{"groups/g1.yaml": "name: g1\n", "groups/g1.state": "{}", "groups/g1.tree": "{}", "idle": "g1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	groups, err := s.Restore()
	if err != nil || len(groups) != 1 || s.Damage != nil {
		t.Fatalf("%+v, %v, %v", groups, err, s.Damage)
	}
	if g := groups[0]; g.Err != nil || string(g.Text) != "name: g1\n" || string(g.State) != "{}" || g.Tree == nil || !g.Clean || !g.Idle {
		t.Errorf("%+v", g)
	}
	if err := os.WriteFile(s.idlePath(), nil, 0o600); err != nil { // no group was idle
		t.Fatal(err)
	}
	if groups, err = s.Restore(); err != nil || s.Damage != nil || !groups[0].Clean || groups[0].Idle {
		t.Errorf("%+v, %v, %v", groups, err, s.Damage)
	}
}

// Names may end like the files of other groups.
func TestGroupsWithNamesLikeFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, name := range []string{"a", "a.yaml", "a.state", "a.yaml.state"} {
		put(t, s, name, name)
	}
	if err := s.PutState("a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	want := "a.state=a.state idle=false; a=a idle=false; a.yaml.state=a.yaml.state idle=false; a.yaml=a.yaml idle=false"
	if got := groups(t, s); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Forget may come late, after the next clean stop, which it must not touch.
func TestForgettingIsDoneOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "g1", "")
	if err := errors.Join(s.Stopped(nil, nil), s.Forget()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir)
	if got, want := groups(t, s), "g1= idle=false clean"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	obstruct(t, filepath.Join(dir, "idle")) // it does not look any more
	if err := s.Forget(); err != nil {
		t.Error(err)
	}
}

// obstruct puts a directory in a file's place that can be neither replaced nor removed.
func obstruct(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// What could not be written, removed or read is no success.
func TestEachFailureIsReported(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, "groups", name) }
	s := open(t, dir)
	for _, name := range []string{"yaml", "state"} {
		put(t, s, name, "text")
		if err := s.PutState(name, []byte("state")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file(name + "." + name)); err != nil {
			t.Fatal(err)
		}
		obstruct(t, file(name+"."+name))
	}
	_, getErr := s.Get("none")
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"read a group that is not there":       {getErr, "read group none: "},
		"replace a group":                      {s.Put("yaml", nil), "keep group yaml: "},
		"remove a group":                       {s.Delete("yaml"), "forget group yaml: "},
		"replace a state":                      {s.PutState("state", []byte("x")), "keep the state of group state: "},
		"remove a state":                       {s.PutState("state", nil), "keep the state of group state: "},
		"remove a group whose state cannot be": {s.Delete("state"), "forget group state: keep the state of group state: "},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), c.want) {
			t.Errorf("%s: %v", what, c.err)
		}
	}
	if text, err := readFile(file("yaml.state")); err != nil || string(text) != "state" {
		t.Errorf("the state of a group that is still there: %q, %v", text, err)
	}
	put(t, s, "state", "text")
	groups, err := s.Restore()
	if err != nil || len(groups) != 2 || groups[0].Err == nil || groups[1].Err == nil {
		t.Errorf("%+v, %v", groups, err)
	}

	if err := os.RemoveAll(filepath.Join(dir, "groups")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Restore(); err == nil || !strings.HasPrefix(err.Error(), "read the kept groups: ") {
		t.Errorf("restore without the directory: %v", err)
	}
	if err := s.Delete("g1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("remove without the directory: %v", err)
	}
	if err := s.Put("g1", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("put without the directory: %v", err)
	}
	obstruct(t, filepath.Join(dir, "idle"))
	if err := s.Stopped(nil, nil); err == nil || !strings.HasPrefix(err.Error(), "record the clean stop: ") {
		t.Errorf("stop: %v", err)
	}
	s.Close()
	s = open(t, dir)
	if err := s.Forget(); err == nil || !strings.HasPrefix(err.Error(), "forget the record of the last stop: ") {
		t.Errorf("forget: %v", err)
	}
}

// A directory that cannot be synced may lose in a crash what was renamed or removed in it.
func TestADirectoryThatCannotBeSyncedIsAFailure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to do without its capabilities; run it with sudo")
	}
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "g1", "text")
	for _, name := range []string{"", "groups"} { // files in them can be renamed and removed, but they cannot be opened
		if err := os.Chmod(filepath.Join(dir, name), 0o300); err != nil {
			t.Fatal(err)
		}
	}
	for what, do := range map[string]func() error{
		"put": func() error { return s.Put("g2", nil) }, "delete": func() error { return s.Delete("g1") }, "forget": s.Forget,
	} {
		err := testlab.WithoutCapability(unix.CAP_DAC_READ_SEARCH, func() error {
			return testlab.WithoutCapability(unix.CAP_DAC_OVERRIDE, do)
		})
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A text that the disk did not take is not kept: here, one that is written into a pipe.
func TestATextThatCannotBeSyncedIsNotKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "text")
	aside := filepath.Join(dir, ".text.new")
	if err := unix.Mkfifo(aside, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(aside, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := new(Store).writeFile(path, []byte("x")); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestFilesAreClosed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	before := testlab.OpenFiles(t)
	for range 20 {
		put(t, s, "g1", "text")
		end := appendAll(t, s, noRegions(t, s), "one")
		if err := s.CutRegions("g1", end); err != nil {
			t.Fatal(err)
		}
		regionsOf(t, s)
		if _, err := s.PutRegions("g1", slices.Values([][]byte{nil})); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete("g1"); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil {
			t.Fatal("opened twice")
		}
	}
	if opened := before.Since(t); len(opened) > 0 {
		t.Errorf("%q stay open", opened)
	}
}

func TestDirectoriesThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "lock"), 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, unix.EISDIR) || !strings.HasPrefix(err.Error(), "lock the state directory: ") {
		t.Errorf("with a directory as its lock: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "file")); !errors.Is(err, unix.ENOTDIR) || !strings.HasPrefix(err.Error(), "create the state directory: ") {
		t.Errorf("a file: %v", err)
	}
	if err := notLocked("/d", "", unix.ENOLCK); err.Error() != "lock the state directory /d: no locks available" {
		t.Error(err)
	}
}

func TestASecondDaemonIsRefusedByPID(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := Open(dir)
	want := fmt.Sprintf("state directory %s is in use by the rocastd with PID %d; stop that process, or write another stateDir into this config", dir, os.Getpid())
	if err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	s.Close()
	lock := filepath.Join(dir, "lock")
	if err := os.WriteFile(lock, []byte("12345678901234567890\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer s.Close()
	if text, err := os.ReadFile(lock); err != nil || string(text) != fmt.Sprintln(os.Getpid()) {
		t.Errorf("the lock says %q, %v", text, err)
	}
}

func TestAnUnfinishedWriteIsNoGroup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "g1", "whole")
	unfinished := filepath.Join(dir, "groups", ".g1.yaml.new")
	if err := os.WriteFile(unfinished, []byte("ha"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := groups(t, s), "g1=whole idle=false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.Close()
	if got, want := groups(t, open(t, dir)), "g1=whole idle=false"; got != want {
		t.Errorf("after a restart: got %s, want %s", got, want)
	}
	if _, err := os.Stat(unfinished); err == nil {
		t.Error("the unfinished write is still there")
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "groups", "g1.yaml"), 0o700); err != nil { // a file cannot be renamed to it
		t.Fatal(err)
	}
	if err := s.Put("g1", []byte("text")); err == nil {
		t.Error("put succeeded")
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "groups"))
	if len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

func TestGroupFilesAreForTheOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	put(t, open(t, dir), "g1", "rkey")
	for path, want := range map[string]os.FileMode{"groups": 0o700, "groups/g1.yaml": 0o600, "lock": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %v, want %v", path, got, want)
		}
	}
}

func TestAGroupWhoseFileIsGoneCanBeForgotten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "g1", "")
	if err := s.PutState("g1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "groups", "g1.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("g1"); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "groups", "*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// disk mounts a small file system that only the test's thread sees. The thread ends with the test.
func disk(t *testing.T, dir string) (remount func(flags uintptr)) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("needs CAP_SYS_ADMIN: %v", err)
	}
	for _, step := range []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return func(flags uintptr) {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// On a disk that became read-only, a restart must still restore the groups. The record of the last
// clean stop cannot be removed, so it is ignored: after a crash it would still be there.
func TestGroupsComeBackFromAReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	remount := disk(t, dir)
	s := open(t, dir)
	put(t, s, "g1", "1")
	if err := s.PutState("orphan", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Stopped([]string{"g1"}, nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	remount(unix.MS_RDONLY)
	s = open(t, dir)
	if got, want := groups(t, s), "g1=1 idle=false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "is in use by the rocastd with PID") {
		t.Errorf("a second daemon: %v", err)
	}
	if s.Forget() == nil {
		t.Error("forgotten on a disk that cannot")
	}
	remount(0)
	if err := s.Forget(); err != nil {
		t.Error(err)
	}
	s.Close() // a crash
	if got, want := groups(t, open(t, dir)), "g1=1 idle=false"; got != want {
		t.Errorf("after the crash: got %s, want %s", got, want)
	}
}

func TestGroupsComeBackFromAFullDisk(t *testing.T) {
	dir := t.TempDir()
	disk(t, dir)
	s := open(t, dir)
	put(t, s, "g1", "1")
	s.Close()
	if err := os.Truncate(filepath.Join(dir, "lock"), 0); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	s = open(t, dir)
	if got, want := groups(t, s), "g1=1 idle=false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := s.Put("g2", make([]byte, 1<<12)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("another group: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "groups")); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	want := fmt.Sprintf("state directory %s is in use by another rocastd; stop that process, or write another stateDir into this config", dir)
	if _, err := Open(dir); err == nil || err.Error() != want {
		t.Errorf("a second daemon:\ngot  %v\nwant %s", err, want)
	}
}
