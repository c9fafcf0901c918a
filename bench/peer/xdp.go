package peer

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"

	"github.com/rocast/rocast/dataplane/xsk"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3" broadcast broadcast.c

func xdpCannot(s Setting) string {
	switch {
	case s.FrameBytes() > xsk.FrameBytes:
		return "the kernel does not redirect frames of several buffers to devices"
	case s.Groups > 1:
		return "it is built for one group"
	}
	return oneWorker(s)
}

// target is struct bpf_devmap_val: a port, and the program that runs on its copies.
type target struct {
	IfIndex uint32
	Program int32
}

func startBroadcast(s Setting) (*Forwarder, error) {
	objects := new(broadcastObjects)
	if err := loadBroadcastObjects(objects, nil); err != nil {
		return nil, fmt.Errorf("load broadcast.c: %w", err)
	}
	var l link.Link
	// A devmap looks ports up in the namespace of the thread that writes it.
	err := s.Lab.Box.Do(func() error { return fillBroadcast(objects, s) })
	if err == nil {
		l, err = s.Lab.Ports[0].AttachXDP(objects.Ingress, link.XDPDriverMode)
	}
	if err != nil {
		return nil, errors.Join(err, objects.Close())
	}
	return &Forwarder{stop: func() error { return errors.Join(l.Close(), objects.Close()) }}, nil
}

func fillBroadcast(objects *broadcastObjects, s Setting) error {
	for r, e := range s.Edits() {
		index := uint32(s.Lab.Ports[1+r].Index)
		if err := objects.Edits.Put(index, e); err != nil {
			return fmt.Errorf("write the edit for receiver %d: %w", r, err)
		}
		if err := objects.Receivers.Put(uint32(r), target{IfIndex: index, Program: int32(objects.Egress.FD())}); err != nil {
			return fmt.Errorf("write the port of receiver %d: %w", r, err)
		}
	}
	return nil
}
