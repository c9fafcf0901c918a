package groupip

import (
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Keys are what both sides of a program's run have said of one queue pair: enough to make its
// group.
type Keys struct {
	Client  roce.QPN          // the source's queue pair
	Memory  mft.VirtualRegion // to which the source may WRITE
	Regions []mft.Region      // of the receivers
}
