package watch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/refused"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// senders is what the last look found of members of a published group whose frames were refused.
type senders struct {
	in      mft.GroupID
	data    uint64                               // dataplane.GroupState.Refused.Count
	sent    uint64                               // dataplane.Traffic.Sent
	strays  map[groups.Sender]*dataplane.Refused // frames that no group counts, since the last look
	watches map[groups.Sender]*watched
}

type watched struct {
	refused.Watch
	frame                 uint64 // of a sender of data: Refused.Count of the last frame that was refused
	answers, acknowledged uint64 // of a receiver, at the last look
}

// lookAtSenders finds the members that do not get on because their frames are refused.
func (w *Watch) lookAtSenders(now time.Time, g *groups.Group, state dataplane.GroupState) {
	s := &w.paceOf(g).senders
	if s.in != g.ID {
		*s = senders{in: g.ID}
		g.Found.Says = nil
	}
	rose := map[groups.Sender]*dataplane.Refused{}
	if f := &state.Refused; f.Count > s.data {
		if l := g.MemberAt(f.From, f.QPN); l != nil {
			rose[groups.Sender{ID: l.Member.ID()}] = f
		}
	}
	for who, f := range s.strays {
		rose[who] = f
	}
	for i := range state.Receivers {
		path := &g.Published.Paths[i]
		who, r := groups.Sender{ID: groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}, Answers: true}, &state.Receivers[i]
		if before := s.watches[who]; r.Refused > 0 && (before == nil || r.Refused > before.answers) {
			rose[who] = &dataplane.Refused{Reason: r.RefusedFor, Port: r.RefusedAt, From: path.Dst, QPN: r.RefusedQPN}
		}
	}
	for who := range rose {
		if s.watches == nil {
			s.watches = map[groups.Sender]*watched{}
		}
		if s.watches[who] == nil {
			s.watches[who] = &watched{}
		}
	}
	says := map[groups.Sender]string{}
	for who, of := range s.watches {
		if g.Leg(who.ID) == nil { // it has left, and may join again with another queue pair
			delete(s.watches, who)
			continue
		}
		of.Step(now, rose[who], s.getsOn(now, g, who, of, rose[who], state))
		if row, frame, ok := of.Trouble(now); ok {
			says[who] = row.Says(w.caseOf(g, who, frame, state))
		}
	}
	g.Found.Says = says
	s.data, s.sent, s.strays = state.Refused.Count, state.Traffic.Sent, nil
}

// getsOn reports whether a member has got on since the last look. A member that sends data has got
// on if, after the last refused frame, its turn has begun or its data was forwarded. A receiver has
// got on if it has acknowledged something, or lacks nothing. One that sends data lives if it
// acknowledges what it gets.
func (s *senders) getsOn(now time.Time, g *groups.Group, who groups.Sender, of *watched, rose *dataplane.Refused, state dataplane.GroupState) bool {
	path := g.Published.FindPath(who.IP, who.RemoteQPN)
	if !who.Answers {
		if who.ID == g.File.Source.ID() {
			path = g.Published.Source.Path // a receiver beside it on its host may have its ID
		}
		turn, sent := state.LastTurn, s.sent
		if path >= 0 && path < len(state.Receivers) {
			turn = state.Receivers[path].LastTurn
			if acknowledged := state.Receivers[path].Acknowledged; acknowledged > of.acknowledged {
				of.acknowledged = acknowledged
				of.Lives(now)
			}
		}
		if rose != nil {
			of.frame, sent = rose.Count, max(sent, rose.Sent)
		}
		return turn.Refused >= of.frame || turn.Sent > sent
	}
	if path < 0 || path >= len(state.Paths) || who.ID == g.Source {
		return true
	}
	p, r := &state.Paths[path], &state.Receivers[path]
	acknowledged := r.Acknowledged > of.acknowledged
	of.answers, of.acknowledged = r.Refused, r.Acknowledged
	takesPart := p.Part == feedback.PartUnknown || p.Part == feedback.PartActive && p.Acked.Before(state.Sent)
	return acknowledged || !takesPart || state.Traffic.Sent == 0 // before the first packet an answer says nothing
}

// caseOf describes the QP of a sender whose frames are refused.
func (w *Watch) caseOf(g *groups.Group, who groups.Sender, frame dataplane.Refused, state dataplane.GroupState) *refused.Case {
	about := &refused.Case{Group: g.Name, MTU: g.File.PathMTU, Port: cmp.Or(w.portName(frame.Port), "PORT"), Lacks: lacks(g, state), OfService: g.OfService(), Frame: frame}
	if l := g.Leg(who.ID); l != nil {
		about.PeerIP, about.PeerQPN, about.PSN = l.Src, l.Member.RemoteQPN, l.Member.FirstPSN
		if !who.Answers && l.Member.Role == groupfile.Both && l.Member.ID() != g.File.Source.ID() {
			about.PSN = l.Member.SendPSN
		} else if !who.Answers {
			about.PSN = g.File.Source.FirstPSN
		}
	}
	return about
}

// lacks names a receiver that has not acknowledged everything of the source, and says how many more
// there are; "": there is none. Receivers that do not answer come first.
func lacks(g *groups.Group, state dataplane.GroupState) string {
	var silent, l view.Blamed
	for i := range state.Paths {
		p, path := &state.Paths[i], &g.Published.Paths[i]
		name := path.Dst.String()
		if leg := g.Leg(groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}); leg != nil {
			name = g.NameOf(leg.Member)
		}
		switch {
		case p.Part == feedback.PartUnknown && !p.Told:
			silent.Add(name, "it has not answered since rocastd began")
		case p.Part == feedback.PartUnknown:
			l.Add(name, fmt.Sprintf("it has acknowledged everything up to PSN %d", p.Acked))
		case view.IsWaitedFor(p.Part) && p.Acked.Before(state.Sent):
			l.Add(name, fmt.Sprintf("it has acknowledged everything up to PSN %d, and the source has sent %d", p.Acked, state.Sent))
		}
	}
	silent.AddAll(l)
	return silent.String()
}

func (w *Watch) portName(id mft.PortID) string {
	for name, p := range w.Groups.Ports() {
		if p.ID == id {
			return name
		}
	}
	return ""
}
