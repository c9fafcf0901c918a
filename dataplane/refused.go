package dataplane

import (
	"net/netip"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Refused is what the core knows of frames that it refused. Control finds out whose trouble they
// are.
type Refused struct {
	Count  uint64
	Reason Reason // of the last one
	Read   bool   // the last one was a READ or an atomic request
	// Sent is Traffic.Sent of the group when the last one came. If it has grown since then, data
	// has been forwarded behind that frame.
	Sent uint64

	// Where the last one came from and what it was sent to. A frame that is malformed has only a
	// port.

	From, To netip.Addr
	QPN      roce.QPN
	Port     mft.PortID
}

// Astray is a Refused of frames that no member of the group sent, or that belong to no group, of
// one reason, as one worker has seen it.
type Astray struct {
	Worker int
	Refused
}

// Refuses reports whether a frame with this reason did not do what its sender wanted, and may tell
// what is wrong with the sender. A receiver whose QP has another first PSN than the group file says
// may give nothing but stale answers.
func (r Reason) Refuses() bool { return refuses[r] }

var refuses = func() (list [NumReasons]bool) {
	for r := range list {
		list[r] = Reason(r).Verdict() == Drop
	}
	list[RefusedMemory], list[feedback.Refused], list[feedback.Stale], list[SourceWaits] = true, true, true, true
	return list
}()

// strays has, for each reason, the refused frames that were sent by no member of a group.
type strays [NumReasons]Refused

// refuse notes a frame of a group that was refused: with the member that sent it, or else here.
func (s *strays) refuse(st *state, f *Frame, r Reason) {
	g, v, head := st.group, &f.View, f.Head()
	if r == Malformed {
		s[r].note(f, r, false)
		return
	}
	src := v.SrcIP(head)
	path := g.FindMember(src)
	isAnswer := v.Opcode.IsResponse() || v.Opcode == roce.OpCNP
	if exact := g.FindPath(src, v.DestQPN(head)); exact >= 0 {
		path = exact
	}
	switch {
	case isAnswer && path >= 0:
		t := &st.tallies[path]
		t.refused++
		t.refusedFor, t.refusedAt, t.refusedQPN = r, f.Port, v.DestQPN(head)
	case !isAnswer && (path >= 0 || src == g.Source.Dst):
		if last := &st.refused; r == Reason(feedback.Refused) && last.Reason == RefusedMemory && last.From == src {
			r = RefusedMemory // the packets behind a refused one have no reason of their own
		}
		st.refused.note(f, r, true)
		st.refused.Sent = st.traffic.Sent
	default:
		s[r].note(f, r, true)
	}
}

// note notes a frame that was refused before the state of its group was asked.
func (s *strays) note(f *Frame, r Reason) {
	err := f.View.Decode(f.Head(), f.Len())
	s[r].note(f, r, err == nil || err == roce.ErrOpcode)
}

// note counts a frame. decoded reports whether its View is valid.
func (n *Refused) note(f *Frame, r Reason, decoded bool) {
	n.Count, n.Reason, n.Port = n.Count+1, r, f.Port
	n.From, n.To, n.QPN, n.Read = netip.Addr{}, netip.Addr{}, 0, false
	if decoded {
		v, head := &f.View, f.Head()
		n.Read = v.Opcode.IsRequest() && (v.Opcode.IsRead() || v.Opcode.IsAtomic())
		n.From, n.To, n.QPN = v.SrcIP(head), v.DstIP(head), v.DestQPN(head)
	}
}

// Astray returns what is known of refused frames that no member of the group sent, or that belong
// to no group: for each worker and reason that has some.
func (s *Switch) Astray() (list []Astray) {
	for i, w := range s.workers {
		s.do(w, func(w *Worker) {
			for r := range w.core.astray {
				if n := &w.core.astray[r]; n.Count > 0 {
					list = append(list, Astray{Worker: i, Refused: *n})
				}
			}
		})
	}
	return list
}
