package watch

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/refused"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
)

// lookAtStraysEvery is the time between two looks at what is refused beside the groups. A look asks
// every worker.
const lookAtStraysEvery = time.Second

// strays counts frames that the box has refused and that no member of a group has sent, as far as
// the box knows. It also counts frames for which the box is not set up. Each reason, and each
// counter of the classifier, has an entry.
type strays struct {
	counts map[strayKind]uint64
	kinds  map[string]*strayOf
}

type strayKind struct {
	worker int
	reason dataplane.Reason
}

type strayOf struct {
	refused.Rising
	row  refused.Row
	says string // with the last frame
	told bool
}

// lookAtStrays looks at the frames that were refused and that no group counts.
func (w *Watch) lookAtStrays(now time.Time) {
	list, verdicts := w.Switch.Astray(), w.Switch.Verdicts() // asks the workers, so the groups are not locked
	w.Groups.Lock()
	defer w.Groups.Unlock()
	s := &w.strays
	if s.kinds == nil {
		s.counts, s.kinds = map[strayKind]uint64{}, map[string]*strayOf{}
	}
	for i := range list {
		f := &list[i]
		kind := strayKind{f.Worker, f.Reason}
		rose := f.Count > s.counts[kind]
		s.counts[kind] = f.Count
		if row := refused.Of(f.Reason); rose && row.Says != nil && !w.isMembers(&f.Refused) {
			k := s.kind(f.Reason.String(), row)
			k.says = w.strayText(&f.Refused, row)
			k.Step(now, k.Count()+1)
		}
	}
	for _, v := range verdicts {
		if row, _ := refused.OfVerdict(v.Name); row.Says != nil {
			k := s.kind(v.Name, row)
			k.says = row.Says(&refused.Case{})
			k.Step(now, v.Value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		k := s.kinds[name]
		is := k.Trouble(now, k.row.Whose == refused.Box)
		if is && !k.told {
			w.Log.Warn("frames are refused", zap.String("counter", name), zap.String("reason", k.says))
			w.Groups.AddEvent(api.Event{Kind: api.FramesRefused, Cause: fmt.Sprintf("%s: %s", name, k.says)})
		}
		k.told = is
	}
	w.seenStrays.Store(new(s.seen()))
}

func (s *strays) kind(name string, row refused.Row) *strayOf {
	if s.kinds[name] == nil {
		s.kinds[name] = &strayOf{row: row}
	}
	return s.kinds[name]
}

// isMembers reports whether a frame that no group counts comes from a member that may not get on
// because of that, and notes the frame at the member. A source whose packets arrive has sent the
// frame by another QP, so it does not count.
func (w *Watch) isMembers(f *dataplane.Refused) bool {
	if refused.Of(f.Reason).Whose != refused.Member || !f.From.IsValid() {
		return false
	}
	found := false
	for _, g := range w.Groups.All() {
		if g.Published == nil || g.File.IP != f.To {
			continue
		}
		l, s := g.MemberAt(f.From, f.QPN), &w.paceOf(g).senders
		if l == nil || g.IsSource(l.Member) && s.sent > 0 && f.Reason != dataplane.OverMTU {
			continue
		}
		if s.strays == nil {
			s.strays = map[groups.Sender]*dataplane.Refused{}
		}
		stray := *f
		stray.Count = math.MaxUint64 // it is not known whether the group has refused others since
		s.strays[groups.Sender{ID: l.Member.ID(), Answers: !g.IsSource(l.Member)}] = &stray
		found = true
	}
	return found
}

func (w *Watch) strayText(f *dataplane.Refused, row refused.Row) string {
	from := "an unknown host"
	if f.From.IsValid() {
		from = f.From.String()
	}
	return fmt.Sprintf("from %s by %s: %s", from, cmp.Or(w.portName(f.Port), "a port that has gone"), row.Says(&refused.Case{Port: w.portName(f.Port), Frame: *f}))
}

// seen returns the entries in the order of their names.
func (s *strays) seen() (list []view.Stray) {
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		k := s.kinds[name]
		list = append(list, view.Stray{Name: name, Count: k.Rising, OfBox: k.row.Whose == refused.Box, Says: k.says})
	}
	return list
}
