package rnic

// ring is a queue of fixed capacity that keeps the storage of its elements. Positions count up for
// ever: the element at position p lies in slot p modulo the capacity, rounded up to a power of two.
// The caller of push keeps to the capacity.
type ring[T any] struct {
	slots      []T
	head, tail uint // of the oldest element; of the next one to be pushed
}

func newRing[T any](capacity int) ring[T] {
	slots := 1
	for slots < capacity {
		slots *= 2
	}
	return ring[T]{slots: make([]T, slots)}
}

func (r *ring[T]) empty() bool    { return r.head == r.tail }
func (r *ring[T]) len() uint      { return r.tail - r.head }
func (r *ring[T]) at(pos uint) *T { return &r.slots[pos&uint(len(r.slots)-1)] }
func (r *ring[T]) front() *T      { return r.at(r.head) }
func (r *ring[T]) pop()           { r.head++ }

func (r *ring[T]) push(v T) {
	*r.at(r.tail) = v
	r.tail++
}
