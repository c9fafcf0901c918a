// Package site is what the programs of bench run in: hosts with soft RDMA NICs in network
// namespaces, a box with rocastd between them, and what a measurement has used of both.
package site

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rocast/rocast/bench/beside"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

// Lab is a bed with a daemon in its box.
type Lab struct {
	*boxes.Single
	beside *beside.Box // nil: the hosts are at the box's ports
}

// Open builds the lab and starts the daemon, which is the program at this path. Close removes all.
func Open(ctx context.Context, hosts int, program string) (*Lab, error) {
	s, err := boxes.NewSingle(ctx, bed.Options{Hosts: hosts}, program)
	if err != nil {
		return nil, err
	}
	return &Lab{Single: s}, nil
}

// Close ends the daemon and removes the lab.
func (l *Lab) Close() error {
	var err error
	if l.beside != nil {
		err = l.beside.Close()
	}
	return errors.Join(err, l.Single.Close())
}

// OpenBeside builds a lab whose box is beside the switch, behind a port of this rate, with an edge
// at each host but the first. rocast-edge is in the directory of the daemon's program.
func OpenBeside(ctx context.Context, hosts int, program string, rate int) (_ *Lab, err error) {
	l := &Lab{Single: &boxes.Single{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build the lab: %w", err), l.Close())
		}
	}()
	if l.Bed, err = bed.New(bed.Options{Hosts: hosts}); err != nil {
		return nil, err
	}
	if l.beside, err = beside.Put(l.Bed, rate); err != nil {
		return nil, err
	}
	if l.Daemon, err = boxes.NewDaemon(program, boxes.Ports(l.beside.Port.Name)+beside.SharesCopies); err != nil {
		return nil, err
	}
	if err := l.Daemon.Start(ctx, l.beside.NS); err != nil {
		return nil, err
	}
	for _, h := range l.Hosts[1:] {
		if err := l.beside.StartEdge(filepath.Join(filepath.Dir(program), "rocast-edge"), h); err != nil {
			return nil, err
		}
	}
	return l, nil
}
