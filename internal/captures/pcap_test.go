package captures

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

// The lengths of the format: the file's header, a record's header.
const (
	pcapHeaderBytes = 24
	recordBytes     = 16
)

func TestDamagedPcap(t *testing.T) {
	packed, err := files.Open(dir + "/m_zero" + pcapEnd)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	good, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readPcap(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	for name, file := range map[string][]byte{
		"empty":            nil,
		"magic":            flip(0),
		"link type":        flip(20),
		"snapped frame":    flip(pcapHeaderBytes + 12),
		"cut in a record":  good[:pcapHeaderBytes+recordBytes-1],
		"cut in a frame":   good[:len(good)-1],
		"cut before frame": good[:pcapHeaderBytes+recordBytes],
	} {
		if frames, err := readPcap(bytes.NewReader(file)); err == nil {
			t.Errorf("%s: read %d frames", name, len(frames))
		}
	}
}
