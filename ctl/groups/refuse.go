package groups

import (
	"fmt"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
)

// RefuseKnown refuses a file if another group has the same name, or one of the same QPs or keys.
func (s *Set) RefuseKnown(f *groupfile.File) error {
	s.Lock()
	defer s.Unlock()
	if err := s.RefuseNameTaken(f); err != nil {
		return err
	}
	return s.RefuseTaken(f, nil, nil)
}

// RefuseNameTaken refuses a file with the name of another group.
func (s *Set) RefuseNameTaken(f *groupfile.File) error {
	if s.groups[f.Name] == nil {
		return nil
	}
	return NameTaken(f)
}

// NameTaken is the error of a file with the name of another group.
func NameTaken(f *groupfile.File) error {
	return &api.Error{Kind: api.Exists, Line: f.Lines["name"],
		Message: fmt.Sprintf("group %s exists; remove it first with rocast group rm %s, or write another name",
			f.Name, f.Name)}
}
