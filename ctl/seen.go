package ctl

import (
	"maps"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/mft"
)

// What readers see. None of these takes a lock.

// seen returns the version of a group that readers see, or nil.
func (s *book) seen(name string) *groups.Version {
	if g := (*s.shownGroups.Load())[name]; g != nil {
		return g.Load()
	}
	return nil
}

// seenNames returns the names of all groups that readers see, sorted.
func (s *book) seenNames() []string { return slices.Sorted(maps.Keys(*s.shownGroups.Load())) }

// allSeen returns the versions of all groups that readers see, in the order of their names.
func (s *book) allSeen() (list []*groups.Version) {
	shown := *s.shownGroups.Load()
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		list = append(list, shown[name].Load())
	}
	return list
}

// seenPorts returns the ports that readers see.
func (s *book) seenPorts() ports.Set { return *s.shownPorts.Load() }

// carried returns the ID of a group that the data path has. Its error is an *api.Error.
func (s *book) carried(name string) (mft.GroupID, error) {
	switch v := s.seen(name); {
	case v == nil:
		return 0, noGroup(name)
	case v.Published == nil:
		return 0, api.Errorf(api.Unavailable, "this box does not carry group %s; rocast group show %s says why", name, name)
	default:
		return v.ID, nil
	}
}
