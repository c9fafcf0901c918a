// Package wire is the cable between a lab guest and a port of the box. It can drop and duplicate
// frames.
//
//	guest's virtio-net - QEMU - socket | Wire | tap, a port of the box
//
// Where the box is a guest too, the port is a socket of its QEMU, and not a tap. A guest that is a
// namespace has a tap, and no QEMU.
//
// The tap belongs to the wire and not to QEMU. So the port stays while the guest is powered off,
// and a frame that a filter drops is lost outside the box: the box has sent it, or will never
// receive it. A frame is as it is on the wire: there is no offload on either side.
//
// A wire is never random without a seed, and never reorders frames. It does not wait either: a
// frame that does not fit into the queue of the tap is lost, as at a real port. (QEMU takes no
// frame for which its guest has no room, so the wires of a box that is a guest lose nothing.)
//
// Start reading at wire.go. filter.go has the filters.
package wire
