package copying

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// A source that is no friend names files outside of the directory.
func TestNamesThatEscapeAreRefused(t *testing.T) {
	for _, path := range []string{"", ".", "..", "/etc/passwd", "../x", "a/../../x", "a/..", "a//b", "./a", "a/", "a\x00b"} {
		e := Entry{Kind: File, Path: path}
		if err := new(Entry).decode(e.append(nil)); err == nil {
			t.Errorf("%q is taken", path)
		}
	}
	for _, path := range []string{"a", "a/b", "..a", "a..", "...", "a/.b"} {
		e := Entry{Kind: File, Path: path}
		if err := new(Entry).decode(e.append(nil)); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// No entry reaches through a symlink of the directory, within or out of it.
func TestNothingIsWrittenThroughASymlink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	target, err := OpenTarget(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "real"), 0o755), os.Symlink("real", filepath.Join(dir, "in")), os.Symlink(outside, filepath.Join(dir, "out")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"in/f", "out/f"} {
		e := &Entry{Kind: File, Path: path, Size: 1}
		for what, err := range map[string]error{
			"data": target.data(e, 0, []byte("x")), "directory": target.directory(&Entry{Kind: Directory, Path: path}),
			"symlink": target.finish(&Entry{Kind: Symlink, Path: path, Target: "x"}),
		} {
			if err == nil || !strings.Contains(err.Error(), "no directory") {
				t.Errorf("%s of %s: %v", what, path, err)
			}
		}
	}
	if err := target.Close(); err != nil {
		t.Error(err)
	}
	if list := append(listOf(t, outside), listOf(t, filepath.Join(dir, "real"))...); len(list) > 0 {
		t.Errorf("%q were written", list)
	}
}

// A file replaces a symlink of its name, and does not follow it.
func TestAFileReplacesASymlink(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	write(t, outside, []byte("old"))
	if err := os.Symlink(outside, filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, []byte("new"))
	b := newBench(t, 1, file)
	b.complete(file, b.receiver(dir, true).start(t.Context()))
	if data, err := os.ReadFile(outside); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestMessagesSurviveTheWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := header{pass: rapid.Uint32().Draw(t, "pass"), address: rapid.StringN(0, 60, 255).Draw(t, "address")}
		copy(h.token[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "token"))
		e := Entry{
			Kind: EntryKind(rapid.IntRange(int(File), int(Symlink)).Draw(t, "kind")), Mode: os.FileMode(rapid.Uint32().Draw(t, "mode")) & modeBits,
			ModTime: rapid.Int64().Draw(t, "time"), Size: rapid.Int64Min(0).Draw(t, "size"),
			Path: rapid.StringMatching(`[a-z\xff]{1,5}(/[a-z]{1,5}){0,3}`).Draw(t, "path"), Target: rapid.String().Draw(t, "target"),
		}
		m := appendRecord(h.append(nil), kindEntry, e.append(nil))
		m = appendRecord(m, kindEnd)
		var got header
		rest, err := got.decode(m)
		if err != nil || got != h {
			t.Fatalf("%+v, %v", got, err)
		}
		var kinds []kind
		err = records(rest, func(k kind, b []byte) error {
			kinds = append(kinds, k)
			if k != kindEntry {
				return nil
			}
			var back Entry
			if err := back.decode(b); err != nil {
				return err
			}
			if diff := cmp.Diff(e, back, cmpopts.IgnoreUnexported(Entry{})); diff != "" {
				t.Error(diff)
			}
			return nil
		})
		if err != nil || len(kinds) != 2 {
			t.Fatalf("%v, %v", kinds, err)
		}
		cut := rapid.IntRange(0, len(m)-1).Draw(t, "cut")
		if rest, err := new(header).decode(m[:cut]); err == nil { // it must not panic
			_ = records(rest, func(_ kind, b []byte) error { return new(Entry).decode(b) })
		}
	})
}

// Spans and the holes between them are the whole, in order.
func TestHolesLieBetweenData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, from := int64(0), int64(0)
		var spans []span
		for range rapid.IntRange(0, 5).Draw(t, "spans") {
			begin := at + rapid.Int64Range(0, 3).Draw(t, "gap")
			at = begin + rapid.Int64Range(1, 3).Draw(t, "length")
			spans = append(spans, span{begin, at})
		}
		to := at + rapid.Int64Range(0, 3).Draw(t, "end")
		covered := make([]int, to)
		for _, s := range append(holesIn(spans, from, to), spans...) {
			for i := s.from; i < s.to; i++ {
				covered[i]++
			}
		}
		for i, n := range covered {
			if n != 1 {
				t.Fatalf("byte %d is in %d parts of %v", i, n, spans)
			}
		}
	})
}

func TestNoFileHasTooManyUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 1<<50).Draw(t, "size")
		unit := unitBytes(size)
		if unit%BlockBytes != 0 || (size+unit-1)/unit > maxUnits {
			t.Fatalf("units of %d", unit)
		}
	})
}

// After the way has changed, messages of the group may still be there that belong to the pass
// before.
func TestAMessageOfAnEarlierPassIsIgnored(t *testing.T) {
	near, far := pipe()
	defer near.Close()
	defer far.Close()
	r := &Receiver{line: &line{conn: near}, pass: 2}
	for pass, taken := range map[uint32]bool{1: false, 2: true} {
		h := header{pass: pass}
		err := r.take(appendRecord(h.append(nil), kindRefused, []byte("refused")))
		if got := err != nil; got != taken {
			t.Errorf("pass %d: %v", pass, err)
		}
	}
	h := header{pass: 2, token: [16]byte{1}}
	if err := r.take(appendRecord(h.append(nil), kindRefused, []byte("refused"))); err != nil {
		t.Errorf("a message of another copy: %v", err)
	}
}

// Files are made in a directory that nobody may write to at the end.
func TestADirectoryIsWritableUntilItsEnd(t *testing.T) {
	dir := t.TempDir()
	target, err := OpenTarget(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o500); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		do   func(*Entry) error
		mode os.FileMode
	}{{target.directory, 0o700}, {target.finish, 0o500}} {
		err := step.do(&Entry{Kind: DirectoryEnd, Path: "d", Mode: 0o500})
		info, failure := os.Stat(filepath.Join(dir, "d"))
		if err != nil || failure != nil || info.Mode().Perm() != step.mode {
			t.Errorf("%v, %v, %v instead of %v", err, failure, info.Mode(), step.mode)
		}
	}
}

// Whoever has not shown the token may send a short line only.
func TestAStrangerIsNotHeardForLong(t *testing.T) {
	for _, known := range []bool{false, true} {
		here, there := pipe()
		line, heard := &line{conn: here, known: known}, 0
		go func() {
			defer there.Close()
			fmt.Fprintf(there, "{\"error\": %q}\n", bytes.Repeat([]byte("x"), maxHello))
		}()
		err := line.reports(func(*report) { heard++ })
		here.Close()
		if known && (err != nil || heard != 1) || !known && (err == nil || heard != 0) {
			t.Errorf("known %v: heard %d, %v", known, heard, err)
		}
	}
}

// listening is a receiver into a directory whose answers nobody reads, and a way to bring it
// records in one message.
func listening(t *testing.T) (r *Receiver, take func(records ...[]byte) error) {
	t.Helper()
	target, err := OpenTarget(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	near, far := pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	r = &Receiver{Target: target, line: &line{conn: near}, Events: func(Event) {}, done: map[[32]byte][]int{}}
	r.ctx, r.end = context.WithCancelCause(t.Context())
	t.Cleanup(func() {
		r.end(nil)
		r.tasks.Wait()
		if err := errors.Join(target.Close(), near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	})
	return r, func(records ...[]byte) error {
		return r.take(bytes.Join(append([][]byte{new(header).append(nil)}, records...), nil))
	}
}

// batchOf are the records of a batch that lists one file.
func batchOf(path string) (batch, entry, listed []byte) {
	text := (&Entry{Kind: File, Path: path, Size: 1}).append(nil)
	digest := sha256.Sum256(text)
	return appendRecord(nil, kindBatch, numbers(1)), appendRecord(nil, kindEntry, text), appendRecord(nil, kindListed, digest[:])
}

// A source that is no friend goes on with a list that has ended.
func TestAnEntryBehindTheEndOfTheListIsNotHeard(t *testing.T) {
	r, take := listening(t)
	batch, entry, listed := batchOf("f")
	if err := take(batch, entry, listed); err != nil {
		t.Fatal(err)
	}
	r.tasks.Wait()
	if err := take(entry); err != nil {
		t.Error(err)
	}
	if err := take(appendRecord(nil, kindData, numbers(1, 0), []byte("x"))); !errors.Is(err, errForeign) {
		t.Error(err)
	}
}

// What a receiver does for long uses its files without the lock, so nothing else may use them
// before its answer.
func TestNothingComesBehindAQuestion(t *testing.T) {
	_, take := listening(t)
	batch, entry, listed := batchOf("f")
	if err := take(batch, entry, listed, appendRecord(nil, kindData, numbers(0, 0), []byte("x"))); !errors.Is(err, errForeign) {
		t.Error(err)
	}
}
