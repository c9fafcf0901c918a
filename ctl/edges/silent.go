package edges

import "time"

// silentAfter is the time after the end of a question without a new one after which an edge is
// silent. An edge asks again 8 s after a failure at the latest (cmd/rocast-edge/agent).
const silentAfter = 10 * time.Second

// Silent returns for how long the edge has been silent; 0: it is not.
func (e *Edge) Silent(now time.Time) time.Duration {
	at, q := e.Last()
	if silent := now.Sub(at); silent > time.Duration(q.Wait)*time.Millisecond+silentAfter {
		return silent
	}
	return 0
}
