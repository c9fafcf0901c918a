package roce

import "fmt"

// An R_Key gives access to a host's memory to everyone who can send it a packet, so R_Keys must not
// reach logs or traces: the headers that carry one print themselves without it. Code that has to
// show a key formats the field explicitly.

// String is the header without its R_Key.
func (h RETH) String() string {
	return fmt.Sprintf("{VA=%#x RKey=hidden DMABytes=%d}", h.VA, h.DMABytes)
}

// String is the header without its R_Key.
func (h AtomicETH) String() string {
	return fmt.Sprintf("{VA=%#x RKey=hidden SwapAdd=%#x Compare=%#x}", h.VA, h.SwapAdd, h.Compare)
}

// String is the header without its R_Key.
func (h IETH) String() string { return "{RKey=hidden}" }
