// Package boxes runs a rocastd in each box of a fabric. The daemons are neighbours as the fabric's
// links say: they have certificates of one CA, and reach each other's API over the links.
package boxes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/internal/testlab/certs"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Box is a box of the fabric with its daemon.
type Box struct {
	*fabric.Box
	Name string

	set    *Set
	daemon Daemon
}

// Set is the boxes of a fabric.
type Set struct {
	Boxes  []*Box
	fabric *fabric.Fabric
	dir    string
	ca     *certs.Authority
}

// New prepares the boxes of a fabric, which get the names in the fabric's order. The networks of
// hosts are routed between the boxes. bin is the directory of rocastd.
func New(f *fabric.Fabric, bin string, names ...string) (*Set, error) {
	dir, err := os.MkdirTemp("", "rcb") // short: the path of a socket has its limit
	if err != nil {
		return nil, err
	}
	netns.RemoveAtSignal(dir)
	s := &Set{fabric: f, dir: dir}
	for i, name := range names {
		b := &Box{Box: f.Boxes[i], Name: name, set: s}
		b.daemon = Daemon{Program: filepath.Join(bin, "rocastd"), Config: b.path("rocastd.yaml"), Socket: b.path("s")}
		s.Boxes = append(s.Boxes, b)
	}
	if s.ca, err = certs.NewAuthority(dir); err == nil {
		err = s.route()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for _, b := range s.Boxes {
		if err := b.prepare(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close ends the daemons and removes their files.
func (s *Set) Close() error {
	for _, b := range s.Boxes {
		_ = b.Kill() // it may have ended
	}
	return os.RemoveAll(s.dir)
}

// hop is a way from a box: the neighbour at the other end of a link.
type hop struct {
	link *fabric.Link
	end  int // of the neighbour
}

// hops returns the links of a box.
func (s *Set) hops(b *Box) (list []hop) {
	for _, l := range s.fabric.Links {
		for i := range l.Ends {
			if l.Ends[1-i].Box == b.Box {
				list = append(list, hop{l, i})
			}
		}
	}
	return list
}

func (s *Set) boxOf(b *fabric.Box) *Box {
	for _, box := range s.Boxes {
		if box.Box == b {
			return box
		}
	}
	return nil
}

// behind returns the networks that a box reaches by a hop, as the fabric is a tree.
func (s *Set) behind(from *Box, h hop) (networks []netip.Prefix) {
	next := s.boxOf(h.link.Ends[h.end].Box)
	networks = append(networks, next.Network())
	for _, further := range s.hops(next) {
		if further.link != h.link {
			networks = append(networks, s.behind(next, further)...)
		}
	}
	return networks
}

// route adds the routes between the boxes, and lets each host send to other networks by its box.
func (s *Set) route() error {
	var errs []error
	for _, b := range s.Boxes {
		for _, h := range s.hops(b) {
			for _, network := range s.behind(b, h) {
				_, err := b.Box.Box.Exec("ip", "route", "add", network.String(), "via", h.gateway().String())
				errs = append(errs, err)
			}
		}
		for _, host := range b.Hosts {
			_, err := host.NS.Exec("ip", "route", "add", "default", "via", b.IP().String())
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// gateway is the next hop by which the neighbour is reached: itself, or the router between.
func (h hop) gateway() netip.Addr {
	if h.isRouted() {
		return h.link.Ends[1-h.end].IP.Next()
	}
	return h.link.Ends[h.end].IP
}

func (h hop) isRouted() bool {
	return !h.link.Ends[0].Network().Contains(h.link.Ends[1].IP)
}

const apiPort = 7471

// prepare writes the box's config and certificate.
func (b *Box) prepare() error {
	if err := os.MkdirAll(b.path(""), 0o700); err != nil {
		return err
	}
	cert, key, err := b.set.ca.Issue(b.path(""), time.Now().Add(certs.Lifetime), b.Name)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "ports: [%s]\nsocket: %s\nstateDir: %s\napi: {listen: \"%v\", cert: %s, key: %s, ca: %s}\nneighbours:\n",
		strings.Join(b.Ports(), ", "), b.path("s"), b.StateDir(), b.listenAt(), cert, key, b.set.ca.Path)
	for _, h := range b.set.hops(b) {
		there := h.link.Ends[h.end]
		fmt.Fprintf(&text, "  - {name: %s, address: %v, url: \"https://%v\"", b.set.boxOf(there.Box).Name, there.IP, netip.AddrPortFrom(there.IP, apiPort))
		if h.isRouted() {
			var networks []string
			for _, network := range b.set.behind(b, h) {
				networks = append(networks, network.String())
			}
			fmt.Fprintf(&text, ", behind: [%s]", strings.Join(networks, ", "))
		}
		text.WriteString("}\n")
	}
	return os.WriteFile(b.path("rocastd.yaml"), []byte(text.String()), 0o600)
}

// Edit changes the config of the box for the next start.
func (b *Box) Edit(change func(string) string) error {
	text, err := os.ReadFile(b.path("rocastd.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(b.path("rocastd.yaml"), []byte(change(string(text))), 0o600)
}

// listenAt is the address at which the box's API listens: any, of the family that the boxes have.
func (b *Box) listenAt() netip.AddrPort {
	if b.IP().Is6() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), apiPort)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), apiPort)
}

func (b *Box) path(name string) string { return filepath.Join(b.set.dir, b.Name, name) }

// StateDir is where the box's daemon keeps its state.
func (b *Box) StateDir() string { return b.path("state") }

// Client talks to the box's daemon.
func (b *Box) Client() *client.Client { return b.daemon.Client() }

// Start starts the daemon and waits until it answers.
func (b *Box) Start(ctx context.Context) error {
	if err := b.daemon.Start(ctx, b.Box.Box); err != nil {
		return fmt.Errorf("%s: %w", b.Name, err)
	}
	return nil
}

// Kill ends the daemon without a warning.
func (b *Box) Kill() error { return b.daemon.Kill() }

// Stop asks the daemon to end, and waits until it has.
func (b *Box) Stop() error { return b.daemon.Stop() }

// Log is what the box's daemons have logged.
func (b *Box) Log() string { return b.daemon.Log() }
