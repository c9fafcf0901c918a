package nexthop

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// maxDepth bounds the number of interfaces below a route. VLAN on bridge on VLAN on port is already
// rare.
const maxDepth = 8

// finding is a hop with the data from which it was derived.
type finding struct {
	Hop
	next     netip.Addr // the neighbour: the address itself or a gateway
	seen     sighting   // from the last finding that knew the port
	subjects []subject  // a change of one of these may change the finding
	asked    bool       // the kernel was asked and has not answered yet
	off      bool       // next did not answer the kernel, and has not answered since
	probed   time.Time  // time of the last probe; see probeEvery
	owed     bool       // a probe was delayed because of probeEvery
}

// sighting is the place where a neighbour was last seen. It outlives failed findings: when an
// interrupted path is whole again, the hop is known at once. Otherwise the hop would stay unknown
// until the host sends something, and the kernel does not see the host's RoCE frames.
type sighting struct {
	on         int // ifindex of the interface in the route
	next       netip.Addr
	mac        MAC
	bridge     int // the last bridge on the way down
	bridgePort int // the port of that bridge
}

// probeEvery is the shortest time between two probes of one neighbour. The kernel notifies about
// the effects of a probe, and each notification leads to resolve again; without a limit, this would
// be a loop. The kernel itself repeats a probe between two of our probes.
const probeEvery = time.Second

// subject is an object the kernel notifies about. Exactly one field is set.
type subject struct {
	addr netip.Addr // a neighbour
	mac  MAC        // an FDB entry
	link int
}

// resolver walks from an address to its port.
type resolver struct {
	kernel kernel
	ports  map[int]bool // rocast's ports, by ifindex
}

// walk is the state of one walk from an address to its port.
type walk struct {
	*resolver
	finding
	to    netip.Addr
	at    sighting       // found so far in this walk
	state neighbourState // state of the next hop
	tags  tags
	// bonded are the ports that are lower devices of the bonds on the way.
	bonded []int
	// wasOff is the neighbour that was off at the last finding. It stays so while the kernel asks
	// it again, until it answers: each try of the kernel would be news otherwise.
	wasOff netip.Addr
}

// resolve finds the hop to an address. was is the last finding for the address, or nil. insist also
// asks for a neighbour that did not answer before.
func (r *resolver) resolve(to netip.Addr, was *finding, insist bool) *finding {
	w := &walk{resolver: r, to: to}
	if was != nil {
		w.seen, w.probed = was.seen, was.probed
		if was.off {
			w.wasOff = was.next
		}
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
		w.Hop = Hop{Reason: err.Error(), Gateways: w.Gateways, Source: w.Source}
	case err != nil:
		w.Hop = Hop{Interface: w.Interface, Reason: err.Error(), Gateways: w.Gateways, Source: w.Source}
	default:
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
	w.Interface, w.next, w.Gateways, w.Source = route.ifIndex, w.to, route.gateways, route.source
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
	w.Uplinks = w.uplinks(route.through)
	if doubt == "" || w.Down {
		doubt = doubtedPort
	}
	return doubt, nil
}

// neighbour finds the MAC of the next hop on the interface out.
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
	w.off = out.broken() == "" && (n.state == failed || w.wasOff == w.next)
	reason := fmt.Sprintf("the kernel is asking for the MAC of %v on %s", w.next, out.name)
	if w.off {
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
	w.Silent = w.off
	return fmt.Sprintf("%s; it was last at %v", reason, w.at.mac), nil
}

// descend walks from the route's interface down to a port.
func (w *walk) descend(l link) (doubt string, err error) {
	first := l
	for range maxDepth {
		var below int
		switch {
		case w.ports[l.index]:
			w.Port, w.PortName, w.PortMTU = l.index, l.name, l.mtu
			if broken := l.broken(); broken != "" && !w.Down {
				w.Down, doubt = true, broken
			}
			return doubt, nil
		case l.kind == "vlan":
			below, err = l.parent, w.tags.push(l.tag)
		case l.kind == "bridge":
			below, doubt, err = w.cross(l)
		case l.kind == "bond":
			var doubted string
			if below, doubted, err = w.throughBond(first, l); doubted != "" {
				doubt = doubted
			}
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
	return "", fmt.Errorf("%v is reached through more than %d interfaces, one below the other, from %s on",
		w.to, maxDepth, first.name)
}

// uplinks are those of a route's interfaces that are ports themselves, and the lower devices of a
// bond on the chosen way. What else is above a port is left out: a frame that comes there has tags,
// which need not be those of the chosen way.
func (w *walk) uplinks(through Interfaces) Interfaces {
	ports := slices.Clone(w.bonded)
	for ifIndex := range w.ports {
		if through.Has(ifIndex) {
			ports = append(ports, ifIndex)
		}
	}
	return InterfacesOf(ports...)
}

var errOwn = errors.New("is this box's own address")

// errElsewhere is wrapped when the route leads to an interface that has no port of rocast below it.
// The hop does not name such an interface, because a group's IP must not be added there.
var errElsewhere = errors.New("not a port of rocast, nor a bridge, bond or VLAN device on a port")

// leadsToPorts refuses an interface that cannot have a port below it. It runs before any request
// for a MAC. For a bridge it cannot tell the port: that needs the MAC.
func (w *walk) leadsToPorts(first link) (err error) {
	l := first
	for range maxDepth {
		switch {
		case w.ports[l.index] || l.kind == "bridge" || l.kind == "bond":
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
	if refusal := last.upper(nil).Refusal(); refusal != "" {
		return fmt.Errorf("%v is reached through %s, which is %w: %s", w.to, path, errElsewhere, refusal)
	}
	return fmt.Errorf("%v is reached through %s, which is %w; see in rocast port ls whether %s could be opened, "+
		"add it to ports: in the config, or correct the route",
		w.to, path, errElsewhere, last.name)
}

// link looks up an interface and subscribes the walk to its changes.
func (w *walk) link(index int) (link, error) {
	w.about(subject{link: index})
	l, err := w.kernel.link(index)
	if err != nil {
		err = fmt.Errorf("the way to %v leads through interface %d: %w", w.to, index, err)
	}
	return l, err
}

func (w *walk) about(s subject) { w.subjects = append(w.subjects, s) }
