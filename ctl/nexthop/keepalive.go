package nexthop

import "net/netip"

// The kernel does not see the frames that rocast carries. Without help its neighbour entries become
// stale and are removed, and a bridge forgets a host after five minutes (ageing_time). One request
// per minute and neighbour keeps both fresh: the kernel probes a stale entry with a unicast
// request, and the answer passes through the bridge.
const (
	askKnownEvery   = 60 // seconds between two requests for a known hop
	askUnknownEvery = 5  // seconds between two requests for an unknown hop
	maxAsks         = 64 // requests per second for all addresses; the rest wait for their next round
	// hurryFor is for how many seconds after a change of links or routes every unknown hop is asked
	// for each second: a host whose cable or route has moved may be there by now. The kernel asks
	// three times within three seconds and then no more, and a QP of the source survives only some
	// seconds without an answer.
	hurryFor = 10
)

// keepAlive sends the requests that are due in second n. It returns the addresses whose next hop
// changed.
func (t *Tracker) keepAlive(n int) (changed []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	asks := 0
	ask := func(addr netip.Addr, x *target) {
		if asks++; asks > maxAsks {
			return
		}
		if x.Known() && x.Reason == "" {
			// An error here needs no handling: it means that the interface has gone, and the kernel
			// notifies about that.
			_ = t.kernel.solicit(x.Interface, x.next)
		} else if t.resolveAgain(addr, x, true) {
			changed = append(changed, addr)
		}
	}
	var others []netip.Addr // whose phase it is not
	for addr, x := range t.targets {
		every, isUnknown := askKnownEvery, !x.Known() || x.Reason != ""
		switch {
		case x.owed:
			every = 1
		case isUnknown:
			every = askUnknownEvery
		}
		if (n+x.phase)%every == 0 {
			ask(addr, x)
		} else if isUnknown && t.hurry > 0 {
			others = append(others, addr)
		}
	}
	for _, addr := range others {
		ask(addr, t.targets[addr])
	}
	t.hurry = max(t.hurry-1, 0)
	return changed
}
