package edges

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/rocast/rocast/roce"
)

// The QPN of a generation is used once. An edge goes on mapping what it knows when its program is
// pinned and nobody tells it anything new: it would map the copies of another generation with the
// same QPN by constants that are wrong for them. So the box counts, also over a restart.

// QPNs draws the QPNs of generations. It begins anywhere, because other boxes count too and a group
// may come from one of them. After 16 million numbers it begins again. Its methods may be called
// from any goroutine.
type QPNs struct {
	keep    Keeper
	storing sync.Mutex    // held while the disk is waited for
	low     chan struct{} // hears when more numbers are to be stored

	mu         sync.Mutex // of what follows; nobody waits for the disk with it
	known      bool
	next, kept uint32 // kept is the first one that a restart may draw
}

// Keeper stores the number with which a restart goes on. While none is stored, the error of LegQPN
// is fs.ErrNotExist.
type Keeper interface {
	LegQPN() (uint32, error)
	PutLegQPN(uint32) error
}

const (
	// Not the small numbers that users choose, nor the multicast QPN.
	firstQPN, lastQPN = 1 << 12, 1<<24 - 2
	span              = lastQPN - firstQPN + 1
	// keptAhead is how many numbers are stored as used before the first one of them is drawn.
	keptAhead = 256
)

// NewQPNs returns QPNs that go on where those before the restart ended.
func NewQPNs(keep Keeper) *QPNs { return &QPNs{keep: keep, low: make(chan struct{}, 1)} }

// KeepUp stores numbers before they are drawn, until ctx is done: the groups are locked when one is
// drawn, and nobody is to wait for the disk then. What the disk refuses, Draw tries again. Before
// that warn hears of it, once until something is stored again.
func (q *QPNs) KeepUp(ctx context.Context, warn func(error)) error {
	for warned := false; ; {
		err := q.store(keptAhead / 2)
		if err != nil && !warned {
			warn(err)
		}
		warned = err != nil
		select {
		case <-q.low:
		case <-ctx.Done():
			return nil
		}
	}
}

// Draw returns a number that was not drawn before, also not before a crash. It waits for the disk
// only where KeepUp has not stored any yet.
func (q *QPNs) Draw() (roce.QPN, error) {
	for {
		if qpn, ok := q.drawKept(); ok {
			return qpn, nil
		}
		if err := q.store(0); err != nil {
			return 0, err
		}
	}
}

func (q *QPNs) drawKept() (qpn roce.QPN, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.known || q.next == q.kept {
		return 0, false
	}
	qpn = roce.QPN(q.next)
	if q.next++; q.next > lastQPN {
		q.next = firstQPN
	}
	if q.left() <= keptAhead/2 {
		select {
		case q.low <- struct{}{}:
		default: // it has heard
		}
	}
	return qpn, true
}

// left returns how many numbers can be drawn that are stored.
func (q *QPNs) left() uint32 { return (q.kept + span - q.next) % span }

// store stores keptAhead numbers more if at most so many are left.
func (q *QPNs) store(few uint32) error {
	q.storing.Lock()
	defer q.storing.Unlock()
	if !q.known { // it changes here only
		next, err := q.recall()
		if err != nil {
			return fmt.Errorf("read the next QPN of shared copies (remove the file legs of the state directory to begin at any other one): %w", err)
		}
		q.mu.Lock()
		q.next, q.kept, q.known = next, next, true
		q.mu.Unlock()
	}
	q.mu.Lock()
	ahead, enough := firstQPN+(q.kept-firstQPN+keptAhead)%span, q.left() > few
	q.mu.Unlock()
	if enough {
		return nil
	}
	if err := q.keep.PutLegQPN(ahead); err != nil {
		return fmt.Errorf("store the next QPN of shared copies: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kept = ahead
	return nil
}

// recall returns the number that is stored, or any if none is. It fails if what is stored cannot be
// read: any number might be one that was drawn before.
func (q *QPNs) recall() (uint32, error) {
	n, err := q.keep.LegQPN()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return 0, err
	case err != nil, n < firstQPN, n > lastQPN:
		return firstQPN + rand.Uint32N(span), nil
	}
	return n, nil
}
