// Package frames tells of the frames that pass the box: of those that come and go, for a capture,
// and of what would become of one, for a trace. It changes nothing, and holds no lock.
//
// The data path copies what a capture asks for (dataplane/tap.go); here the copies are read in
// time, and described as the API has them.
//
// Read first: capture.go.
package frames

import (
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// Switch is the part of the data path that has the frames.
type Switch interface {
	Ports() []dataplane.PortInfo
	Capture(dataplane.CaptureConfig) (*dataplane.Capture, error)
	Trace(mft.PortID, []byte) (dataplane.Trace, error)
}

// Frames tells of the frames of a box. Its methods may be called from any goroutine.
type Frames struct {
	data    Switch
	group   func(name string) (mft.GroupID, error)
	noGroup func(name string) error
}

// New returns the Frames of a box. group returns the ID of the group with a name, or an *api.Error
// if there is none or this box does not carry it. noGroup returns the *api.Error of a group that is
// not there any more.
func New(data Switch, group func(name string) (mft.GroupID, error), noGroup func(name string) error) *Frames {
	return &Frames{data, group, noGroup}
}
