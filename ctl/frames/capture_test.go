package frames

import (
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
)

// The API's bounds are those of the data path.
func TestBoundsOfCaptures(t *testing.T) {
	if api.SnapDefault != dataplane.SnapLeast || api.SnapMost != dataplane.SnapMost {
		t.Errorf("snap from %d to %d", api.SnapDefault, api.SnapMost)
	}
}
