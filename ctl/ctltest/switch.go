package ctltest

import (
	"context"
	"sync"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Switch is a real dataplane.Switch over in-memory ports. Its ports have the ifindexes 1, 2 and so on.
type Switch struct {
	*dataplane.Switch
	infos []dataplane.PortInfo

	mu       sync.Mutex
	refuse   error
	replaced []string
	carried  map[mft.GroupID]roce.PSN
}

// NewSwitch returns a Switch with ports of MTU 1500.
func NewSwitch(ports ...string) *Switch {
	s := &Switch{Switch: porttest.New(len(ports)).Switch, carried: map[mft.GroupID]roce.PSN{}}
	for i, name := range ports {
		s.infos = append(s.infos, dataplane.PortInfo{
			ID: mft.PortID(i), Name: name, IfIndex: i + 1, MAC: [6]byte{2, 0, 0, 0, 0xb, byte(i + 1)}, MTU: 1500,
			Attach: "native", Mode: "copy", Queues: 1,
		})
	}
	return s
}

// Refuse makes the next Add or Replace fail.
func (s *Switch) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// Replaced returns the names of the groups Replace was called for, and forgets them.
func (s *Switch) Replaced() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.replaced
	s.replaced = nil
	return names
}

// Carry makes the group look as if it had forwarded data up to psn.
func (s *Switch) Carry(name string, psn roce.PSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.Table().All {
		if g.Name == name {
			s.carried[g.ID] = psn
		}
	}
}

func (s *Switch) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.refuse
	s.refuse = nil
	return err
}

// Add is part of ctl.Switch, as is what follows.
func (s *Switch) Add(g *mft.Group) (mft.GroupID, error) {
	if err := s.refused(); err != nil {
		return 0, err
	}
	return s.Switch.Add(g)
}

func (s *Switch) Replace(id mft.GroupID, g *mft.Group) error {
	if err := s.refused(); err != nil {
		return err
	}
	s.mu.Lock()
	s.replaced = append(s.replaced, g.Name)
	s.mu.Unlock()
	return s.Switch.Replace(id, g)
}

func (s *Switch) GroupState(id mft.GroupID) (dataplane.GroupState, bool) {
	state, ok := s.Switch.GroupState(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if psn, carried := s.carried[id]; carried {
		state.Started, state.Sent, state.Pos = true, psn, psn
	}
	return state, ok
}

func (s *Switch) Ports() []dataplane.PortInfo { return s.infos }

// Run moves nothing: in-memory ports are driven by their test.
func (s *Switch) Run(ctx context.Context) { <-ctx.Done() }
