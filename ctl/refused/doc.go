// Package refused says whose trouble it is that the data path refuses frames, and what mends it:
// the member's that sends them, the box's, or nobody's here. It reads no clock.
package refused
