package image

import (
	"bytes"
	"strconv"
	"testing"
)

// unpack reads an archive: the names in their order, and the mode and the content of each entry.
func unpack(t *testing.T, b []byte) (names []string, modes map[string]int, contents map[string]string) {
	t.Helper()
	modes, contents = map[string]int{}, map[string]string{}
	const headerBytes, fieldBytes = 110, 8
	align := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; ; {
		field := func(i int) int {
			digits := b[at+6+i*fieldBytes:][:fieldBytes]
			n, err := strconv.ParseInt(string(digits), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		if !bytes.HasPrefix(b[at:], []byte("070701")) {
			t.Fatalf("no header at %d", at)
		}
		mode, size, nameBytes := field(1), field(6), field(11)
		name := string(b[at+headerBytes:][:nameBytes-1])
		if name == "TRAILER!!!" {
			return names, modes, contents
		}
		data := align(at + headerBytes + nameBytes)
		names, modes[name], contents[name] = append(names, name), mode, string(b[data:][:size])
		at = align(data + size)
	}
}

func TestArchiveMakesDirectoriesBeforeWhatIsInThem(t *testing.T) {
	a := newArchive()
	a.file("usr/bin/tool", []byte("12345"), 0o755)
	a.symlink("/bin/sh", "/usr/bin/tool")
	a.file("usr/bin/tool", []byte("a second one"), 0o644)
	names, modes, contents := unpack(t, a.bytes())
	want := []string{"usr", "usr/bin", "usr/bin/tool", "bin", "bin/sh"}
	if len(names) != len(want) {
		t.Fatalf("entries %q, want %q", names, want)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Errorf("entry %d is %q, want %q", i, names[i], want[i])
		}
	}
	if modes["usr"] != typeDir|0o755 || modes["usr/bin/tool"] != typeFile|0o755 {
		t.Errorf("modes %v", modes)
	}
	if contents["usr/bin/tool"] != "12345" || contents["bin/sh"] != "/usr/bin/tool" {
		t.Errorf("contents %q", contents)
	}
}
