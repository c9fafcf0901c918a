package boxes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rocast/rocast/internal/testlab/bed"
)

// Single is a bed with a daemon in its box.
type Single struct {
	*bed.Bed
	Daemon *Daemon
}

// NewSingle builds the bed and starts the daemon, which is the program at this path. Close removes
// both.
func NewSingle(ctx context.Context, o bed.Options, program string) (_ *Single, err error) {
	s := &Single{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Bed, err = bed.New(o); err != nil {
		return nil, err
	}
	if s.Daemon, err = NewDaemon(program, Ports(s.Ports()...)); err != nil {
		return nil, err
	}
	return s, s.Daemon.Start(ctx, s.Box)
}

// Ports is the line of a config that names the ports.
func Ports(names ...string) string { return fmt.Sprintf("ports: [%s]\n", strings.Join(names, ", ")) }

// Close ends the daemon and removes the bed.
func (s *Single) Close() (err error) {
	if s.Daemon != nil {
		err = s.Daemon.Remove()
	}
	if s.Bed != nil {
		err = errors.Join(err, s.Bed.Close())
	}
	return err
}
