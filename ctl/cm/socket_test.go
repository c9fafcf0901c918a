package cm

import "testing"

// The kernel replaces an IP identification of 0 in a packet that comes with its header, and the
// ICRC covers the identification.
func TestNoPacketHasTheIdentificationThatTheKernelReplaces(t *testing.T) {
	s := &socket{}
	last := s.nextID()
	for range 1 << 16 {
		id := s.nextID()
		if id == 0 || id == last {
			t.Fatalf("identification %d follows %d", id, last)
		}
		last = id
	}
}
