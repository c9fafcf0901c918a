package watch

import (
	"errors"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/feedback"
)

// keeping says how far a group's next turn is: it is stored before it begins.
type keeping struct {
	marked     bool // etcd knows that another member is, or wants to be, the source
	marking    bool // etcd is being told that
	unsure     bool // a turn may be stored that has not begun
	notRenewed bool // the running turn could not be stored again, and the log says so
}

// takeTurn stores the turn that a member waits for, and lets it begin. After a crash behind the
// first packet of a turn that was not stored, the daemon would restore the turn before, and
// receivers would take new packets for old ones. If the turn cannot be stored, the source before
// goes on, and the next packet of the member asks again. If it may be stored, no source goes on
// before it is, and control tries again by itself: see retryTurn.
func (w *Watch) takeTurn(g *groups.Group) {
	if w.closed || g.Published == nil {
		return
	}
	k := &w.paceOf(g).keeping
	if w.Mark != nil && g.Branch == nil && !k.marked && !g.Past.Switched {
		w.markSwitches(g)
		return
	}
	turn, ok := w.Switch.NextTurn(g.ID)
	if !ok {
		return
	}
	w.Groups.Observe(g) // else a restart would let a receiver that is out take part, from its PSN in an earlier turn
	before := g.Past.Share()
	g.Past.Take(&turn)
	if err := w.Groups.SaveChronicle(g); err != nil {
		g.Past = before
		w.turnNotStored(g, err)
		return
	}
	g.Source, k.unsure = groupfile.ID(turn.Source), false
	w.Groups.Changed(g)
	w.Switch.BeginTurn(g.ID, true)
}

func (w *Watch) turnNotStored(g *groups.Group, err error) {
	switch k := &w.paceOf(g).keeping; {
	case k.unsure: // and the log says so
	case errors.Is(err, store.ErrUnsynced):
		k.unsure = true
		w.Log.Error("could not make sure that a crash keeps who is the source; nothing is forwarded until it is stored, and rocastd tries again every 250 ms",
			zap.String("group", g.Name), zap.Error(err))
	default:
		w.Log.Error("could not store that another member is the source; the source stays, and rocastd tries again with the member's next packet",
			zap.String("group", g.Name), zap.Error(err))
		w.Switch.BeginTurn(g.ID, false)
	}
}

// retryTurn tries again to store and begin a turn, if the disk may have it already. If no member
// waits for that turn any more, the turn before is stored again.
func (w *Watch) retryTurn(g *groups.Group) {
	k := &w.paceOf(g).keeping
	if !k.unsure || w.closed {
		return
	}
	if w.takeTurn(g); !k.unsure {
		return
	}
	if _, waits := w.Switch.NextTurn(g.ID); !waits && w.Groups.SaveChronicle(g) == nil {
		k.unsure = false
	}
}

// keepUp stores what the data path has shown of receivers. While the disk may have a turn that has
// not begun, retryTurn stores both.
func (w *Watch) keepUp(g *groups.Group) {
	if !w.paceOf(g).keeping.unsure {
		w.Groups.KeepUp(g)
	}
}

// renewAfter is after how many packets of a turn the turn is stored again, with the PSN that the
// source has reached. A restart asks the receivers with a packet of the stored PSN, which they take
// for an old one only up to 2^23 packets later. Looks at the progress are frequent enough for that
// on any link.
const renewAfter = 1 << 20

// renewTurn stores the running turn again, if the source has come far since it was stored or its QP
// has ended. No packet waits for that. If it cannot be stored, what was stored before is still
// true, and the next look tries again.
func (w *Watch) renewTurn(g *groups.Group, s feedback.Snapshot) {
	k := &w.paceOf(g).keeping
	ahead := s.Merged.Sub(g.Past.From(g.File))
	if near := ahead < renewAfter && ahead >= -feedback.Window; !s.Started || near && (!s.Ended || g.Past.SourceEnded()) || k.unsure || w.closed {
		return
	}
	before := g.Past.Turn
	if !w.Groups.RenewRecord(g) {
		return
	}
	err := w.Groups.SaveChronicle(g)
	if err != nil {
		g.Past.Renew(before)
	}
	if err != nil && !k.notRenewed {
		w.Log.Error("could not store how far a group has come; rocastd tries again every 250 ms. After a crash no other member may become the source",
			zap.String("group", g.Name), zap.Error(err))
	}
	k.notRenewed = err != nil
}

// markSwitches says in etcd that the source of a group switches, before it does so for the first
// time. Only the state directory of this box has the turns, so no other box may take the group over
// from then on.
func (w *Watch) markSwitches(g *groups.Group) {
	k := &w.paceOf(g).keeping
	if k.marking {
		return
	}
	k.marking = true
	name := g.Name
	go func() {
		err := w.Mark(g)
		w.Groups.Lock()
		defer w.Groups.Unlock()
		k.marking = false
		if err != nil {
			w.Log.Warn("another member waits to be the source until the other boxes can be told; rocastd tries again with its next packet",
				zap.String("group", name), zap.Error(err))
			return
		}
		k.marked = true
		if w.Groups.Named(name) == g {
			w.takeTurn(g)
		}
	}()
}
