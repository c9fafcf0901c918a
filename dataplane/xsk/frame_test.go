package xsk

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// descsOf makes descriptors of a drawing: "+" continues in the next descriptor, "." ends a frame.
func descsOf(drawing string) []Desc {
	descs := make([]Desc, len(drawing))
	for i, c := range drawing {
		if c == '+' {
			descs[i].Options = unix.XDP_PKT_CONTD
		}
	}
	return descs
}

func TestFrameDescs(t *testing.T) {
	for drawing, want := range map[string]int{"": 0, ".": 1, "..": 1, "++.": 3, "++": 0, "+..": 2} {
		if got := FrameDescs(descsOf(drawing)); got != want {
			t.Errorf("%q: %d descriptors, want %d", drawing, got, want)
		}
	}
}

func TestWholeFramesLeavesOutAPartialFrameAtTheEnd(t *testing.T) {
	for drawing, want := range map[string]int{"": 0, ".": 1, "+": 0, ".+": 1, "+.": 2, "+.++": 2, ".+.+": 3} {
		if got := wholeFrames(descsOf(drawing)); got != want {
			t.Errorf("%q: %d, want %d", drawing, got, want)
		}
	}
}

func TestSendableNeverSplitsAFrame(t *testing.T) {
	longest := strings.Repeat("+", maxTransmitDescs-1) + "."
	for _, row := range []struct {
		drawing string
		room    int
		want    int
	}{
		{"", 8, 0},
		{"...", 8, 3},
		{"...", 2, 2},
		{"...", 0, 0},
		{"+.+.", 8, 4},
		{"+.+.", 3, 2},
		{"+.+.", 1, 0},
		{"+.+", 8, 2}, // the caller's batch ends within a frame
		{longest, 64, len(longest)},
		{"." + "+" + longest, 64, 1}, // one descriptor too long to send
	} {
		if got := sendable(descsOf(row.drawing), row.room); got != row.want {
			t.Errorf("%q into room for %d: %d, want %d", row.drawing, row.room, got, row.want)
		}
	}
}

func TestChunkOfMasksHeadroomAway(t *testing.T) {
	for addr, want := range map[uint64]uint64{0: 0, HeadroomBytes: 0, 4095: 0, 4096: 4096, 3*4096 + HeadroomBytes: 3 * 4096} {
		if got := ChunkOf(addr); got != want {
			t.Errorf("%#x is in chunk %#x, want %#x", addr, got, want)
		}
	}
}
