package edges

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"github.com/rocast/rocast/roce"
)

// The QPN of a generation is used once. An edge goes on mapping what it knows when its program is
// pinned and nobody tells it anything new: it would map the copies of another generation with the
// same QPN by constants that are wrong for them. So the box counts, also over a restart.

// QPNs draws the QPNs of generations. It begins anywhere, because other boxes count too and a group
// may come from one of them. After 16 million numbers it begins again.
type QPNs struct {
	keep       Keeper
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
	// keptAhead is how many numbers are stored as used before the first one of them is drawn.
	keptAhead = 256
)

// NewQPNs returns QPNs that go on where those before the restart ended.
func NewQPNs(keep Keeper) *QPNs { return &QPNs{keep: keep} }

// Draw returns a number that was not drawn before, also not before a crash.
func (q *QPNs) Draw() (roce.QPN, error) {
	if !q.known {
		next, err := q.recall()
		if err != nil {
			return 0, fmt.Errorf("read the next QPN of shared copies (remove the file legs of the state directory to begin at any other one): %w", err)
		}
		q.next, q.kept, q.known = next, next, true
	}
	if q.next == q.kept {
		ahead := firstQPN + (q.next-firstQPN+keptAhead)%(lastQPN-firstQPN+1)
		if err := q.keep.PutLegQPN(ahead); err != nil {
			return 0, fmt.Errorf("store the next QPN of shared copies: %w", err)
		}
		q.kept = ahead
	}
	drawn := roce.QPN(q.next)
	if q.next++; q.next > lastQPN {
		q.next = firstQPN
	}
	return drawn, nil
}

// recall returns the number that is stored, or any if none is. It fails if what is stored cannot be
// read: any number might be one that was drawn before.
func (q *QPNs) recall() (uint32, error) {
	n, err := q.keep.LegQPN()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return 0, err
	case err != nil, n < firstQPN, n > lastQPN:
		return firstQPN + rand.Uint32N(lastQPN-firstQPN+1), nil
	}
	return n, nil
}
