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
	at      device
	program mapper
	members map[netip.Addr]*member
	closed  bool
}

// member is the membership of a multicast address, and the mappings that need it.
type member struct {
	keys map[edge.Key]bool
	io.Closer
}

// put makes a mapping. Its address is joined afterwards: no packet comes that is not the edge's.
func (p *port) put(m edge.Mapping) error {
	if err := p.program.Put(m); err != nil {
		return err
	}
	return p.join(m.Key)
}

func (p *port) join(key edge.Key) error {
	if p.members[key.To] == nil {
		joined, err := p.host.join(p.at, key.To)
		if err != nil {
			return err
		}
		p.members[key.To] = &member{map[edge.Key]bool{}, joined}
	}
	p.members[key.To].keys[key] = true
	return nil
}

func (p *port) remove(key edge.Key) (err error) {
	if m := p.members[key.To]; m != nil {
		delete(m.keys, key)
		if len(m.keys) == 0 {
			err = m.Close()
			delete(p.members, key.To)
		}
	}
	return errors.Join(err, p.program.Delete(key))
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
