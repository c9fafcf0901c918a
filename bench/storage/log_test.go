package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const smallest = 100 // bytes of the longest block in these tests

// written makes a log of some blocks, and returns its path, the sums of its records and where they
// end.
func written(t *testing.T, blocks ...string) (path string, sums []sum, ends []int64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	f, err := openFile(path, smallest)
	if err != nil {
		t.Fatal(err)
	}
	room, last := make([]byte, headerBytes+smallest), sum{}
	for i, block := range blocks {
		var record []byte
		record, last = seal(room, last, uint64(i), []byte(block))
		if err := f.append(record); err != nil {
			t.Fatal(err)
		}
		sums, ends = append(sums, f.newest()), append(ends, f.end())
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	return path, sums, ends
}

// A loss of power leaves half a record behind the log, whatever other logs have.
func TestHalfARecordIsLeft(t *testing.T) {
	for _, blocks := range [][]string{nil, {"one"}, {"one", "two", "three"}} {
		path, _, ends := written(t, blocks...)
		f, err := openFile(path, smallest)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.tear(), f.close()); err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		if n := len(blocks); n > 0 {
			want = ends[n-1] + (headerBytes+int64(len(blocks[n-1])))/2
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() != want {
			t.Fatalf("%d blocks: %d bytes are on the disk, %v; want %d", len(blocks), info.Size(), err, want)
		}
		if f, err = openFile(path, smallest); err != nil || f.records() != uint64(len(blocks)) {
			t.Errorf("%d blocks: %d are left, %v", len(blocks), f.records(), err)
		}
		f.close()
	}
}

// Wherever a write was torn, the log has all whole records, and goes on behind them.
func TestATornWriteIsCutOff(t *testing.T) {
	path, sums, ends := written(t, "one", "", "three")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) + 1 {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openFile(path, smallest)
		if err != nil {
			t.Fatal(err)
		}
		want, last, end := 0, sum{}, int64(0)
		for i := range ends {
			if ends[i] <= int64(size) {
				want, last, end = i+1, sums[i], ends[i]
			}
		}
		info, err := os.Stat(path)
		if err != nil || f.records() != uint64(want) || f.newest() != last || info.Size() != end {
			t.Errorf("%d bytes: %d records in %d bytes, %v; want %d in %d", size, f.records(), info.Size(), err, want, end)
		}
		record, _ := seal(make([]byte, headerBytes+smallest), last, uint64(want), []byte("next"))
		if err := f.append(record); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if got, err := f.read(uint64(want)); err != nil || !bytes.Equal(got, record) {
			t.Errorf("%d bytes: the next record is read as %q, %v", size, got, err)
		}
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
}

// Each byte of a record that means anything is covered by a sum.
func TestAChangedLogIsCutOff(t *testing.T) {
	path, _, ends := written(t, "one", "two", "three")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const unusedFrom, unusedTo = 48, headerBytes
	for at := range whole {
		record := 0
		for int64(at) >= ends[record] {
			record++
		}
		begin := 0
		if record > 0 {
			begin = int(ends[record-1])
		}
		if in := at - begin; in >= unusedFrom && in < unusedTo {
			continue
		}
		changed := bytes.Clone(whole)
		changed[at] ^= 0x10
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openFile(path, smallest)
		if err != nil {
			t.Fatal(err)
		}
		if f.records() != uint64(record) {
			t.Errorf("byte %d is changed: %d records, want %d", at, f.records(), record)
		}
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
}

// A record that does not follow is not appended.
func TestARecordHasItsPlace(t *testing.T) {
	path, sums, ends := written(t, "one", "two")
	f, err := openFile(path, smallest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for name, c := range map[string]struct {
		before sum
		number uint64
	}{
		"again":                  {sums[0], 1},
		"one too far":            {sums[1], 3},
		"behind another record":  {sums[0], 2},
		"the first one of a log": {sum{}, 0},
	} {
		record, _ := seal(make([]byte, headerBytes+smallest), c.before, c.number, []byte("x"))
		if err := f.append(record); err == nil {
			t.Errorf("%s: it was appended", name)
		}
	}
	if f.records() != 2 || f.end() != ends[1] {
		t.Errorf("the log has %d records in %d bytes", f.records(), f.end())
	}
}

// Only what the disk has confirmed is called durable.
func TestWhatIsDurable(t *testing.T) {
	path, _, _ := written(t, "one", "two")
	f, err := openFile(path, smallest)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.append(sealed(f)); err != nil {
		t.Fatal(err)
	}
	if f.durable != 2 {
		t.Errorf("before the disk has confirmed the third record, %d are durable", f.durable)
	}
	if n, err := f.sync(); n != 3 || err != nil {
		t.Errorf("%d are durable, %v", n, err)
	}
	if err := errors.Join(f.append(sealed(f)), f.close()); err != nil {
		t.Fatal(err)
	}
	if n, err := f.sync(); n != 3 || err == nil {
		t.Errorf("the disk confirms nothing, and %d are durable, %v", n, err)
	}
}

// sealed is a record that follows.
func sealed(f *file) []byte {
	record, _ := seal(make([]byte, headerBytes+smallest), f.newest(), f.records(), []byte("x"))
	return record
}
