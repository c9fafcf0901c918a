// Package seats counts what is open under each name, such as the connections from an address: one
// name cannot have what is there for all.
package seats

import "sync"

// Book says who has how many seats.
type Book struct {
	Most int // of one name
	All  int // of all names together; 0: any number

	mu    sync.Mutex
	taken map[string]int // by name
	total int
}

// Take takes a seat, and reports whether there was one.
func (b *Book) Take(who string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken[who] == b.Most || b.All > 0 && b.total == b.All {
		return false
	}
	if b.taken == nil {
		b.taken = map[string]int{}
	}
	b.taken[who]++
	b.total++
	return true
}

// Free gives a seat back that was taken.
func (b *Book) Free(who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	if b.taken[who]--; b.taken[who] == 0 {
		delete(b.taken, who)
	}
}
