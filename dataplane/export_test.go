package dataplane

// Sleep is what an idle worker does.
func Sleep(w *Worker) { w.sleep() }

// Room of the rings between workers.
const (
	HandoverFrames = handoverFrames
	HandoverBytes  = handoverBytes
)
