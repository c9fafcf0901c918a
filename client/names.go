package client

import (
	"errors"

	"github.com/rocast/rocast/ctl/api"
)

// The types that a program names most often. The daemon and this package share them, so a key that
// the daemon adds is here at once.
type (
	Group        = api.Group
	GroupSummary = api.GroupSummary
	Member       = api.Member
	Confirmation = api.Confirmation
	RegionChange = api.RegionChange
	NewRegion    = api.NewRegion
	RegionStart  = api.RegionStart
	RegionAt     = api.RegionAt
	Regions      = api.Regions
	Hex          = api.Hex
	Goodput      = api.Goodput
	HostRequest  = api.HostRequest
	HostGroup    = api.HostGroup
	EdgeQuestion = api.EdgeQuestion
	EdgeAnswer   = api.EdgeAnswer
	EdgeMapping  = api.EdgeMapping
	EdgeRegion   = api.EdgeRegion
	Event        = api.Event
	Events       = api.Events
	EventKind    = api.EventKind
	Cursor       = api.Cursor
	Error        = api.Error
	Kind         = api.Kind
)

// KindOf returns the kind of an error of this package, or "" for any other error.
func KindOf(err error) Kind {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}
