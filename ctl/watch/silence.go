package watch

import (
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	// doubtAfter is how long a member may give no sign that it hears the box before its MAC is
	// asked for: its host may have got another MAC without telling anybody. A member that hears the
	// box gives a sign much sooner, and most QPs retry for longer than this. Each pause until the
	// next request is twice as long as the one before.
	doubtAfter = 500 * time.Millisecond
	// doubtPause is the longest pause between two requests.
	doubtPause = 8 * time.Second
)

// silences are the members of one group of the data path that may not hear the box.
type silences struct {
	in     mft.GroupID
	source groupfile.ID
	sender silence // the source
	of     map[groupfile.ID]silence
}

// silence is a receiver that owes an answer, or the source, which owes its next packet.
type silence struct {
	at    roce.PSN      // of a receiver: what it has acknowledged; of the source: what it has sent
	count uint64        // of a receiver: its NAKs, also those of RNR; of the source: packets that it has resent
	since time.Time     // when it was heard last, or its MAC was asked for
	pause time.Duration // after which its MAC is asked for
}

// begins returns the silence of a member that was just heard.
func begins(now time.Time, at roce.PSN, count uint64) silence {
	return silence{at: at, count: count, since: now, pause: doubtAfter}
}

// isDoubted reports whether the MAC is asked for now, since the silence lasts for too long.
func (s *silence) isDoubted(now time.Time) bool {
	if now.Sub(s.since) < s.pause {
		return false
	}
	s.since, s.pause = now, min(2*s.pause, doubtPause)
	return true
}

// silentHosts returns the hosts whose MACs should be asked for: of receivers that owe an answer for
// too long, and of the source if it resends packets of which it was told that all receivers have
// them. s has what the last look saw, and then what this one sees.
func silentHosts(g *groups.Group, s *silences, now time.Time, state dataplane.GroupState) (hosts []netip.Addr) {
	was := *s
	if was.in != g.ID || was.source != g.Source {
		was.of, was.sender = nil, silence{} // the last look saw PSNs of another space
	}
	is := map[groupfile.ID]silence{}
	for i := range state.Paths {
		p, r, path := &state.Paths[i], &state.Receivers[i], &g.Published.Paths[i]
		if !state.Started || !state.Sent.After(p.Acked) || p.Part != feedback.PartActive && p.Part != feedback.PartUnknown {
			continue
		}
		id := groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}
		owes, known := was.of[id]
		if naks := r.NAKs + r.RNRs; !known || owes.at != p.Acked || owes.count != naks {
			owes = begins(now, p.Acked, naks)
		} else if owes.isDoubted(now) {
			hosts = append(hosts, path.Dst)
		}
		is[id] = owes
	}
	if was.sender.ignoresAnswers(now, state) {
		hosts = append(hosts, sourceIP(g))
	}
	*s = silences{g.ID, g.Source, was.sender, is}
	return hosts
}

// ignoresAnswers reports whether the source's MAC is asked for now: for too long, the source has
// sent nothing new, and it has resent packets of which it was told that all receivers have them.
func (s *silence) ignoresAnswers(now time.Time, state dataplane.GroupState) bool {
	again := state.Counters[feedback.Resent].Value + state.Counters[feedback.Filtered].Value
	switch {
	case !state.Started || s.since.IsZero() || s.at != state.Sent:
		*s = begins(now, state.Sent, again)
	case state.Merged != state.Sent:
		s.count = again // what a receiver lacks has to be resent
	case again != s.count && s.isDoubted(now):
		s.count = again
		return true
	}
	return false
}

// sourceIP is the address of the host that sends.
func sourceIP(g *groups.Group) netip.Addr {
	if g.Source.IP.IsValid() {
		return g.Source.IP
	}
	return g.File.Source.IP
}
