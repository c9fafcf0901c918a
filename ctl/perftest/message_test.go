package perftest

import (
	"bytes"
	"strings"
	"testing"
)

func TestScan(t *testing.T) {
	tail := strings.Replace(capturedLine, "5000:", "5000:00005590c93c6000:", 1) // 125 bytes
	plain := capturedLine[:50] + "00000000\x00"
	plainTail := tail[:67] + "00000000\x00"
	if len(plain) != plainKeyBytes || len(plainTail) != tailKeyBytes {
		t.Fatalf("the lines without GID have %d and %d bytes", len(plain), len(plainTail))
	}
	for _, c := range []struct {
		name, bytes string
		kind        kind
		length      int
	}{
		{"nothing", "", 0, 0},
		{"too little", "done", 0, 0},
		{"farewell", "done\x00", kindDone, 5},
		{"key", capturedLine, kindKey, keyBytes},
		{"key and more", capturedLine + capturedLine, kindKey, keyBytes},
		{"beginning of a key", capturedLine[:58], kindKey, 0},
		{"half a key", capturedLine[:59], kindKey, keyBytes},
		{"key without GID", plain, kindKey, plainKeyBytes},
		{"key of data validation", tail, kindKey, tailKeyBytes},
		{"the same without GID", plainTail, kindKey, tailKeyBytes},
		{"key damaged where its GID begins", plain[:50] + "x" + tail[51:], kindKey, keyBytes},
		{"key damaged behind its GID's beginning", tail[:59] + "x" + tail[60:], kindKey, tailKeyBytes},
		{"damaged key", strings.Repeat("0000:", 12), kindKey, keyBytes},
		{"size of a report", "\x00\x00\x00\x00\x00\x00\x20\x00", kindReport, reportBytes},
		{"rate of a report", "@\x07m_\xbb?\xc6=", kindReport, reportBytes},
		{"beginning of a report", "\x00\x00\x00\x00\x00", kindReport, reportBytes},
		{"anything else", "GET / HTTP/1.1\r\n\r\n", kindReport, reportBytes},
	} {
		if k, n := scan([]byte(c.bytes)); n != c.length || k != c.kind {
			t.Errorf("%s: kind %d, %d bytes; want kind %d, %d bytes", c.name, k, n, c.kind, c.length)
		}
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]error{
		"6.06": nil, "6.29": nil, "5.70": nil, "23.07": nil,
		"5.69": errOldVersion, "4.5": errOldVersion, "0.5": errOldVersion,
		"0": errNotAVersion, "1000": errNotAVersion, "999.9": nil,
		"": errNotAVersion, "NaN": errNotAVersion, "-6.1": errNotAVersion, "6.06 ": errNotAVersion,
		"6.06\x00\x00x": errNotAVersion, "GET / HTTP/1.1\r\n": errNotAVersion, "1e400": errNotAVersion,
	} {
		padded := append([]byte(text), make([]byte, versionBytes-len(text))...)
		if _, err := parseVersion(padded); err != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	if v, err := parseVersion(versionMessage()); err != nil || v != presentedVersion || len(versionMessage()) != versionBytes {
		t.Errorf("our own: %q, %v", v, err)
	}
}

func TestMTU(t *testing.T) {
	for text, want := range map[string]int{"1\x00": 256, "3\x00": 1024, "5\x00": 4096, "0\x00": 0, "6\x00": 0, "3": 0, "30": 0} {
		m, err := parseMTU([]byte(text))
		if want == 0 && (err == nil || m != 0) || want != 0 && (m.bytes() != want || !bytes.Equal(m.message(), []byte(text))) {
			t.Errorf("%q: %d bytes, written as %q, %v; want %d", text, m.bytes(), m.message(), err, want)
		}
	}
}

// FuzzScan: in any text, the end of a message is found within a bounded number of bytes, and later
// bytes do not change the result.
func FuzzScan(f *testing.F) {
	for _, name := range []string{"write_q4", "send", "read", "write_lat"} {
		client, server := streams(f, name)
		for _, m := range append(dissect(f, client)[4:], dissect(f, server)[4:]...) {
			f.Add(m)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, length := scan(b)
		if length == 0 && len(b) >= plainKeyBytes || length > chunkBytes {
			t.Fatalf("%d bytes of %d", length, len(b))
		}
		if again, n := scan(append(bytes.Clone(b), "0:0a\x00"...)); length > 0 && (again != k || n != length) {
			t.Errorf("kind %d, %d bytes became kind %d, %d bytes", k, length, again, n)
		}
	})
}
