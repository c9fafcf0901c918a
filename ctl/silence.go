package ctl

import (
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

const (
	// doubtAfter is how long a receiver may owe an answer before its MAC is asked for: its host may
	// have another one, and may have told nobody. A receiver that is there answers much sooner, and
	// most QPs retry for longer. Each pause until the next request is twice as long.
	doubtAfter = 500 * time.Millisecond
	// doubtPause is the longest pause between two requests.
	doubtPause = 8 * time.Second
)

// silences are the receivers of one group of the data path that owe an answer to one source.
type silences struct {
	in     mft.GroupID
	source groupfile.ID
	of     map[groupfile.ID]silence
}

// silence is a receiver that owes an answer.
type silence struct {
	acked roce.PSN
	naks  uint64        // with RNR NAKs
	since time.Time     // when it was heard last, or its MAC was asked for
	pause time.Duration // after which its MAC is asked for
}

// silentHosts returns the hosts whose MACs should be asked for, since their receivers owe an answer
// for too long.
func (g *group) silentHosts(now time.Time, state dataplane.GroupState) (hosts []netip.Addr) {
	was := g.pace.silences
	if was.in != g.ID || was.source != g.Source {
		was.of = nil // in another PSN space nobody is where it was
	}
	is := map[groupfile.ID]silence{}
	for i := range state.Paths {
		s, r, path := &state.Paths[i], &state.Receivers[i], &g.Published.Paths[i]
		if !state.Started || !state.Sent.After(s.Acked) || s.Part != feedback.PartActive && s.Part != feedback.PartUnknown {
			continue
		}
		id := groupfile.ID{IP: path.Dst, RemoteQPN: path.RemoteQPN}
		owes, known := was.of[id]
		switch naks := r.NAKs + r.RNRs; {
		case !known || owes.acked != s.Acked || owes.naks != naks:
			owes = silence{acked: s.Acked, naks: naks, since: now, pause: doubtAfter}
		case now.Sub(owes.since) >= owes.pause:
			hosts = append(hosts, path.Dst)
			owes.since, owes.pause = now, min(2*owes.pause, doubtPause)
		}
		is[id] = owes
	}
	g.pace.silences = silences{g.ID, g.Source, is}
	return hosts
}
