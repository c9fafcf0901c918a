// Package above makes this box an edge of the boxes above it. Such a box sends one copy of a packet
// to a multicast address for several boxes on one network, instead of one copy to each. This box
// asks it which copies are for its branches, as the edge of a host does, joins their addresses, and
// lets its groups map them.
package above

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/asking"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/nexthop"
)

// Asker asks a neighbour for the mappings of this box.
type Asker interface {
	AskEdge(ctx context.Context, box string, q api.EdgeQuestion) (api.EdgeAnswer, error)
}

// Options are what an Above works with.
type Options struct {
	Groups *groups.Set
	Boxes  Asker
	Hop    func(netip.Addr) nexthop.Hop
	Join   func(ifindex int, to netip.Addr) (io.Closer, error)
	Log    *zap.Logger
}

// Above is this box as an edge of one neighbour. One goroutine uses it.
type Above struct {
	Options
	box     neighbour.Config
	have    uint64 // the number of the answer that is loaded as a whole
	part    *api.EdgePart
	joined  map[netip.Addr]membership
	problem string // "": none
	asked   bool   // it has been answered once
}

// membership is a multicast address that an interface has joined.
type membership struct {
	io.Closer
	ifindex int
}

// New returns this box as an edge of a neighbour.
func New(o Options, box neighbour.Config) *Above {
	return &Above{Options: o, box: box, joined: map[netip.Addr]membership{}}
}

// Run asks those of the neighbours whose edge this box is until ctx is done.
func Run(ctx context.Context, o Options, neighbours []neighbour.Config) error {
	var all errgroup.Group
	for _, n := range neighbours {
		if n.Edge {
			all.Go(func() error { return New(o, n).run(ctx) })
		}
	}
	return all.Wait()
}

func (a *Above) run(ctx context.Context) error {
	asking.Keep(ctx, func(ctx context.Context) bool {
		said := a.part
		err := a.Round(ctx)
		if ctx.Err() == nil {
			a.note(err)
		}
		return err == nil || !a.part.IsSame(said)
	})
	return a.keep(nil)
}

// Round asks the box once, and loads its answer. The next question confirms it.
func (a *Above) Round(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, asking.Within)
	defer cancel()
	answer, err := a.Boxes.AskEdge(within, a.box.Name, api.EdgeQuestion{
		Protocol: api.EdgeProtocol, Have: a.have, Part: a.part, Wait: int(asking.Wait / time.Millisecond), Attach: "rocastd",
		Mapped: groups.MappedFrom(a.Groups, a.box.Name),
	})
	if err != nil {
		return err
	}
	return a.load(answer)
}

// load joins the addresses of the mappings, and lets the groups map. What is not confirmed is not
// shared with this box. A mapping that fails is left out alone, and the next answer is loaded as a
// whole again.
func (a *Above) load(answer api.EdgeAnswer) error {
	wanted := map[netip.Addr]error{} // why an address is not joined
	failed := map[uint32]error{}
	var mappings []api.EdgeMapping
	for _, m := range answer.Mappings {
		err, done := wanted[m.To]
		if !done {
			err = a.join(m.To)
			wanted[m.To] = err
		}
		if err != nil {
			failed[m.LegQPN] = err
		} else {
			mappings = append(mappings, m)
		}
	}
	maps.Copy(failed, groups.MapFrom(a.Groups, a.box.Name, mappings))
	err := a.keep(wanted)
	a.have, a.part = answer.Number, answer.Part(failed)
	for _, m := range answer.Mappings {
		if failed[m.LegQPN] != nil {
			a.have = 0
			err = errors.Join(err, fmt.Errorf("group %s: %w", m.Group, failed[m.LegQPN]))
		}
	}
	return err
}

// join joins an address at the interface by which the box is reached.
func (a *Above) join(to netip.Addr) error {
	hop := a.Hop(a.box.Address)
	if hop.Interface == 0 {
		return fmt.Errorf("%v is not reached, so it is not known where to join %v: %s", a.box.Address, to, hop.Reason)
	}
	was, is := a.joined[to]
	if is && was.ifindex == hop.Interface {
		return nil
	}
	now, err := a.Join(hop.Interface, to)
	if err != nil {
		return err
	}
	a.joined[to] = membership{now, hop.Interface}
	if is {
		return was.Close()
	}
	return nil
}

// keep ends the memberships of addresses that are not wanted.
func (a *Above) keep(wanted map[netip.Addr]error) error {
	var errs []error
	for to, m := range a.joined {
		if _, is := wanted[to]; !is {
			errs = append(errs, m.Close())
			delete(a.joined, to)
		}
	}
	return errors.Join(errs...)
}

// note logs what is new.
func (a *Above) note(err error) {
	was, first := a.problem, !a.asked && err == nil
	a.problem = ""
	if err != nil {
		a.problem = err.Error()
	} else {
		a.asked = true
	}
	box := zap.String("neighbour", a.box.Name)
	switch {
	case err != nil && a.problem != was:
		a.Log.Warn("the box above does not let this one map what it shares between boxes", box, zap.Error(err))
	case err == nil && (was != "" || first):
		a.Log.Info("the box above lets this one map what it shares between boxes", box)
	}
}
