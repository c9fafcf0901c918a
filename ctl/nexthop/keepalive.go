package nexthop

import "net/netip"

// The kernel does not see the frames rocast carries. Left alone its neighbour entries go stale and are collected, and a
// bridge forgets a host after five minutes (ageing_time). Asking for every neighbour once a minute keeps both fresh: the
// kernel probes a stale entry with a unicast request, and the answer passes the bridge.
const (
	askKnownEvery   = 60 // seconds between two requests for a known hop
	askUnknownEvery = 5  // and for one that is not known yet
	maxAsks         = 64 // a second, for all; what does not fit waits for its next turn
)

// keepAlive does second n's share of asking. It returns the addresses whose hop is another one now.
func (t *Tracker) keepAlive(n int) (changed []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	asks := 0
	for addr, x := range t.targets {
		every := askKnownEvery
		switch {
		case x.owed:
			every = 1
		case !x.Known() || x.Reason != "":
			every = askUnknownEvery
		}
		if (n+x.turn)%every != 0 {
			continue
		}
		if asks++; asks > maxAsks {
			break
		}
		if x.Known() && x.Reason == "" {
			// An error shows at the next change: it is the interface's, and its going is notified.
			_ = t.kernel.solicit(x.Interface, x.next)
		} else if t.resolveAgain(addr, x, true) {
			changed = append(changed, addr)
		}
	}
	return changed
}
