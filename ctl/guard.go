package ctl

import "sync"

// guard guards what a Controller knows.
//
// Who changes something holds the whole guard (Lock), so there is one change at a time. While a
// change waits for the disk or for the kernel (aside), others can read (RLock): a reader waits for
// no disk. It sees what is so far, for example a group that is still there while its file is being
// removed. Who acts on what it reads, as for etcd, waits with Lock until no change is half made.
type guard struct {
	changing sync.Mutex // held by a change from its begin to its end
	known    sync.Mutex // held to read, and by a change except where it waits
}

// Lock begins a change, when others have ended.
func (g *guard) Lock() {
	g.changing.Lock()
	g.known.Lock()
}

// Unlock ends a change.
func (g *guard) Unlock() {
	g.known.Unlock()
	g.changing.Unlock()
}

// RLock lets the caller read until RUnlock. It must change nothing that a change counts on across
// its wait.
func (g *guard) RLock() { g.known.Lock() }

// TryRLock is RLock if nobody has to be waited for; else it returns false.
func (g *guard) TryRLock() bool { return g.known.TryLock() }

// RUnlock ends what RLock began.
func (g *guard) RUnlock() { g.known.Unlock() }

// aside runs wait, which waits for a disk or for the kernel, while others can read. The caller has
// called Lock. What is known does not change meanwhile, except by wait itself, which must change
// nothing that others read.
func (g *guard) aside(wait func() error) error {
	g.known.Unlock()
	defer g.known.Lock()
	return wait()
}
