package client

import "github.com/rocast/rocast/ctl/api"

// The types that a program names most often. The daemon and this package share them, so a key that
// the daemon adds is here at once.
type (
	Group        = api.Group
	GroupSummary = api.GroupSummary
	Member       = api.Member
	Error        = api.Error
	Kind         = api.Kind
)
