package groups

import (
	"context"
	"sync"
)

// Names lets one change of a group happen at a time. A change asks other boxes, so it cannot lock
// the whole Set.
type Names struct {
	mu   sync.Mutex
	held map[string]*holder
}

func newNames() Names { return Names{held: map[string]*holder{}} }

// holder describes the change of a group that is under way.
type holder struct {
	box  string // the upper box, or "" for a change that began on this box
	done chan struct{}
}

// Lock waits until no change of the group is under way, and begins a change. box is the upper box
// for which the change is made, or "". Two boxes that create the same group could wait for each
// other, so a change for another box does not wait for a change that began on this box: busy is
// then true.
func (n *Names) Lock(ctx context.Context, group, box string) (unlock func(), busy bool, err error) {
	for {
		n.mu.Lock()
		h := n.held[group]
		if h == nil {
			h = &holder{box: box, done: make(chan struct{})}
			n.held[group] = h
			n.mu.Unlock()
			return func() { n.unlock(group, h) }, false, nil
		}
		n.mu.Unlock()
		if box != "" && h.box == "" {
			return nil, true, nil
		}
		select {
		case <-h.done:
		case <-ctx.Done():
			return nil, false, GivenUp(ctx)
		}
	}
}

// TryLock is Lock without waiting.
func (n *Names) TryLock(group, box string) (unlock func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[group] != nil {
		return nil, false
	}
	h := &holder{box: box, done: make(chan struct{})}
	n.held[group] = h
	return func() { n.unlock(group, h) }, true
}

func (n *Names) unlock(group string, h *holder) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.held, group)
	close(h.done)
}
