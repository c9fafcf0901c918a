package ctl

import (
	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/mft"
)

// group is a desired group and what was done for it.
type group struct {
	name     string
	file     *groupfile.File // nil: the kept file cannot be read
	kept     bool            // in the state directory
	restored bool            // see mft.Group.Restored
	problem  string          // why it is not published; "" when it is

	id        mft.GroupID
	published *mft.Group // nil: it is not in the Switch
	plan      plan.Plan  // what published was made of
	held      map[address.Place]bool

	past   chronicle.Chronicle
	source groupfile.ID // the member that is the source now, if it is a receiver too
}

func newGroup(file *groupfile.File, kept bool) *group {
	g := &group{name: file.Name, file: file, kept: kept}
	if file.Source.Role == groupfile.Both {
		g.source = file.Source.ID()
	}
	return g
}

// build makes what is published of the group by a plan.
func (g *group) build(p *plan.Plan) *mft.Group { return p.Group(g.file, &g.past, g.restored) }

// legs are the group's members as they are reached now; those of a group that failed are not.
func (g *group) legs() *plan.Plan {
	if g.published == nil {
		failed := plan.Failed(g.file)
		return &failed
	}
	return &g.plan
}

// ended is the record of a member that takes part no longer, nil for any other one. The source has none of its own.
func (g *group) ended(m *groupfile.Member) *chronicle.Record {
	if m.Role == groupfile.Source {
		return nil
	}
	return g.past.Ended(m.ID())
}

// waiting counts the members that nothing gets through to.
func (g *group) waiting() (n int) {
	for l := range g.plan.Members() {
		if l.Waits() && g.ended(l.Member) == nil {
			n++
		}
	}
	return n
}
