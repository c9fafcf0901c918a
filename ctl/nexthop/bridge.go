package nexthop

import (
	"fmt"
	"time"
)

// cross finds the port by which a frame leaves a bridge, and sets the tag it has there.
//
// A bridge that does not filter VLANs passes tags as they are and learns MACs without regard to them. One that does takes
// the tag off (or assumes the bridge's own PVID), looks the MAC up in that VLAN, and puts a tag on again unless the port
// sends the VLAN untagged. Such bridges are taken to use 802.1Q, which is what they do unless told otherwise.
func (w *walk) cross(bridge link) (port int, doubt string, err error) {
	vid := uint16(0)
	if bridge.vlanFiltering {
		if vid, err = w.vlanInto(bridge); err != nil {
			return 0, "", err
		}
	}
	if port, doubt, err = w.learnedPort(bridge, vid); err != nil {
		return 0, "", err
	}
	w.at.bridge, w.at.bridgePort = bridge.index, port
	if bridge.vlanFiltering {
		err = w.vlanOut(bridge, port, vid)
	}
	return port, doubt, err
}

// learnedPort looks the next hop up in the bridge's FDB. A port that was learned and forgotten is kept while it is the bridge's.
func (w *walk) learnedPort(bridge link, vid uint16) (port int, doubt string, err error) {
	mac := w.at.mac
	port, err = w.kernel.bridgePort(bridge.index, mac, vid)
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("look %v up in the FDB of %s: %w", mac, bridge.name, err)
	case port == bridge.index:
		return 0, "", fmt.Errorf("%v has the MAC %v, which is %s's own", w.next, mac, bridge.name)
	case port != 0:
		return port, "", nil
	}
	reason := fmt.Sprintf("%s has not learned behind which port %v (%v) is", bridge.name, mac, w.next)
	if err := w.probe(); err != nil {
		reason += fmt.Sprintf(", and asking it failed (%v)", err)
	}
	if w.seen.mac == mac && w.seen.bridge == bridge.index && w.isPortOf(bridge, w.seen.bridgePort) {
		return w.seen.bridgePort, reason + " any more", nil
	}
	return 0, "", fmt.Errorf("%s; it will when the host sends anything", reason)
}

// isPortOf says whether an interface is a port of the bridge. One that was may become it again: that concerns this walk.
func (w *walk) isPortOf(bridge link, ifIndex int) bool {
	w.about(subject{link: ifIndex})
	l, err := w.kernel.link(ifIndex)
	return err == nil && l.master == bridge.index
}

// probe makes the kernel send a request to a neighbour whose MAC it knows: it does so by itself only when it has not heard
// of the host for a while, and a bridge learns from the answer. One it does not know was asked for already.
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

func (w *walk) vlanInto(bridge link) (vid uint16, err error) {
	if vid, tagged := w.tags.pop(protocol8021Q); tagged {
		return vid, nil
	}
	vlans, err := w.kernel.vlans(bridge.index)
	if err != nil {
		return 0, fmt.Errorf("look the VLANs of %s up: %w", bridge.name, err)
	}
	for _, v := range vlans {
		if v.pvid {
			return v.vid, nil
		}
	}
	return 0, fmt.Errorf("bridge %s filters VLANs and is in none itself without a tag; "+
		"add it with bridge vlan add dev %s vid N pvid untagged self", bridge.name, bridge.name)
}

func (w *walk) vlanOut(bridge link, port int, vid uint16) error {
	l, err := w.link(port)
	if err != nil {
		return err
	}
	vlans, err := w.kernel.vlans(port)
	if err != nil {
		return fmt.Errorf("look the VLANs of %s up: %w", l.name, err)
	}
	for _, v := range vlans {
		if v.vid == vid && v.untagged {
			return nil
		}
		if v.vid == vid {
			return w.tags.push(tag{protocol: protocol8021Q, vid: vid})
		}
	}
	return fmt.Errorf("port %s of %s is not in VLAN %d; add it with bridge vlan add dev %s vid %d",
		l.name, bridge.name, vid, l.name, vid)
}
