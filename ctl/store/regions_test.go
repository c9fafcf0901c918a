package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	if end, err := s.PutRegions("g1", slices.Values([][]byte(nil))); err != nil || end != 0 {
		t.Error(end, err)
	}
	if changes, end, cut := regionsOf(t, s); changes != nil || end != 0 || cut != 0 {
		t.Errorf("%q, %d, %d", changes, end, cut)
	}
	end := appendAll(t, s, 0, "one", "2", "three")
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
	check(appendAll(t, s, 0, big), big)
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
	end := appendAll(t, s, 0, "one", "two")
	first := appendAll(t, s, 0, "one")
	if at, err := s.AppendRegions("g1", end, []byte("three")); err == nil || at != end {
		t.Error(at, err)
	}
	if changes, at, cut := regionsOf(t, s); !slices.Equal(changes, []string{"one"}) || at != first || cut != 0 {
		t.Errorf("%q, %d, %d", changes, at, cut)
	}
}

// A crash may leave any part of the last change, or zeros in its place. The changes before it stay.
func TestAnUnfinishedChangeOfRegions(t *testing.T) {
	s := open(t, t.TempDir())
	end := appendAll(t, s, 0, "one", "two")
	last := appendAll(t, s, end, "the last one")
	path := s.beside("g1", regionsSuffix)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if whole = whole[:last]; !slices.Equal(whole[last:cap(whole)][:frameHeadBytes], lastFrame) {
		t.Error("the file does not end with an empty frame")
	}
	for size := end + 1; size < last; size++ {
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

// A change that is damaged was confirmed once: nothing may be removed, and the group must not run
// with what is left.
func TestDamagedRegions(t *testing.T) {
	s := open(t, t.TempDir())
	appendAll(t, s, 0, "one", "two", "three")
	path := s.beside("g1", regionsSuffix)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range len(whole) - frameHeadBytes { // also of the last change, for it was confirmed
		bad := slices.Clone(whole)
		bad[at] ^= 0x10
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Regions("g1", func([]byte) error { return nil })
		if now, _ := os.ReadFile(path); !errors.Is(err, errDamagedRegions) || !bytes.Equal(now, bad) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	for size := len(whole) - frameHeadBytes; size < len(whole); size++ { // what a crash leaves of the empty frame
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if changes, _, _ := regionsOf(t, s); !slices.Equal(changes, []string{"one", "two", "three"}) {
			t.Errorf("with %d bytes: %q", size, changes)
		}
	}
	long := append(slices.Clone(whole), make([]byte, maxChangeBytes+frameHeadBytes+1)...)
	if err := os.WriteFile(path, long, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Regions("g1", func([]byte) error { return nil }); !errors.Is(err, errDamagedRegions) {
		t.Error(err)
	}
}

// Regions without a group are what a crash left of a group that was removed. A group of that name
// must not get them.
func TestRegionsWithoutAGroup(t *testing.T) {
	s := open(t, t.TempDir())
	appendAll(t, s, 0, "one")
	if err := s.Put("g2", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendRegions("g2", 0, []byte("two")); err != nil {
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
