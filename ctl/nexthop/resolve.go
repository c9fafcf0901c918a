package nexthop

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// maxDepth bounds the interfaces below a route: VLAN on bridge on VLAN on port is already a rare sight.
const maxDepth = 8

// finding is a hop with what it was derived from.
type finding struct {
	Hop
	next     netip.Addr // the neighbour: the address itself or a gateway
	seen     sighting   // by the last finding that knew the port: this one, or one before
	subjects []subject  // what would make another finding if it changed
	asked    bool       // the kernel was asked and has not answered yet
	probed   time.Time  // see probeEvery
	owed     bool       // a probe was put off because of it
}

// sighting is where a neighbour was seen. It outlives findings that fail, so that a way that is interrupted is known again
// as soon as it is whole, and not only when the host speaks: what it says by RoCE the kernel does not hear.
type sighting struct {
	on         int // ifindex of the interface the route names
	next       netip.Addr
	mac        MAC
	bridge     int // the last bridge on the way down
	bridgePort int // and its port
}

// probeEvery is the least time between two requests to probe one neighbour. The kernel tells of what a probe does, each such
// notification leads back here, and between two of ours it repeats the probe itself.
const probeEvery = time.Second

// subject is a thing the kernel notifies about: one field is set.
type subject struct {
	addr netip.Addr // a neighbour
	mac  MAC        // an FDB entry
	link int
}

// resolver walks from an address to its port.
type resolver struct {
	kernel kernel
	ports  map[int]bool // rocast's, by ifindex
}

// walk is one such way.
type walk struct {
	*resolver
	finding
	to    netip.Addr
	at    sighting       // what this way has found so far
	state neighbourState // of the next hop
	tags  tags
}

// resolve finds the hop to an address. was is the last finding for it or nil. insist asks for a neighbour that did not
// answer before, too.
func (r *resolver) resolve(to netip.Addr, was *finding, insist bool) *finding {
	w := &walk{resolver: r, to: to}
	if was != nil {
		w.seen, w.probed = was.seen, was.probed
	}
	w.about(subject{addr: to})
	doubt, err := w.walk(insist)
	if err == nil {
		w.seen = w.at
	}
	switch {
	case errors.Is(err, errOwn):
		w.Hop = Hop{Own: true, Reason: err.Error()}
	case errors.Is(err, errElsewhere):
		w.Hop = Hop{Reason: err.Error()}
	case err != nil:
		w.Hop = Hop{Interface: w.Interface, Reason: err.Error()}
	case doubt != "":
		w.Reason = doubt
	}
	return &w.finding
}

func (w *walk) walk(insist bool) (doubt string, err error) {
	route, err := w.kernel.route(w.to)
	if err != nil {
		return "", fmt.Errorf("no route to %v (%w); add one with ip route", w.to, err)
	}
	if route.local {
		return "", fmt.Errorf("%v %w; write the host's", w.to, errOwn)
	}
	w.Interface, w.next = route.ifIndex, w.to
	if route.gateway.IsValid() {
		w.next = route.gateway
		w.about(subject{addr: w.next})
	}
	w.at = sighting{on: w.Interface, next: w.next}
	out, err := w.link(route.ifIndex)
	if err == nil {
		err = w.leadsToPorts(out)
	}
	if err != nil {
		return "", err
	}
	if doubt, err = w.neighbour(out, insist); err != nil {
		return "", err
	}
	doubtedPort, err := w.descend(out)
	if err != nil {
		return "", err
	}
	w.setHeader(w.at.mac, out.mac, w.tags, w.to)
	if doubt == "" || w.Down {
		doubt = doubtedPort
	}
	return doubt, nil
}

// neighbour finds the MAC of the next hop behind out.
func (w *walk) neighbour(out link, insist bool) (doubt string, err error) {
	n, err := w.kernel.neighbour(out.index, w.next)
	if err != nil {
		return "", fmt.Errorf("ask for the MAC of %v on %s: %w", w.next, out.name, err)
	}
	w.state = n.state
	if n.state == usable || n.state == fixed {
		w.at.mac = n.mac
		w.about(subject{mac: n.mac})
		return "", nil
	}
	if n.state == absent || n.state == failed && insist {
		if err := w.kernel.solicit(out.index, w.next); err != nil {
			return "", fmt.Errorf("ask for the MAC of %v on %s: %w", w.next, out.name, err)
		}
	}
	w.asked = n.state != failed || insist
	reason := fmt.Sprintf("the kernel is asking for the MAC of %v on %s", w.next, out.name)
	if n.state == failed {
		reason = fmt.Sprintf("%v does not answer on %s; is the host up, with this address?", w.next, out.name)
	}
	if broken := out.broken(); broken != "" {
		reason = broken
	}
	if w.seen.mac == (MAC{}) || w.seen.on != out.index || w.seen.next != w.next {
		return "", errors.New(reason)
	}
	w.at.mac = w.seen.mac
	w.about(subject{mac: w.at.mac})
	return fmt.Sprintf("%s; it was last at %v", reason, w.at.mac), nil
}

// descend goes from the route's interface down to a port.
func (w *walk) descend(l link) (doubt string, err error) {
	first := l
	for range maxDepth {
		var below int
		switch {
		case w.ports[l.index]:
			w.Port, w.PortName, w.PortMTU = l.index, l.name, l.mtu
			if broken := l.broken(); broken != "" {
				w.Down, doubt = true, broken
			}
			return doubt, nil
		case l.kind == "vlan":
			below, err = l.parent, w.tags.push(l.tag)
		case l.kind == "bridge":
			below, doubt, err = w.cross(l)
		default:
			return "", w.elsewhere(first, l)
		}
		if err != nil {
			return "", err
		}
		if l, err = w.link(below); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%v is reached through more than %d interfaces, one below the other, from %s on", w.to, maxDepth, first.name)
}

var errOwn = errors.New("is this box's own address")

// errElsewhere is wrapped when the way leads to an interface that rocast has nothing to do with. Such an interface is no
// place for a group's IP either, so the hop does not name it.
var errElsewhere = errors.New("no port of rocast nor a bridge or VLAN device on one")

// leadsToPorts refuses, before anybody is asked for a MAC, an interface below which no port can be. Which port is below a
// bridge only the MAC tells.
func (w *walk) leadsToPorts(first link) (err error) {
	l := first
	for range maxDepth {
		switch {
		case w.ports[l.index] || l.kind == "bridge":
			return nil
		case l.kind != "vlan":
			return w.elsewhere(first, l)
		}
		if l, err = w.link(l.parent); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) elsewhere(first, last link) error {
	path := last.name
	if first.index != last.index {
		path = first.name + " and " + last.name
	}
	return fmt.Errorf("%v is reached through %s, which is %w; see rocast port ls whether %s could be opened, add it to ports: in the config, or correct the route",
		w.to, path, errElsewhere, last.name)
}

// link looks an interface up; its changes concern this walk.
func (w *walk) link(index int) (link, error) {
	w.about(subject{link: index})
	l, err := w.kernel.link(index)
	if err != nil {
		err = fmt.Errorf("the way to %v leads through interface %d: %w", w.to, index, err)
	}
	return l, err
}

func (w *walk) about(s subject) { w.subjects = append(w.subjects, s) }
