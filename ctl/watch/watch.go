package watch

import (
	"net/netip"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// Switch is what a Watch needs of the data path.
type Switch interface {
	GroupState(mft.GroupID) (dataplane.GroupState, bool)
	NextTurn(mft.GroupID) (mft.Turn, bool)
	BeginTurn(id mft.GroupID, granted bool)
	// Verdicts returns the counters of the classifier.
	Verdicts() []dataplane.Counter
	// Astray returns what is known of frames that were refused and that no group counts.
	Astray() []dataplane.Astray
	Notes() <-chan dataplane.Note
}

// Options are what a Watch works with.
type Options struct {
	Groups *groups.Set
	Switch Switch
	Log    *zap.Logger
	// Doubt asks for the MAC of a host that is silent.
	Doubt func(netip.Addr)
	// Mark tells the other boxes that the source of a group switches, before it does so for the
	// first time. It may take seconds. nil: this box shares no groups.
	Mark func(*groups.Group) error
}

// Watch looks at groups that run. Its methods may be called from any goroutine, except where they
// say that the caller has locked the groups.
type Watch struct {
	Options

	seenStrays atomic.Pointer[[]view.Stray] // as readers see them

	// What follows is guarded by the lock of the groups.

	strays strays
	paces  map[*groups.Group]*pace
	closed bool // the data path has ended
}

// New returns a Watch that has seen nothing.
func New(o Options) *Watch {
	w := &Watch{Options: o, paces: map[*groups.Group]*pace{}}
	w.seenStrays.Store(new([]view.Stray))
	return w
}

// Strays returns the frames that were refused and that no member of a group has sent. The list is
// not to be changed.
func (w *Watch) Strays() []view.Stray { return *w.seenStrays.Load() }

// End processes the last notes. The data path has ended, and the caller has locked the groups.
func (w *Watch) End() {
	w.closed = true
	w.Hear()
}
