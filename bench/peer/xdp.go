package peer

import (
	"errors"
	"fmt"

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
	var attached links
	// A devmap looks ports up in the namespace of the thread that writes it.
	err := s.Lab.Box.Do(func() error { return fillBroadcast(objects, s) })
	for i, p := range s.Lab.Ports {
		program := objects.Answers
		if i == 0 {
			program = objects.Ingress
		}
		if err == nil {
			err = attached.attach(p, program)
		}
	}
	stop := func() error { return errors.Join(attached.close(), objects.Close()) }
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &Forwarder{stop: stop}, nil
}

func fillBroadcast(objects *broadcastObjects, s Setting) error {
	if err := objects.Source.Put(uint32(0), uint32(s.Lab.Ports[0].Index)); err != nil {
		return fmt.Errorf("write the port of the source: %w", err)
	}
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
