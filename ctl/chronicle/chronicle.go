package chronicle

import (
	"maps"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Chronicle holds the records of one group's receivers. The zero value is the chronicle of a new
// group.
type Chronicle struct {
	records map[groupfile.ID]*Record
	// Switched says that another member than the first source has sent, or is about to.
	Switched bool
	// Turn is the present turn. It is not changed, only replaced. nil: that of the first source; if
	// another member has sent, an earlier release has stored the chronicle, and where the members
	// stand is lost.
	Turn      *mft.Turn
	confirmed map[groupfile.ID]struct{} // the receivers whose programs have said that their QP is ready
	shared    bool                      // records and confirmed are another chronicle's too, and do not change
}

// Share returns a copy. What happens to c from now on is not in the copy. Neither copies the
// records before it has to change them.
func (c *Chronicle) Share() Chronicle {
	c.shared = true
	return *c
}

// own makes the records those of c alone. Whatever changes a record calls it first.
func (c *Chronicle) own() {
	if !c.shared {
		return
	}
	records := make(map[groupfile.ID]*Record, len(c.records))
	for id, r := range c.records {
		records[id] = new(*r)
	}
	c.records, c.confirmed, c.shared = records, maps.Clone(c.confirmed), false
}

// Confirm records that a receiver's program has said that its QP is ready.
func (c *Chronicle) Confirm(id groupfile.ID) (changed bool) {
	if c.IsConfirmed(id) {
		return false
	}
	c.own()
	if c.confirmed == nil {
		c.confirmed = map[groupfile.ID]struct{}{}
	}
	c.confirmed[id] = struct{}{}
	return true
}

// IsConfirmed reports whether Confirm was called for the receiver.
func (c *Chronicle) IsConfirmed(id groupfile.ID) bool {
	_, is := c.confirmed[id]
	return is
}

// Standing returns a receiver's standing, "" if it has none.
func (c *Chronicle) Standing(id groupfile.ID) Standing {
	if r := c.records[id]; r != nil {
		return r.Standing
	}
	return ""
}

// Ended returns the record of a receiver that no longer takes part, or nil for any other receiver.
func (c *Chronicle) Ended(id groupfile.ID) *Record {
	if r := c.records[id]; r != nil && r.Standing.IsOut() {
		return r
	}
	return nil
}

// Part returns how a receiver takes part when a group is published with this chronicle.
func (c *Chronicle) Part(id groupfile.ID) feedback.Part {
	switch c.Standing(id) {
	case Joining:
		return feedback.PartJoining
	case Behind:
		return feedback.PartBehind
	case Evicted, Lost:
		return feedback.PartGone
	}
	return feedback.PartActive
}

// OnlyJoin reports whether receivers of the file are joining, and no other one but the source takes
// part.
func (c *Chronicle) OnlyJoin(f *groupfile.File, source groupfile.ID) (joins bool) {
	for i := range f.Receivers {
		switch id := f.Receivers[i].ID(); {
		case id == source:
		case c.Standing(id) == Joining:
			joins = true
		case c.Ended(id) == nil:
			return false
		}
	}
	return joins
}

// FirstPSN returns the PSN that receiver m's QP expects when the source sends its first PSN. A
// receiver that joined in an earlier run of the daemon expected its first PSN at a later PSN of the
// source; FirstPSN counts back from there. The result must not change while the group is published:
// to the data path, a path with another first PSN is another QP.
func (c *Chronicle) FirstPSN(source groupfile.Member, m groupfile.Member) roce.PSN {
	r := c.records[m.ID()]
	if r == nil || r.since == nil {
		return m.FirstPSN
	}
	return source.FirstPSN.Add(m.FirstPSN.Sub(*r.since))
}

// Out records that a receiver no longer takes part, and the first PSN of the source that it lacks.
func (c *Chronicle) Out(id groupfile.ID, s Standing, psn roce.PSN) {
	c.set(id, Record{Standing: s, PSN: psn})
}

// LeaveOut records that a receiver takes no part, for a reason without a packet.
func (c *Chronicle) LeaveOut(id groupfile.ID, s Standing) { c.set(id, Record{Standing: s}) }

// Came records that a receiver has come from another box, or that its box has lost its state. Its
// QP expects its first PSN with the source's PSN psn, like that of a receiver that joined there in
// an earlier run of the daemon.
func (c *Chronicle) Came(id groupfile.ID, psn roce.PSN) {
	c.set(id, Record{Standing: Joined, PSN: psn})
	c.records[id].since = &psn
	c.Turn = without(c.Turn, func(other groupfile.ID) bool { return other == id })
}

// Rename lets a receiver have another ID: the other end of a link has another QPN.
func (c *Chronicle) Rename(was, is groupfile.ID) {
	c.own()
	if r := c.records[was]; r != nil {
		delete(c.records, was)
		c.records[is] = r
	}
}

// Since returns the source's PSN at which a receiver joined, if its standing is Joined.
func (c *Chronicle) Since(id groupfile.ID) roce.PSN { return c.records[id].PSN }

// LetJoin records that a receiver is joining.
func (c *Chronicle) LetJoin(id groupfile.ID) { c.set(id, Record{Standing: Joining}) }

func (c *Chronicle) set(id groupfile.ID, r Record) {
	c.own()
	if c.records == nil {
		c.records = map[groupfile.ID]*Record{}
	}
	if before := c.records[id]; before != nil {
		r.since = before.since
	}
	c.records[id] = &r
}

// Joined records that a receiver that was joining takes part since psn.
func (c *Chronicle) Joined(id groupfile.ID, psn roce.PSN) (changed bool) {
	if r := c.records[id]; r == nil || r.Standing != Joining {
		return false
	}
	c.set(id, Record{Standing: Joined, PSN: psn, Before: Open})
	return true
}

// Open returns the receivers that have joined and of which it is not known that everything before
// their first packets was acknowledged to the source.
func (c *Chronicle) Open() (list []groupfile.ID) {
	for id, r := range c.records {
		if r.isOpen() {
			list = append(list, id)
		}
	}
	return list
}

// Complete records that everything before a receiver's first packet was acknowledged to the source.
func (c *Chronicle) Complete(id groupfile.ID) {
	c.own()
	c.records[id].Before = Acknowledged
}

// Next returns the chronicle of the group after an update to file f. It drops the receivers that f
// lacks. The receivers that only f has are joining, unless this box passes their frames on: then
// the box that merges keeps who has joined.
func (c *Chronicle) Next(running, f *groupfile.File) Chronicle {
	// A member that leaves may join again with another queue pair.
	n := Chronicle{Switched: c.Switched, Turn: without(c.Turn, func(id groupfile.ID) bool { return f.Receiver(id) < 0 })}
	for _, m := range f.Receivers {
		if r := c.records[m.ID()]; r != nil {
			n.set(m.ID(), *r)
		} else if running.Receiver(m.ID()) < 0 && m.ID() != f.Source.ID() && !f.IsRelayed() { // the source of a branch may receive from now on
			n.set(m.ID(), Record{Standing: Joining})
		}
		if c.IsConfirmed(m.ID()) {
			n.Confirm(m.ID())
		}
	}
	return n
}

// With returns the records of both chronicles. If both have a record of a receiver, that of next
// counts.
func (c *Chronicle) With(next Chronicle) Chronicle {
	both := Chronicle{Switched: c.Switched || next.Switched, Turn: c.Turn, confirmed: maps.Clone(c.confirmed)}
	for id := range next.confirmed {
		both.Confirm(id)
	}
	for _, records := range []map[groupfile.ID]*Record{c.records, next.records} {
		for id, r := range records {
			both.set(id, *r)
		}
	}
	return both
}
