package groups

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/mft"
)

// shown is what readers see of a Set. Its methods take no lock.
type shown struct {
	shownGroups atomic.Pointer[map[string]*atomic.Pointer[Version]] // by name
	shownPorts  atomic.Pointer[ports.Set]
}

// Seen returns the version of a group that readers see, or nil.
func (s *shown) Seen(name string) *Version {
	if g := (*s.shownGroups.Load())[name]; g != nil {
		return g.Load()
	}
	return nil
}

// SeenNames returns the names of all groups that readers see, sorted.
func (s *shown) SeenNames() []string { return slices.Sorted(maps.Keys(*s.shownGroups.Load())) }

// AllSeen returns the versions of all groups that readers see, in the order of their names.
func (s *shown) AllSeen() (list []*Version) {
	shown := *s.shownGroups.Load()
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		list = append(list, shown[name].Load())
	}
	return list
}

// SeenPorts returns the ports that readers see.
func (s *shown) SeenPorts() ports.Set { return *s.shownPorts.Load() }

// Carried returns the ID of a group that the data path has. Its error is an *api.Error.
func (s *shown) Carried(name string) (mft.GroupID, error) {
	switch v := s.Seen(name); {
	case v == nil:
		return 0, NoGroup(name)
	case v.Published == nil:
		return 0, api.Errorf(api.Unavailable, "this box does not carry group %s; rocast group show %s says why", name, name)
	default:
		return v.ID, nil
	}
}
