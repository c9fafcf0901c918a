package wire

import (
	"io"
	"sync"
	"sync/atomic"
)

// Direction is where a frame goes.
type Direction int

const (
	ToGuest Direction = iota
	ToBox
	directions
)

// Counts is what happened to the frames of one direction.
type Counts struct {
	Passed     uint64 // frames, including duplicates
	Dropped    uint64 // by the filter
	Duplicated uint64
	Unplugged  uint64 // frames for a guest that was off
}

// Wire relays frames between a port of the box and a guest until it is closed. Its methods may be
// called from any goroutine.
type Wire struct {
	port    io.ReadWriteCloser
	guest   atomic.Pointer[io.ReadWriteCloser]
	lanes   [directions]lane
	capture atomic.Pointer[capture]
	workers sync.WaitGroup
}

// lane is one direction. Only the goroutine that relays this direction calls the filter.
type lane struct {
	filter                                 atomic.Pointer[Filter]
	passed, dropped, duplicated, unplugged atomic.Uint64
}

// New starts relaying. port is a tap, or what Framed returns: one Read or Write is one frame. The
// wire owns the port.
func New(port io.ReadWriteCloser) *Wire {
	w := &Wire{port: port}
	w.workers.Add(1)
	go func() {
		defer w.workers.Done()
		w.relayToGuest()
	}()
	return w
}

// Plug connects a guest by its NIC, which is a tap or what Framed returns, as the port. The wire
// owns the NIC. The guest is unplugged when the NIC ends, or when another guest is plugged in.
func (w *Wire) Plug(nic io.ReadWriteCloser) {
	if old := w.guest.Swap(&nic); old != nil {
		(*old).Close()
	}
	w.workers.Add(1)
	go func() {
		defer w.workers.Done()
		defer nic.Close()
		w.relayToBox(nic)
		w.guest.CompareAndSwap(&nic, nil)
	}()
}

// Close ends both ends of the wire. It returns when the wire relays nothing any more.
func (w *Wire) Close() error {
	err := w.port.Close()
	if guest := w.guest.Swap(nil); guest != nil {
		(*guest).Close()
	}
	w.workers.Wait()
	return err
}

// SetFilter replaces the filter of one direction. nil passes everything.
func (w *Wire) SetFilter(d Direction, f Filter) {
	if f == nil {
		w.lanes[d].filter.Store(nil)
		return
	}
	w.lanes[d].filter.Store(&f)
}

// Counts returns the totals of one direction since New.
func (w *Wire) Counts(d Direction) Counts {
	l := &w.lanes[d]
	return Counts{l.passed.Load(), l.dropped.Load(), l.duplicated.Load(), l.unplugged.Load()}
}

// Inject sends a frame to the box that the guest has not sent. The frame is captured. No filter
// sees it.
func (w *Wire) Inject(frame []byte) error {
	w.record(frame)
	_, err := w.port.Write(frame)
	return err
}

func (w *Wire) relayToGuest() {
	buffer := make([]byte, maxFrameBytes)
	for {
		n, err := w.port.Read(buffer)
		if err != nil {
			return // closed: reading a port fails for no other reason
		}
		for range w.copies(ToGuest, buffer[:n]) {
			w.sendToGuest(buffer[:n])
		}
	}
}

func (w *Wire) sendToGuest(frame []byte) {
	guest := w.guest.Load()
	if guest == nil {
		w.lanes[ToGuest].unplugged.Add(1)
		return
	}
	if _, err := (*guest).Write(frame); err != nil {
		w.lanes[ToGuest].unplugged.Add(1)
	}
}

func (w *Wire) relayToBox(nic io.Reader) {
	buffer := make([]byte, maxFrameBytes)
	for {
		n, err := nic.Read(buffer)
		if err != nil {
			return
		}
		for range w.copies(ToBox, buffer[:n]) {
			_, _ = w.port.Write(buffer[:n]) // fails while the port is down
		}
	}
}

// copies asks the filter how many times the frame goes on. It counts the frame, and captures it if
// it goes on.
func (w *Wire) copies(d Direction, frame []byte) int {
	l := &w.lanes[d]
	verdict := Pass
	if filter := l.filter.Load(); filter != nil {
		verdict = (*filter)(frame)
	}
	switch verdict {
	case Drop:
		l.dropped.Add(1)
		return 0
	case Duplicate:
		l.duplicated.Add(1)
		l.passed.Add(2)
		w.record(frame)
		w.record(frame)
		return 2
	default:
		l.passed.Add(1)
		w.record(frame)
		return 1
	}
}
