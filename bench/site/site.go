// Package site is what the programs of bench run in: hosts with soft RDMA NICs in network
// namespaces, a box with rocastd between them, and what a measurement has used of both.
package site

import (
	"context"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

// Lab is a bed with a daemon in its box.
type Lab struct{ *boxes.Single }

// Open builds the lab and starts the daemon, which is the program at this path. Close removes all.
func Open(ctx context.Context, hosts int, program string) (*Lab, error) {
	s, err := boxes.NewSingle(ctx, bed.Options{Hosts: hosts}, program)
	if err != nil {
		return nil, err
	}
	return &Lab{s}, nil
}
