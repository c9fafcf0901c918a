package dataplane

import (
	"time"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Port is one interface as the worker sees it.
type Port interface {
	// Receive fills frames with what arrived, up to len(frames), and never
	// blocks. The frames are the caller's until it gives them to the Pool.
	Receive(frames []Frame) int
	// Send transmits out in order. When it returns, the buffers are the
	// caller's again to rewrite or to give back: their bytes are with the
	// kernel, or copied. Only the buffers of frames that are sent for the last
	// time may stay with the port; see Frame.Kept. It returns how many frames
	// went out; the rest are lost, as on any full link.
	Send(out []Outgoing) int
}

// Outgoing is a frame to send: f.Buf from Start to the end of the first
// fragment, then the other fragments.
type Outgoing struct {
	Frame *Frame
	Start int
	Last  bool // the frame is not sent again
}

// Pool owns the buffers of all ports.
type Pool interface {
	// Get makes f a blank frame: Buf is a whole buffer, Start leaves room
	// for HeadroomBytes, no fragments. False: none is free.
	Get(f *Frame) bool
	// Load makes f a frame of these bytes, in as many buffers as it takes.
	// False: not enough are free.
	Load(f *Frame, bytes []byte) bool
	// Put takes a frame's buffers back, unless a port has kept them.
	Put(f *Frame)
}

// Waiter blocks a worker while nothing happens.
type Waiter interface {
	// Wait returns when a port may have received something, after Wake, or
	// after timeout.
	Wait(timeout time.Duration)
	// Wake ends a Wait, also the next one if none is under way.
	Wake()
}

// PortState says whether a port can carry frames.
type PortState string

const (
	PortUp     PortState = "up"
	PortDown   PortState = "down"   // the link is
	PortGone   PortState = "gone"   // no interface has its name
	PortFailed PortState = "failed" // there is one, and it cannot be opened
)

// Open says whether frames are taken from the port and given to it.
func (s PortState) Open() bool { return s == PortUp || s == PortDown }

// PortInfo is what people want to know of a port. Asked and obtained modes
// differ where a driver cannot do what was asked.
type PortInfo struct {
	ID          mft.PortID
	Name        string
	State       PortState
	Reason      string // why it is gone or failed
	Opened      int    // how often: an interface that goes and comes back is opened again
	IfIndex     int    // 0: gone
	MAC         roce.MAC
	MTU         int    // bytes, as `ip link` shows it now
	Attach      string // where the classifier runs: native or generic; "": the port is not open
	Mode        string // how frames get to user space: zero-copy, copy or generic
	MultiBuffer bool   // frames longer than one buffer can be carried
	Queues      int
	PortCounters
	// Kernel counts what was lost between the wire and the worker, by name.
	Kernel []Counter
}
