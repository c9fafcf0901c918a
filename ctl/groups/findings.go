package groups

import (
	"maps"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/goodput"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
)

// Findings is what the last look at a running group found of its progress. Its maps are replaced,
// and never changed.
type Findings struct {
	Degraded bool
	Goodput  *api.Goodput          // nil: not known yet
	Seen     string                // what is seen of the group while it is degraded
	Last     string                // who is furthest behind then
	AtFloor  map[groupfile.ID]bool // the receivers for which the source's packets wait
	Stalled  map[groupfile.ID]bool
	Repairs  map[groupfile.ID]RepairTrouble
	Refusals Refusals
	DeadLegs string // which shared legs reach nobody, or ""
	// SilentEdges are the receivers whose edges have stopped asking, and for how long.
	SilentEdges map[groupfile.ID]time.Duration
	// FailingEdges are the receivers whose edges cannot load a mapping, and why.
	FailingEdges map[groupfile.ID]string

	Says    map[Sender]string // the trouble of members that do not get on because their frames are refused
	History goodput.History   // how many packets the source had sent when (dataplane.Traffic.Sent)
	In      mft.GroupID       // of which History is
}

// Refusals are the receivers of a published group whose QPs have ended with a fatal NAK.
type Refusals struct {
	In    mft.GroupID             // of which Cause is
	Cause map[groupfile.ID]string // why, in a sentence
}

// RepairTrouble says since when a receiver gets its data by repair alone, or waits for the source.
// The zero value is that of a receiver that gets new data directly.
type RepairTrouble struct {
	Repairing, Unmended time.Time // zero: it is not the case
	Kind, Cause         string    // why the group is degraded because of it, or ""
}

// Sender is a member that sends data, or one that answers.
type Sender struct {
	groupfile.ID
	Answers bool // it is a receiver
}

// Since returns how far the source of a published group was at earlier times, and is now.
func (f *Findings) Since(now time.Time, id mft.GroupID, sent uint64) goodput.History {
	if f.In != id {
		return goodput.History{}.With(now, sent)
	}
	return f.History.With(now, sent)
}

// Add notes that the QP of a receiver has ended. in is the group in the data path.
func (r *Refusals) Add(in mft.GroupID, id groupfile.ID, cause string) {
	next := map[groupfile.ID]string{}
	if r.In == in {
		maps.Copy(next, r.Cause)
	}
	next[id] = cause
	r.In, r.Cause = in, next
}
