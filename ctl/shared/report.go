package shared

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/desired"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/view"
)

// report is the root's report on a group.
type report struct {
	Revision int64            `json:"revision"` // of the group file that it is about
	Refused  string           `json:"refused,omitempty"`
	Group    api.GroupSummary `json:"group"`
}

// reportOf returns the root's report on a group, or nil if there is none.
func reportOf(e desired.Entry) *report {
	var r report
	if e.Report == "" || json.Unmarshal([]byte(e.Report), &r) != nil {
		return nil
	}
	r.Group.Root = e.Root
	return &r
}

// handled reports whether this box has set up or refused the present version of a group.
func handled(e desired.Entry, isHere bool) bool {
	r := reportOf(e)
	return r != nil && r.Revision == e.Revision && (isHere || r.Refused != "")
}

// report says to all boxes how a group of this box is, if that has changed.
func (s *Shared) report(ctx context.Context, name string, revision int64, refused error) {
	r := report{Revision: revision}
	if refused != nil {
		r.Refused = groups.APIError(refused).Error()
	}
	s.Groups.Lock()
	if g := s.Groups.Named(name); g != nil {
		r.Group = view.Summary(&g.Version)
	} else {
		r.Group = api.GroupSummary{Name: name, State: api.Failed, Reason: r.Refused}
	}
	s.Groups.Unlock()
	text, err := json.Marshal(r)
	if e, _ := s.Desired.Entry(name); err == nil && e.Report != string(text) {
		err = s.Desired.Report(ctx, name, string(text))
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("could not report a group to other boxes; rocastd tries again", zap.String("group", name), zap.Error(err))
	}
}

// describe describes a group: in full if it is here, else as its root reports it.
func (s *Shared) describe(name string, r *report) api.Group {
	if v := s.Groups.Seen(name); v != nil {
		return s.Describe(v)
	}
	return api.Group{GroupSummary: r.Group}
}

// AllElsewhere returns the desired groups that are not on this box, as their roots report them.
func (s *Shared) AllElsewhere() (list []api.GroupSummary) {
	for _, name := range s.Desired.Names() {
		if s.Groups.Seen(name) != nil {
			continue
		}
		if summary, ok := s.Elsewhere(name); ok {
			list = append(list, summary)
		}
	}
	return list
}

// Elsewhere describes a desired group that is not on this box.
func (s *Shared) Elsewhere(name string) (summary api.GroupSummary, ok bool) {
	e, _ := s.Desired.Entry(name)
	if !e.Wanted() {
		return summary, false
	}
	if r := reportOf(e); r != nil {
		r.Group.Name = name
		return r.Group, true
	}
	if e.Begun && chronicle.SaysSwitched(e.Members) {
		return api.GroupSummary{Name: name, State: api.Failed, Root: e.Root, Reason: switchedElsewhere(e)}, true
	}
	return api.GroupSummary{Name: name, State: api.Waiting, Root: e.Root, Reason: "no box has set it up: its source is not attached to any"}, true
}

// switchedElsewhere is why no other box carries a group whose source has switched: only the box
// that was the root has stored the turns.
func switchedElsewhere(e desired.Entry) string {
	return fmt.Sprintf("its source has switched, and only %s knows the offsets between the members' PSNs; start that box, "+
		"or remove the group and create it again with fresh QPs and PSNs", cmp.Or(e.Last, "the box that carried it"))
}
