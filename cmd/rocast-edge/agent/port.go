package agent

import (
	"errors"
	"io"
	"iter"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/bpf/edge"
)

// mapper is the program at an interface.
type mapper interface {
	Mode() edge.Mode
	Put(edge.Mapping) error
	Delete(edge.Key) error
	Mappings() iter.Seq2[edge.Mapping, error]
	Counters() (edge.Counters, error)
	Close() error
}

// port is an interface with the program.
type port struct {
	host    host
	name    string
	index   int
	program mapper
	members map[joined]*member
	closed  bool
}

// joined is a multicast address at an interface. In the wire it is the interface of the host's
// network, and the hosts behind one port may be in several VLANs.
type joined struct {
	ifindex int
	to      netip.Addr
}

// member is the membership of a multicast address, and the mappings that need it.
type member struct {
	keys map[edge.Key]bool
	io.Closer
}

// put makes a mapping for the host of a device. Its address is joined afterwards: no packet comes
// that is not the edge's. What cannot be joined is not mapped either.
func (p *port) put(m edge.Mapping, at device) error {
	if err := p.program.Put(m); err != nil {
		return err
	}
	id := joined{at.joins, m.To}
	if p.members[id] == nil {
		membership, err := p.host.join(at, m.To)
		if err != nil {
			return errors.Join(err, p.program.Delete(m.Key))
		}
		p.members[id] = &member{map[edge.Key]bool{}, membership}
	}
	p.members[id].keys[m.Key] = true
	return p.endMemberships(m.Key, id)
}

func (p *port) remove(key edge.Key) error {
	return errors.Join(p.endMemberships(key, joined{}), p.program.Delete(key))
}

// endMemberships ends the memberships that only a mapping needs, but for one. That of a former
// interface may be there still: the mapping could not be made at the next one, and comes to another
// now.
func (p *port) endMemberships(key edge.Key, except joined) (err error) {
	for id, m := range p.members {
		if id == except {
			continue
		}
		if delete(m.keys, key); len(m.keys) == 0 {
			err = errors.Join(err, m.Close())
			delete(p.members, id)
		}
	}
	return err
}

// close ends what this process has of the port. The program stays at the interface.
func (p *port) close() (err error) {
	p.closed = true
	for _, m := range p.members {
		err = errors.Join(err, m.Close())
	}
	return errors.Join(err, p.program.Close())
}

// same reports whether two mappings have the same effect.
func same(a, b edge.Mapping) bool {
	regions := slices.Equal(a.Regions, b.Regions)
	return regions && a.Key == b.Key && a.Host == b.Host && a.MAC == b.MAC && a.HostQPN == b.HostQPN && a.AddPSN == b.AddPSN
}
