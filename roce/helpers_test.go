package roce

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/captures"
)

// frameOf returns one captured frame and its View.
func frameOf(t testing.TB, capture string, index int) ([]byte, *View) {
	t.Helper()
	frames, err := captures.Frames(capture)
	if err != nil {
		t.Fatal(err)
	}
	frame := frames[index].Data
	return frame, viewOf(t, frame)
}

func viewOf(t testing.TB, frame []byte) *View {
	t.Helper()
	v := new(View)
	if err := v.Decode(frame, len(frame)); err != nil {
		t.Fatalf("%v in %x", err, frame)
	}
	return v
}

// eachRoCE calls f for every RoCE frame of every capture. Other frames are TCP, ARP and the like.
func eachRoCE(t *testing.T, f func(name string, index int, frame []byte, v *View)) (frames int) {
	t.Helper()
	for _, name := range captures.Names() {
		all, err := captures.Frames(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, frame := range all {
			v := new(View)
			switch err := v.Decode(frame.Data, len(frame.Data)); {
			case err == nil:
				f(name, i, frame.Data, v)
				frames++
			case !errors.Is(err, ErrNotIP) && !errors.Is(err, ErrNotUDP):
				t.Errorf("%s frame %d: %v", name, i, err)
			}
		}
	}
	return frames
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// flat returns a frame as one fragment.
func flat(frame []byte) [][]byte { return [][]byte{frame} }

// split cuts a frame into fragments of the given lengths. The last fragment takes the rest.
func split(frame []byte, lengths ...int) (fragments [][]byte) {
	for _, n := range lengths {
		fragments = append(fragments, frame[:n:n])
		frame = frame[n:]
	}
	return append(fragments, frame)
}
