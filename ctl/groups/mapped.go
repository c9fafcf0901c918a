package groups

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// MapFrom lets the branches for an upper box map what that box shares between several boxes. The
// mappings are all that it gives this box. Those of a branch that is not there, or has another end
// of its link, wait for it. A mapping that cannot be had is left out alone: failed says why, by its
// QPN.
func MapFrom(s *Set, upper string, mappings []api.EdgeMapping) (failed map[uint32]error) {
	s.Lock()
	defer s.Unlock()
	if s.mapped == nil {
		s.mapped = map[string][]api.EdgeMapping{}
	}
	failed = map[uint32]error{}
	var kept, new []api.EdgeMapping
	for i := range mappings {
		m := &mappings[i]
		if err := refuseMapping(m, mappings[:i]); err != nil {
			failed[m.LegQPN] = err
		} else if slices.ContainsFunc(s.mapped[upper], func(had api.EdgeMapping) bool { return isSame(had, *m) }) {
			kept = append(kept, *m)
		} else {
			new = append(new, *m)
		}
	}
	mapAs := func(list []api.EdgeMapping, of func(name string) bool) (err error) {
		s.mapped[upper] = list
		for _, g := range s.groups {
			if of(g.Name) && g.Branch != nil && g.Branch.Upper == upper && g.Published != nil && !slices.Equal(mappingsOf(s, g, g.Published), g.Published.Mappings) {
				err = errors.Join(err, publishShares(s, g))
			}
		}
		return err
	}
	if err := mapAs(kept, func(string) bool { return true }); err != nil {
		// A mapping too many does no harm: nothing comes by it. The next look at its group tries
		// again.
		s.Log.Warn("could not take mappings from groups that the box above shares no more", zap.String("box", upper), zap.Error(err))
	}
	for _, m := range new {
		if err := mapAs(append(kept[:len(kept):len(kept)], m), func(name string) bool { return name == m.Group }); err != nil {
			failed[m.LegQPN] = err
			s.mapped[upper] = kept // no version of the group could be published with it, whatever changes
			continue
		}
		kept = s.mapped[upper]
	}
	return failed
}

// refuseMapping returns why a mapping cannot be had, whatever the groups are, or nil. before are
// those of the same answer.
func refuseMapping(m *api.EdgeMapping, before []api.EdgeMapping) error {
	switch {
	case slices.ContainsFunc(m.Regions, movesMemory):
		return errors.New("the mapping moves memory, which no link does")
	case !mapping(m).IsOfShare(m.From):
		return fmt.Errorf("no shared leg is to %v with QPN %d", m.To, m.LegQPN)
	case slices.ContainsFunc(before, func(b api.EdgeMapping) bool { return b.LegQPN == m.LegQPN }):
		return fmt.Errorf("another mapping has QPN %d too", m.LegQPN)
	}
	return nil
}

// isSame reports whether two mappings are one at a box, where regions stay as they are.
func isSame(a, b api.EdgeMapping) bool {
	return a.Group == b.Group && a.From == b.From && a.Host == b.Host && a.QPN == b.QPN && mapping(&a) == mapping(&b)
}

// movesMemory reports whether a region is elsewhere at the receiver. VA and R_Key cross a link as
// they are.
func movesMemory(r api.EdgeRegion) bool { return r.AddVA != 0 || r.RKey != r.ToRKey }

// mapping is a mapping as the data path has it.
func mapping(m *api.EdgeMapping) mft.Mapping {
	return mft.Mapping{To: m.To, QPN: roce.QPN(m.LegQPN), AddPSN: m.AddPSN}
}

// mappingsOf returns the mappings of a group whose source is the one of next: those that the box
// above gives for this end of the link.
func mappingsOf(s *Set, g *Group, next *mft.Group) (list []mft.Mapping) {
	if g.Branch == nil || next.Relay != nil {
		return nil
	}
	for i := range s.mapped[g.Branch.Upper] {
		m := &s.mapped[g.Branch.Upper][i]
		if m.Group == g.Name && m.From == next.Source.Dst && m.Host == next.Source.Src && m.QPN == uint32(next.Source.RemoteQPN) {
			list = append(list, mapping(m))
		}
	}
	return list
}

// MappedFrom counts the packets that came as copies which an upper box shares between several
// boxes.
func MappedFrom(s *Set, upper string) (packets uint64) {
	s.Lock()
	defer s.Unlock()
	for _, g := range s.groups {
		if g.Branch != nil && g.Branch.Upper == upper && g.Published != nil && len(g.Published.Mappings) > 0 {
			if state, known := s.Switch.GroupState(g.ID); known {
				packets += state.Traffic.Mapped
			}
		}
	}
	return packets
}
