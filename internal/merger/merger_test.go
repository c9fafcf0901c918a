package merger

import "testing"

// An engine takes the ACKs that move a path up, and those that say nothing new. It tells the source
// the lowest PSN and the lowest MSN of all paths, each time that the lowest PSN rises.
func TestAMerger(t *testing.T) {
	m := Merger[progress]{At: []progress{{100, 7}, {100, 5}, {102, 6}}, Told: progress{100, 5}}
	for _, c := range []struct {
		path         int
		at           progress
		tells, taken bool
		floor        progress // what the source was told last
	}{
		{0, progress{101, 8}, false, true, progress{100, 5}},
		{0, progress{99, 9}, false, true, progress{100, 5}},   // older
		{0, progress{99, 8}, false, true, progress{100, 5}},   // older, with the same MSN
		{0, progress{101, 8}, false, true, progress{100, 5}},  // the same again
		{0, progress{101, 9}, false, false, progress{100, 5}}, // another MSN: the core's
		{1, progress{103, 7}, true, true, progress{101, 6}},   // the PSN of path 0, the MSN of path 2
		{1, progress{104, 8}, false, true, progress{101, 6}},
		{0, progress{103, 8}, true, true, progress{102, 6}},
		{2, progress{104, 8}, true, true, progress{103, 8}},
	} {
		was := m.At[c.path]
		if c.taken && c.at.PSN.After(was.PSN) {
			was = c.at
		}
		tells, taken := m.ACK(c.path, c.at)
		if tells != c.tells || taken != c.taken || m.Told != c.floor || m.At[c.path] != was {
			t.Errorf("the ACK of %v by path %d: tells %v, taken %v, told %v, the path is at %v", c.at, c.path, tells, taken, m.Told, m.At[c.path])
		}
	}
}
