package nexthop

import (
	"net/netip"
	"time"
)

// doubtEvery is the shortest time between two requests for a neighbour that is doubted.
const doubtEvery = time.Second

// doubted is a neighbour on an interface.
type doubted struct {
	ifIndex int
	ip      netip.Addr
}

// Doubt makes the kernel ask everybody on the link for the MAC of a tracked address whose host is
// silent. A host whose MAC has changed may have told nobody, and does not hear the requests that
// the kernel sends to the old MAC for some seconds first. The hop that is known stays in use until
// somebody answers. A MAC that somebody has written is left alone.
func (t *Tracker) Doubt(addr netip.Addr) { t.doubt(addr, time.Now()) }

func (t *Tracker) doubt(addr netip.Addr, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.targets[addr]
	if x == nil || x.Interface == 0 || x.Down {
		return // there is nobody to ask
	}
	for d, at := range t.doubts {
		if now.Sub(at) >= doubtEvery {
			delete(t.doubts, d)
		}
	}
	d := doubted{x.Interface, x.next}
	if _, recently := t.doubts[d]; recently || len(t.doubts) >= maxAsks {
		return
	}
	n, err := t.kernel.neighbour(d.ifIndex, d.ip)
	if err != nil || n.state == fixed || n.state == incomplete {
		return
	}
	t.doubts[d] = now
	// An error means that the interface has gone, and the kernel notifies about that.
	if n.state != usable || t.kernel.forget(d.ifIndex, d.ip) == nil {
		_ = t.kernel.solicit(d.ifIndex, d.ip)
	}
}
