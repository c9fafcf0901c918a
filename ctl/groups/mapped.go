package groups

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// MapFrom lets the branches for an upper box map what that box shares between several boxes. The
// mappings are all that it gives this box. Those of a branch that is not there, or has another end
// of its link, wait for it.
func MapFrom(s *Set, upper string, mappings []api.EdgeMapping) error {
	s.Lock()
	defer s.Unlock()
	if s.mapped == nil {
		s.mapped = map[string][]api.EdgeMapping{}
	}
	var errs []error
	for i := range mappings {
		switch m := &mappings[i]; {
		case slices.ContainsFunc(m.Regions, movesMemory):
			errs = append(errs, fmt.Errorf("box %s gives a mapping of group %s that moves memory, which no link does", upper, m.Group))
		case !mapping(m).IsOfShare(m.From): // the group could not be published with it, whatever changes
			errs = append(errs, fmt.Errorf("box %s gives a mapping of group %s that is of no shared leg: to %v with QPN %d", upper, m.Group, m.To, m.LegQPN))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mapped[upper] = mappings
	for _, g := range s.groups {
		if g.Branch == nil || g.Branch.Upper != upper || g.Published == nil {
			continue
		}
		want := mappingsOf(s, g, g.Published)
		if slices.Equal(want, g.Published.Mappings) {
			continue
		}
		if shareAnew(s, g); !slices.Equal(want, g.Published.Mappings) {
			errs = append(errs, fmt.Errorf("group %s could not be published with what box %s shares", g.Name, upper))
		}
	}
	return errors.Join(errs...)
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
