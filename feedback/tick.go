package feedback

// Window is how far, in packets, a PSN of the source may lie from the highest one forwarded, and
// the highest one forwarded from what is acknowledged. A packet beyond it is a forgery, or comes
// from a QP that was set up again. Window is a quarter of what 24-bit comparison can tell apart, so
// that sums of two distances still compare correctly.
const Window = 1 << 21

// Tick is a time in nanoseconds from any fixed start. Only differences mean something.
type Tick int64

// Units of Tick.
const (
	microsecond Tick = 1000
	millisecond      = 1000 * microsecond
	second           = 1000 * millisecond
)
