package relaying

import (
	"slices"
	"testing"
)

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name string
		how  Shape
		want []int // of receivers 1 to 7
	}{
		{"unicast", Unicast, []int{0, 0, 0, 0, 0, 0, 0}},
		{"chain", Chain, []int{0, 1, 2, 3, 4, 5, 6}},
		{"binomial", Binomial, []int{0, 0, 1, 0, 1, 2, 3}},
	} {
		var got []int
		for r := 1; r <= len(c.want); r++ {
			got = append(got, c.how(r))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The slices of as many messages as are posted fill the memory, one behind the other, also if the
// messages cannot be cut into equal slices. The next message has the place of the oldest one.
func TestSlicesFillTheMemory(t *testing.T) {
	for _, c := range []Cut{{10, 1, 1}, {10, 3, 2}, {1000, 7, 16}, {4, 4, 3}} {
		at := 0
		for slice := range c.Slices * c.Posted {
			if got := c.Offset(slice); got != at || c.Message(slice) != slice/c.Slices {
				t.Errorf("%+v: slice %d of message %d is at %d, want %d", c, slice, c.Message(slice), got, at)
			}
			at += c.Bytes(slice)
		}
		if again := c.Offset(c.Slices*c.Posted + 1%c.Slices); at != c.Room() || again != c.Offset(1%c.Slices) {
			t.Errorf("%+v: the slices have %d of %d bytes; the next message is at %d", c, at, c.Room(), again)
		}
	}
}
