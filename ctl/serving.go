package ctl

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/view"
)

// serving is what ctl/services needs of control: it implements services.Control.
type serving struct{ c *Controller }

// SetUp makes a group that ends with the daemon, and says which members are not reached, and why.
func (s serving) SetUp(ctx context.Context, file *groupfile.File) (unreached []string, err error) {
	v, err := s.c.setUp(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	for leg := range v.Legs().Members() {
		if waits, reason := v.WaitsFor(leg); waits {
			unreached = append(unreached, fmt.Sprintf("%v is not reached: %s", leg.Member.IP, reason))
		}
	}
	for _, link := range v.Links {
		if state, reason := link.State(); state != api.Ready {
			unreached = append(unreached, fmt.Sprintf("a receiver behind box %s is not reached: %s", link.Box, reason))
		}
	}
	return unreached, nil
}

func (s serving) Remove(name string) error { return s.c.remove(name, nil) }

func (s serving) Leave(ctx context.Context, name string, receiver netip.Addr) error {
	return s.c.leave(ctx, name, receiver)
}

func (s serving) Counters(name string) (api.Counters, bool) {
	v := s.c.groups.Seen(name)
	if v == nil { // it could not be published: the group of a run then ends
		return nil, false
	}
	state, ok := s.c.Switch.GroupState(v.ID)
	return view.Counters(state.Counters), ok
}

// Saw says what the box has seen of a group. It looks at the group once more before: a side may
// have left because of what the data path met just now.
func (s serving) Saw(name string) string {
	s.c.watch.Look(name, time.Now())
	return s.Sees(name)
}

func (s serving) Sees(name string) string {
	v := s.c.groups.Seen(name)
	if v == nil {
		return ""
	}
	return view.Saw(v, s.c.groups.Events.After(api.Cursor{}, name).Events)
}

func (s serving) AddEvent(e api.Event) { s.c.groups.Events.Add(e) }

func (s serving) Unfit(host netip.Addr, pathMTU int) (why string) {
	s.c.groups.Lock()
	defer s.c.groups.Unlock()
	way := s.c.groups.Plan(&groupfile.File{PathMTU: pathMTU, IP: host, Source: groupfile.Member{IP: host}}).Source
	if way.Unfit {
		return way.Reason
	}
	return ""
}

func (s serving) Behind(host netip.Addr) (boxes []string, err error) {
	return s.c.Branches.Through(&groupfile.Member{IP: host}, nil)
}

func (s serving) FreeIP(ctx context.Context, ip netip.Addr, at []address.IfAddr) (subnets []netip.Prefix, err error) {
	if err := s.c.refuseIP(ctx, ip, at); err != nil {
		return nil, err
	}
	return s.c.subnetsAt(ip, at)
}

func (s serving) Resolve(ctx context.Context, hosts []netip.Addr) (release func()) {
	members := make([]groupfile.Member, len(hosts))
	for i, ip := range hosts {
		members[i].IP = ip
	}
	return s.c.resolve(ctx, members)
}

func (s serving) Alone(ctx context.Context, parser func() error) error { return s.c.alone(ctx, parser) }
