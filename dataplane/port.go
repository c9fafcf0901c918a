package dataplane

import (
	"fmt"
	"time"

	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Port is one interface as the worker sees it.
type Port interface {
	// Receive fills frames with received ones, up to len(frames), and never blocks. The frames
	// belong to the caller until it gives them to the Pool.
	Receive(frames []Frame) int
	// Send transmits out in order. When it returns, the caller may rewrite the buffers or give them
	// back: their bytes are with the kernel, or copied. Only the buffers of frames that are sent
	// for the last time may stay with the port; see Frame.Kept. Send returns how many frames were
	// sent. The others are lost, as on any full link.
	Send(out []Outgoing) int
	// Unsent returns how many bytes of frames the port's device was given and has not sent yet.
	Unsent() int
}

// Outgoing is a frame to send: f.Buf from Start to the end of the first fragment, then the other
// fragments.
type Outgoing struct {
	Frame *Frame
	Start int
	Bytes int  // from Start to the end of the last fragment; the port does not check it
	Last  bool // the frame is not sent again

	fate  Fate   // for captures: what it is, or why it is not sent
	first bool   // it is a repair with Copy.First
	event uint64 // see Worker.event
}

// fill makes o frame f, which has so many bytes, to be sent from start on.
func (o *Outgoing) fill(f *Frame, bytes, start int, last bool) {
	o.Frame, o.Start, o.Bytes, o.Last = f, start, bytes+f.Start-start, last
}

// Pool owns the buffers of all ports.
type Pool interface {
	// Get makes f an empty frame with one buffer, which came by no port: Start leaves room for
	// HeadroomBytes, and there are no fragments. The result is false if no buffer is free.
	Get(f *Frame) bool
	// Load makes f a frame of the bytes of head and rest, in as many buffers as needed. The result
	// is false if not enough are free.
	Load(f *Frame, head, rest []byte) bool
	// Put takes the buffers of a frame back, unless the frame is Kept. They may serve the port by
	// which the frame came.
	Put(f *Frame)
}

// Waiter blocks a worker while there is nothing to do.
type Waiter interface {
	// Wait returns when a port may have received a frame, after Wake, or after timeout.
	Wait(timeout time.Duration)
	// Nap returns after timeout or after Wake. Frames do not end it.
	Nap(timeout time.Duration)
	// Yield lets other threads of the CPU run that are ready to, and returns at once if none is.
	Yield()
	// Wake ends the current Wait or Nap, or the next one if none is in progress.
	Wake()
}

// Warning tells the operator about a lasting problem that no packet shows by itself.
type Warning struct {
	Text   string // constant: the problem, and how the operator can mend it
	Port   string // the port's name, empty if the warning is about no single port
	Detail string // the values of this case; may be empty
}

// PortState reports whether a port can carry frames.
type PortState string

const (
	PortUp     PortState = "up"
	PortDown   PortState = "down"   // the link is down
	PortGone   PortState = "gone"   // no interface has its name
	PortFailed PortState = "failed" // the interface cannot be opened
)

// Open reports whether the port is in use, so that frames are received and sent on it.
func (s PortState) Open() bool { return s == PortUp || s == PortDown }

// PortInfo describes a port for people. The modes are those obtained, which differ from those
// configured where a driver cannot do what was asked.
type PortInfo struct {
	ID          mft.PortID
	Name        string
	State       PortState
	Reason      string // why it is gone or failed
	Opened      int    // how often; an interface that went away and came back is opened again
	IfIndex     int    // 0: no interface
	MAC         roce.MAC
	MTU         int    // bytes, as `ip link` shows it
	Attach      string // where the classifier runs: native or generic; "": the port is not open
	Fallback    string // why it was opened again in generic mode; "": it was not
	Mode        string // how frames get to user space: zero-copy, copy or generic
	MultiBuffer bool   // the port can carry frames longer than one buffer
	Queues      int
	TakesTags   bool   // the device takes VLAN tags out of the frames that it receives
	UnderVLAN   string // of a port that does so: a VLAN device above it, its bridge or its bond; "": there is none
	NoFanOut    string // why the kernel's fan-out cannot use the open port; "": it can, or is off
	PortCounters
	// Kernel counts the frames that were lost between the wire and the worker, by name of the
	// reason.
	Kernel []Counter
}

// TagsTaken says that a port's device takes the VLAN tags of something out of frames, and what
// mends that.
func TagsTaken(port, whose string) string {
	return fmt.Sprintf("%[1]s takes the VLAN tags of %[2]s out of frames before rocast sees them, so that rocast refuses the frames; "+
		"run ethtool -K %[1]s rxvlan off txvlan off", port, whose)
}
