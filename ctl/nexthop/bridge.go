package nexthop

import (
	"fmt"
	"time"
)

// cross finds the port through which a frame leaves a bridge, and sets the VLAN tag that the frame
// has there.
//
// A bridge without VLAN filtering passes tags unchanged and learns MACs without regard to them. A
// bridge with VLAN filtering removes the tag (or uses the bridge's own PVID for an untagged frame),
// looks up the MAC in that VLAN, and adds a tag unless the port sends the VLAN untagged. This code
// assumes that such a bridge uses 802.1Q, the kernel's default.
func (w *walk) cross(bridge link) (port int, doubt string, err error) {
	var in tag
	if bridge.vlanFiltering {
		if in, err = w.vlanInto(bridge); err != nil {
			return 0, "", err
		}
	}
	if port, doubt, err = w.learnedPort(bridge, in.vid); err != nil {
		return 0, "", err
	}
	w.at.bridge, w.at.bridgePort = bridge.index, port
	if bridge.vlanFiltering {
		err = w.vlanOut(bridge, port, in)
	}
	return port, doubt, err
}

// learnedPort looks up the next hop in the bridge's FDB. If the FDB has forgotten a learned port,
// that port stays in use while it belongs to the bridge.
func (w *walk) learnedPort(bridge link, vid uint16) (port int, doubt string, err error) {
	mac := w.at.mac
	port, err = w.kernel.bridgePort(bridge.index, mac, vid)
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("look up %v in the FDB of %s: %w", mac, bridge.name, err)
	case port == bridge.index:
		return 0, "", fmt.Errorf("%v has the MAC %v, which is %s's own", w.next, mac, bridge.name)
	case port != 0:
		return port, "", nil
	}
	failure := ""
	if err := w.probe(); err != nil {
		failure = fmt.Sprintf("; the request to the host failed (%v)", err)
	}
	if w.seen.mac == mac && w.seen.bridge == bridge.index && w.isPortOf(bridge, w.seen.bridgePort) {
		return w.seen.bridgePort, fmt.Sprintf("%s no longer knows the port of %v (%v)%s", bridge.name, mac, w.next, failure), nil
	}
	return 0, "", fmt.Errorf("%s does not know the port of %v (%v)%s; it learns the port from the host's next frame",
		bridge.name, mac, w.next, failure)
}

// isPortOf reports whether an interface is a port of the bridge. The walk subscribes to the
// interface in any case: a former port may become a port again.
func (w *walk) isPortOf(bridge link, ifIndex int) bool {
	w.about(subject{link: ifIndex})
	l, err := w.kernel.link(ifIndex)
	return err == nil && l.master == bridge.index
}

// probe makes the kernel send a request to a neighbour with a known MAC, because a bridge learns
// the port from the answer. The kernel sends such a request by itself only after it has not heard
// from the host for a while. A neighbour with an unknown MAC needs no probe: the kernel has been
// asked for it already.
func (w *walk) probe() error {
	if w.state != usable {
		return nil
	}
	w.asked = true
	now := time.Now()
	if w.owed = now.Sub(w.probed) < probeEvery; w.owed {
		return nil
	}
	w.probed = now
	return w.kernel.probe(w.Interface, w.next)
}

func (w *walk) vlanInto(bridge link) (in tag, err error) {
	if in, tagged := w.tags.pop(protocol8021Q); tagged {
		return in, nil
	}
	vlans, err := w.kernel.vlans(bridge.index)
	if err != nil {
		return in, fmt.Errorf("look up the VLANs of %s: %w", bridge.name, err)
	}
	for _, v := range vlans {
		if v.pvid {
			return tag{protocol: protocol8021Q, vid: v.vid}, nil
		}
	}
	return in, fmt.Errorf("bridge %s filters VLANs and is in none itself without a tag; "+
		"add it with bridge vlan add dev %s vid N pvid untagged self", bridge.name, bridge.name)
}

func (w *walk) vlanOut(bridge link, port int, in tag) error {
	l, err := w.link(port)
	if err != nil {
		return err
	}
	vlans, err := w.kernel.vlans(port)
	if err != nil {
		return fmt.Errorf("look up the VLANs of %s: %w", l.name, err)
	}
	for _, v := range vlans {
		if v.vid == in.vid && v.untagged {
			return nil
		}
		if v.vid == in.vid {
			return w.tags.push(in)
		}
	}
	return fmt.Errorf("port %s of %s is not in VLAN %d; add it with bridge vlan add dev %s vid %d",
		l.name, bridge.name, in.vid, l.name, in.vid)
}
