package store

import "sync"

// textLocks lets one goroutine at a time write the text of a group. The texts of other groups do
// not wait: a disk may take long to sync one. The zero value has no lock held.
type textLocks struct {
	mu sync.Mutex
	of map[string]*textLock // by the name of the group; those that somebody has or waits for
}

type textLock struct {
	sync.Mutex
	users int // guarded by textLocks.mu
}

// lock waits until nobody writes the text of a group. The caller may write it until unlock.
func (l *textLocks) lock(name string) (unlock func()) {
	l.mu.Lock()
	t := l.of[name]
	if t == nil {
		if l.of == nil {
			l.of = map[string]*textLock{}
		}
		t = &textLock{}
		l.of[name] = t
	}
	t.users++
	l.mu.Unlock()
	t.Lock()
	return func() {
		t.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.of, name)
		}
	}
}
