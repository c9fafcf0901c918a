package roce

import "testing"

// A packet of the path MTU with RETH and ImmDt has 64 bytes besides its payload with IPv4, and 84
// with IPv6, whose header is 20 bytes longer.
func TestALinkNeedsRoomForTheHeaders(t *testing.T) {
	if got := LinkMTU(1024, true); got != 1088 {
		t.Errorf("path MTU 1024 with IPv4 needs a link of %d, want 1088", got)
	}
	if got := LinkMTU(4096, false); got != 4180 {
		t.Errorf("path MTU 4096 with IPv6 needs a link of %d, want 4180", got)
	}
}
