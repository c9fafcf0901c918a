package dataplane

import "github.com/rocast/rocast/mft"

// Sleep is what an idle worker does.
func Sleep(w *Worker) { w.sleep() }

// HasState says whether the worker keeps merging state of the group.
func HasState(w *Worker, id mft.GroupID) bool { return w.core.stateOf(id) != nil }

// Timed says whether the worker has groups that depend on time passing.
func Timed(w *Worker) bool { return w.core.Timed() }

// Room of the rings between workers.
const (
	HandoverFrames = handoverFrames
	HandoverBytes  = handoverBytes
)
