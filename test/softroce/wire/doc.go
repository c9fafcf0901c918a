// Package wire is the cable between a lab guest and a port of the box. It can drop and duplicate
// frames.
//
//	guest's virtio-net - QEMU - socket | Wire | tap, a port of the box
//
// The tap belongs to the wire and not to QEMU. So the port stays while the guest is powered off,
// and a frame that a filter drops is lost outside the box: the box has sent it, or will never
// receive it. A frame is as it is on the wire: there is no offload on either side.
//
// A wire is never random without a seed, and never reorders frames. It does not wait either: a
// frame that does not fit into the queue of the tap is lost, as at a real port.
//
// Start reading at wire.go. filter.go has the filters.
package wire
