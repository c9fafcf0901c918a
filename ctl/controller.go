package ctl

import (
	"sync"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/store"
)

// Parts are the components a Controller works with. The Controller closes Addresses; the caller
// closes the others.
type Parts struct {
	Switch    Switch
	NextHops  NextHops
	Addresses Addresses
	Store     *store.Store
	Log       *zap.Logger
	// Perftest lists the helpers of the config, which Run starts.
	Perftest []perftest.Config
}

// Controller keeps the desired groups. Its methods may be called from any goroutine.
type Controller struct {
	Parts
	perftest *perftest.Helper
	parsing  chan struct{} // one token: parsing may need much memory, so only one text is parsed at a time

	mu     sync.Mutex
	ports  ports.Set
	groups map[string]*group
	index  index
}
