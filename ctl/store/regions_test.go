package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// regionsOf reads the stored changes of group g1.
func regionsOf(t *testing.T, s *Store) (changes []string, end, cut int64) {
	t.Helper()
	end, cut, err := s.Regions("g1", func(change []byte) error {
		changes = append(changes, string(change))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return changes, end, cut
}

// noRegions stores an empty table for group g1.
func noRegions(t *testing.T, s *Store) (begin int64) {
	t.Helper()
	begin, err := s.PutRegions("g1", slices.Values([][]byte(nil)))
	if err != nil || begin != headBytes {
		t.Fatal(begin, err)
	}
	return begin
}

func appendAll(t *testing.T, s *Store, at int64, changes ...string) int64 {
	t.Helper()
	for _, change := range changes {
		end, err := s.AppendRegions("g1", at, []byte(change))
		if err != nil || end != at+frameHeadBytes+int64(len(change)) {
			t.Fatal(end, err)
		}
		at = end
	}
	return at
}

func TestRegionsComeBack(t *testing.T) {
	s := open(t, t.TempDir())
	missing := func() {
		t.Helper()
		if _, _, err := s.Regions("g1", nil); !errors.Is(err, errNoRegions) {
			t.Errorf("without a file: %v", err)
		}
	}
	missing()
	begin := noRegions(t, s)
	if changes, end, cut := regionsOf(t, s); changes != nil || end != begin || cut != 0 {
		t.Errorf("%q, %d, %d", changes, end, cut)
	}
	end := appendAll(t, s, begin, "one", "2", "three")
	check := func(wantEnd int64, want ...string) {
		t.Helper()
		if changes, end, cut := regionsOf(t, s); !slices.Equal(changes, want) || end != wantEnd || cut != 0 {
			t.Errorf("%q, %d, %d; want %q, %d", changes, end, cut, want, wantEnd)
		}
	}
	check(end, "one", "2", "three")
	if info, err := os.Stat(s.beside("g1", regionsSuffix)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err) // it has R_Keys
	}
	// A change that is not made is taken back, or written over by the next one.
	appendAll(t, s, end, "four")
	if err := s.CutRegions("g1", end); err != nil {
		t.Fatal(err)
	}
	check(end, "one", "2", "three")
	appendAll(t, s, end, "a longer fourth one")
	check(appendAll(t, s, end, "4"), "one", "2", "three", "4")
	end, err := s.PutRegions("g1", slices.Values([][]byte{[]byte("all"), []byte("of it")}))
	if err != nil {
		t.Fatal(err)
	}
	check(end, "all", "of it")
	if err := s.Delete("g1"); err != nil {
		t.Fatal(err)
	}
	missing()
	if _, err := s.AppendRegions("g1", 0, make([]byte, maxChangeBytes+1)); err == nil {
		t.Error("a change that cannot be read back was stored")
	}
	big := strings.Repeat("x", maxChangeBytes)
	check(appendAll(t, s, noRegions(t, s), big), big)
	if _, _, err := s.Regions("g1", func([]byte) error { return os.ErrInvalid }); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	if err := s.CutRegions("g2", 0); err == nil {
		t.Error("nothing was taken back, and nobody hears of it")
	}
}

// A change that is written behind a hole could not be read back, so it must not be confirmed.
func TestAFileOfRegionsThatIsTooShort(t *testing.T) {
	s := open(t, t.TempDir())
	begin := noRegions(t, s)
	end := appendAll(t, s, begin, "one", "two")
	first := appendAll(t, s, begin, "one")
	if at, err := s.AppendRegions("g1", end, []byte("three")); err == nil || at != end {
		t.Error(at, err)
	}
	if changes, at, cut := regionsOf(t, s); !slices.Equal(changes, []string{"one"}) || at != first || cut != 0 {
		t.Errorf("%q, %d, %d", changes, at, cut)
	}
}

// A crash may leave any part of the last change, or zeros in its place. The changes before it stay.
// The head that names the last change may be missing then, too.
func TestAnUnfinishedChangeOfRegions(t *testing.T) {
	s := open(t, t.TempDir())
	end := appendAll(t, s, noRegions(t, s), "one")
	path := s.beside("g1", regionsSuffix)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end = appendAll(t, s, end, "two")
	last := appendAll(t, s, end, "the last one")
	whole, err := os.ReadFile(path)
	if err != nil || int64(len(whole)) != last {
		t.Fatal(len(whole), last, err)
	}
	for size := end + 1; size < last; size++ {
		// The head names the change before, or one more if that one's was on the disk already.
		copy(whole, [][]byte{before[:headBytes], appendHead(nil, end)}[size%2])
		for _, zeros := range []bool{false, true} {
			left := slices.Clone(whole[:size])
			if zeros {
				left = append(left, make([]byte, last-size)...)
			}
			if bytes.Equal(left, whole) {
				continue
			}
			if err := os.WriteFile(path, left, 0o600); err != nil {
				t.Fatal(err)
			}
			changes, at, cut := regionsOf(t, s)
			if !slices.Equal(changes, []string{"one", "two"}) || at != end || cut != int64(len(left))-end {
				t.Fatalf("%d bytes, zeros %v: %q, %d, %d", size, zeros, changes, at, cut)
			}
			appendAll(t, s, at, "new")
			if changes, _, cut := regionsOf(t, s); !slices.Equal(changes, []string{"one", "two", "new"}) || cut != 0 {
				t.Fatalf("%d bytes, zeros %v: %q, %d", size, zeros, changes, cut)
			}
		}
	}
}

// damaged checks that the file of group g1's regions is refused with this content, and stays.
func damaged(t *testing.T, s *Store, content []byte) {
	t.Helper()
	path := s.beside("g1", regionsSuffix)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Regions("g1", func([]byte) error { return nil })
	if now, _ := os.ReadFile(path); !errors.Is(err, errDamagedRegions) || !bytes.Equal(now, content) {
		t.Errorf("%d bytes %q: %v", len(content), content[:min(8, len(content))], err)
	}
}

// A change that is damaged was confirmed once: nothing may be removed, and the group must not run
// with what is left.
func TestDamagedRegions(t *testing.T) {
	s := open(t, t.TempDir())
	appendAll(t, s, noRegions(t, s), "one", "two", "three")
	whole, err := os.ReadFile(s.beside("g1", regionsSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole { // also of the last change, for it was confirmed
		bad := slices.Clone(whole)
		bad[at] ^= 0x10
		damaged(t, s, bad)
		damaged(t, s, whole[:at]) // cut, at the end of a change, too
	}
	damaged(t, s, make([]byte, len(whole)))
}

// A file of an older release has frames alone, and is written anew when it is read.
func TestRegionsOfAnOlderRelease(t *testing.T) {
	s := open(t, t.TempDir())
	older := appendFrame(appendFrame(nil, []byte("one")), []byte("two"))
	for _, end := range [][]byte{nil, appendFrame(nil, nil)} { // a crash may have left the file without its end
		path := s.beside("g1", regionsSuffix)
		if err := os.WriteFile(path, append(slices.Clone(older), end...), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if changes, _, cut := regionsOf(t, s); !slices.Equal(changes, []string{"one", "two"}) || cut != 0 {
				t.Errorf("%q, %d", changes, cut)
			}
		}
		_, at, _ := regionsOf(t, s)
		appendAll(t, s, at, "three")
		if changes, _, _ := regionsOf(t, s); !slices.Equal(changes, []string{"one", "two", "three"}) {
			t.Errorf("%q", changes)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for size := range now {
			damaged(t, s, now[:size])
		}
	}
	for at := range older {
		bad := slices.Clone(older)
		bad[at] ^= 0x10
		damaged(t, s, bad)
	}
	damaged(t, s, nil)
}

// A disk that cannot be written does not keep the regions from being read. Root may write all, so
// the test mounts one.
func TestRegionsOnAReadOnlyDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a directory; run it with sudo")
	}
	s := open(t, t.TempDir())
	appendAll(t, s, noRegions(t, s), "one")
	older := appendFrame(nil, []byte("two"))
	if err := os.WriteFile(s.beside("older", regionsSuffix), older, 0o600); err != nil {
		t.Fatal(err)
	}
	groups := filepath.Join(s.dir, groupsDir)
	if err := unix.Mount(groups, groups, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(groups, 0); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", groups, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if changes, _, _ := regionsOf(t, s); !slices.Equal(changes, []string{"one"}) {
		t.Errorf("%q", changes)
	}
	var changes []string
	end, _, err := s.Regions("older", func(change []byte) error {
		changes = append(changes, string(change))
		return nil
	})
	if err != nil || !slices.Equal(changes, []string{"two"}) {
		t.Errorf("%q, %v", changes, err)
	}
	if err := unix.Mount("", groups, "", unix.MS_BIND|unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendRegions("older", end, []byte("x")); err == nil || !strings.HasSuffix(err.Error(), "; restart rocastd") {
		t.Errorf("the file has no head yet, and: %v", err)
	}
}

// Regions without a group are what a crash left of a group that was removed. A group of that name
// must not get them.
func TestRegionsWithoutAGroup(t *testing.T) {
	s := open(t, t.TempDir())
	noRegions(t, s)
	if err := s.Put("g2", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutRegions("g2", slices.Values([][]byte(nil))); err != nil {
		t.Fatal(err)
	}
	if groups, err := s.Restore(); err != nil || len(groups) != 1 {
		t.Fatal(groups, err)
	}
	left, _ := filepath.Glob(filepath.Join(s.dir, groupsDir, "*"+regionsSuffix))
	if len(left) != 1 || filepath.Base(left[0]) != "g2.regions" {
		t.Error(left)
	}
}
