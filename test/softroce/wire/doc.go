// Package wire is the cable between a lab guest and a port of the box, with the faults a story asks for.
//
//	guest's virtio-net - QEMU - socket | Wire | tap, a port of the box
//
// The tap belongs to the wire and not to QEMU, so the port stays while the guest is powered off, and what a filter
// drops is lost beyond the port: to the box it has been sent, or was never received. A frame is what is on the wire:
// there is no offload on either side.
//
// What it never does: decide at random without a seed, reorder, or wait: what does not fit into the tap's queue is
// lost there, as with a real port.
//
// Start reading at wire.go; filter.go says how to write a fault.
package wire
