package chronicle

import (
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Take records the turn that begins. Who has joined before has everything of it.
func (c *Chronicle) Take(t *mft.Turn) {
	c.Turn, c.Switched = t, true
	for _, id := range c.Open() {
		c.Complete(id)
	}
}

// Renew records the same turn from where it has got to.
func (c *Chronicle) Renew(t *mft.Turn) { c.Turn = t }

// SourceEnded reports whether the turn says that its source was sent the NAK that ends its QP.
func (c *Chronicle) SourceEnded() bool {
	if c.Turn == nil {
		return false
	}
	source := c.Turn.Sender()
	return source != nil && source.Ended
}

// From returns the PSN of the source with which a restored group begins.
func (c *Chronicle) From(f *groupfile.File) roce.PSN {
	if c.Turn != nil {
		if source := c.Turn.Sender(); source != nil {
			return source.NextPSN
		}
	}
	return f.Source.FirstPSN
}

// Forgotten reports whether it is not known where the members stand.
func (c *Chronicle) Forgotten() bool { return c.Switched && c.Turn == nil }

// Begins returns the turn with which a restored group begins; nil: the first source's, from its
// first packet.
func (c *Chronicle) Begins(f *groupfile.File) *mft.Turn {
	if c.Turn == nil || !c.Switched && !isOf(c.Turn, &f.Source) {
		return nil
	}
	source := c.Turn.Sender()
	if source == nil {
		return c.Turn
	}
	t := *c.Turn
	t.Members = slices.Clone(t.Members)
	for i := range f.Receivers {
		m := &f.Receivers[i]
		if t.Member(mft.QP(m.ID())) != nil {
			continue
		}
		is := mft.Standing{QP: mft.QP(m.ID()), Sender: mft.Sender{NextPSN: m.SendPSN}}
		switch r := c.records[m.ID()]; {
		case r != nil && r.since != nil:
			// It has joined in this turn: its QP expected its first PSN with the source's PSN
			// since.
			is.Expects = m.FirstPSN.Add(source.NextPSN.Sub(*r.since))
		case r == nil && !c.Switched:
			// It has had every packet of the group, by another way until the routes changed.
			is.Expects, is.Messages = m.FirstPSN.Add(source.NextPSN.Sub(f.Source.FirstPSN)), source.Messages
		default:
			continue
		}
		t.Members = append(t.Members, is)
	}
	return &t
}

// Joins returns where receivers of the file have joined in the turn with which a restored group
// begins, if the source may still wait for packets before.
func (c *Chronicle) Joins(f *groupfile.File) (list []mft.Join) {
	for i := range f.Receivers {
		id := f.Receivers[i].ID()
		if r := c.records[id]; r != nil && r.since != nil && r.isOpen() {
			list = append(list, mft.Join{QP: mft.QP(id), PSN: *r.since})
		}
	}
	return list
}

// recallBefore decides what is not known of the packets before the first ones of receivers: an
// earlier release did not store it, and of those that come from another box it is not told. Such a
// receiver counts for these packets only if no quorum is left without it: then they are
// acknowledged, or the source's QP has ended.
func (c *Chronicle) recallBefore(f *groupfile.File) {
	source := mft.QP(f.Source.ID())
	if c.Switched && c.Turn != nil {
		source = c.Turn.Source
	}
	others := 0
	var unknown []*Record
	for i := range f.Receivers {
		m := &f.Receivers[i]
		r := c.records[m.ID()]
		if r != nil && r.Standing == Joined && r.Before == "" && !c.joinedInTurn(f, m, r.PSN) {
			r.Before = Acknowledged
		}
		switch {
		case mft.QP(m.ID()) == source:
		case r == nil || r.Standing == Joined && r.Before == Acknowledged:
			others += m.Weight()
		case r.Standing == Joined && r.Before == "":
			unknown = append(unknown, r)
		}
	}
	for _, r := range unknown {
		if r.Before = Open; others < int(f.Policy.Ack) {
			r.Before = Acknowledged
		}
	}
}

// joinedInTurn reports whether a receiver that has joined with packet psn of a source did so in the
// present turn. If so, its QP has come as far as the source since.
func (c *Chronicle) joinedInTurn(f *groupfile.File, m *groupfile.Member, psn roce.PSN) bool {
	if !c.Switched && psn == f.Source.FirstPSN {
		return false // it has had every packet
	}
	if c.Turn == nil {
		return true
	}
	stood, source := c.Turn.Member(mft.QP(m.ID())), c.Turn.Sender()
	return stood == nil || source == nil || stood.Expects.Sub(m.FirstPSN) == source.NextPSN.Sub(psn)
}

// isOf reports whether it is the turn of a member of the file. A link has another QP when it was
// made anew.
func isOf(t *mft.Turn, m *groupfile.Member) bool {
	return t.Source == mft.QP(m.ID()) || t.Source == (mft.QP{}) && m.Role == groupfile.Source
}

// without returns the turn without the members for which gone is true.
func without(t *mft.Turn, gone func(groupfile.ID) bool) *mft.Turn {
	if t == nil {
		return nil
	}
	next := *t
	next.Members = slices.DeleteFunc(slices.Clone(t.Members), func(m mft.Standing) bool { return gone(groupfile.ID(m.QP)) })
	return &next
}

// keptTurn is the JSON form of a turn.
type keptTurn struct {
	Source  *keptID        `json:"source,omitempty"` // absent: the first source, which only sends
	First   *keptSender    `json:"first,omitempty"`
	Members []keptStanding `json:"members"`
}

type keptStanding struct {
	keptID
	Expects  roce.PSN    `json:"expects"`
	Messages roce.MSN    `json:"messages"`
	Sends    *keptSender `json:"sends,omitempty"`
}

type keptSender struct {
	NextPSN  roce.PSN `json:"nextPSN"`
	Messages roce.MSN `json:"messages"`
	HadTurn  bool     `json:"hadTurn,omitempty"`
	Ended    bool     `json:"ended,omitempty"`
	Forced   bool     `json:"forced,omitempty"`
	Pos      roce.PSN `json:"pos"`
	Back     roce.PSN `json:"back"`
	Awaited  bool     `json:"awaited,omitempty"`
}

func keepSender(s mft.Sender) *keptSender {
	if s == (mft.Sender{}) {
		return nil
	}
	return &keptSender{s.NextPSN, s.Messages, s.HadTurn, s.Ended, s.Forced, s.Round.Pos, s.Round.Back, s.Round.Awaited}
}

func (k *keptSender) sender() mft.Sender {
	if k == nil {
		return mft.Sender{}
	}
	return mft.Sender{
		NextPSN: k.NextPSN, Messages: k.Messages, HadTurn: k.HadTurn, Ended: k.Ended, Forced: k.Forced,
		Round: feedback.Round{Pos: k.Pos, Back: k.Back, Awaited: k.Awaited},
	}
}

func keepTurn(t *mft.Turn) *keptTurn {
	if t == nil {
		return nil
	}
	k := &keptTurn{First: keepSender(t.First)}
	if t.Source != (mft.QP{}) {
		k.Source = &keptID{t.Source.IP, t.Source.RemoteQPN}
	}
	for _, m := range t.Members {
		k.Members = append(k.Members, keptStanding{keptID{m.IP, m.RemoteQPN}, m.Expects, m.Messages, keepSender(m.Sender)})
	}
	slices.SortFunc(k.Members, func(a, b keptStanding) int { return compareIDs(a.keptID, b.keptID) })
	return k
}

func (k *keptTurn) turn() *mft.Turn {
	if k == nil {
		return nil
	}
	t := &mft.Turn{First: k.First.sender()}
	if k.Source != nil {
		t.Source = mft.QP(k.Source.id())
	}
	for _, m := range k.Members {
		t.Members = append(t.Members, mft.Standing{QP: mft.QP(m.id()), Expects: m.Expects, Messages: m.Messages, Sender: m.Sends.sender()})
	}
	return t
}
