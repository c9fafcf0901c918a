package afxdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
)

// AddPorts makes interfaces ports while the workers move frames. bounds are those of their queues,
// in the order of names. An interface that does not exist yet is opened by Refresh when it exists.
// After an error nothing has changed. See ErrConfig.
//
// Call Refresh before: a port whose device was lost hinders others from being opened. Like Open,
// AddPorts works in the calling thread's network namespace.
func (s *Switch) AddPorts(names []string, bounds []dataplane.Egress) error {
	if err := checkEgress(names, bounds); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.publishDevices()
	defer s.watchVerdicts(true)
	var added []*iface
	for i, name := range names {
		f, err := s.addPort(name, bounds[i])
		if err == nil {
			added = append(added, f)
			continue
		}
		for _, f := range added {
			s.removePort(f)
		}
		return fmt.Errorf("open port %s: %w", name, err)
	}
	return nil
}

func (s *Switch) addPort(name string, bounds dataplane.Egress) (*iface, error) {
	now, err := look(name)
	gone := errors.Is(err, errGone)
	queues := perWorker(now.queues.rx, len(s.workers))
	switch {
	case gone:
		queues = largest(s.interfaces, len(s.workers))
	case err == nil:
		err = now.check(name, len(s.workers))
	}
	if err != nil && !gone {
		return nil, err
	}
	room, err := addedRoom(int(s.reserve.Load()), queues)
	if err != nil {
		return nil, err
	}
	f := s.takeNumber(name)
	f.room = room
	s.reserve.Add(int32(-room))
	s.givePort(f.info.ID, bounds)
	if gone {
		return f, nil
	}
	if err := s.openPort(f, now); err != nil {
		s.removePort(f)
		return nil, err
	}
	return f, nil
}

// takeNumber gives a new port the PortID of one that was removed, or the next one.
func (s *Switch) takeNumber(name string) *iface {
	i := slices.IndexFunc(s.interfaces, func(f *iface) bool { return f.free })
	if i < 0 {
		i = len(s.interfaces)
		s.interfaces = append(s.interfaces, nil)
	}
	f := newIface(mft.PortID(i), name)
	f.base = s.traffic(f.info.ID)
	s.interfaces[i] = f
	return f
}

// givePort gives each worker its part of a port. The port has no sockets yet.
func (s *Switch) givePort(id mft.PortID, bounds dataplane.Egress) {
	var parts []dataplane.Port
	for i, w := range s.workers {
		p := &port{umem: w.umem, withheld: s.withheld(i)}
		s.Do(i, func() {
			if int(id) == len(w.ports) {
				w.ports, w.sockets = append(w.ports, nil), append(w.sockets, nil)
			}
			w.ports[id], w.sockets[id] = p, nil
		})
		parts = append(parts, p)
	}
	s.TakePort(id, parts, bounds)
}

// RemovePorts closes ports and forgets them. No group may use them any more, nor may one be added
// that does, before RemovePorts has returned.
func (s *Switch) RemovePorts(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.publishDevices()
	for _, f := range s.interfaces {
		if !f.free && slices.Contains(names, f.info.Name) {
			s.removePort(f)
		}
	}
}

func (s *Switch) removePort(f *iface) {
	s.shut(f, dataplane.PortGone, nil)
	s.reserve.Add(int32(f.room))
	f.free = true
}
