package ctl

import (
	"sync"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/perftest"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/store"
)

// Parts is what a Controller works with. They stay the caller's to close, apart from Addresses.
type Parts struct {
	Switch    Switch
	NextHops  NextHops
	Addresses Addresses
	Store     *store.Store
	Log       *zap.Logger
	// Perftest are the helpers that come up with Run.
	Perftest []perftest.Config
}

// Controller keeps the desired groups. Its methods may be called from any goroutine.
type Controller struct {
	Parts
	perftest *perftest.Helper
	parsing  chan struct{} // holds a token while a text is parsed, which may take much memory: one at a time

	mu     sync.Mutex
	ports  ports.Set
	groups map[string]*group
	index  index
}
