package captures

import (
	"bytes"
	"testing"
)

func TestDamagedPcap(t *testing.T) {
	good, err := unpack("m_zero" + pcapEnd)
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
		"byte order":       flip(0),
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
