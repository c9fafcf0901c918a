package view

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Members with tags are named behind a port that takes tags out, also where they may come by
// several ports; a member without a tag, or behind another port, is not.
func TestWhoseTagsAPortTakesOut(t *testing.T) {
	leg := func(ip string, ifIndex, tags int, uplinks ...int) plan.Leg {
		l := plan.Leg{Member: &groupfile.Member{IP: netip.MustParseAddr(ip)}, Hop: nexthop.Hop{Port: ifIndex, Uplinks: nexthop.InterfacesOf(uplinks...)}}
		l.L2Bytes = uint8(copy(l.L2[:], roce.AppendVLAN(nil, roce.MAC{2}, roce.MAC{4}, 7, 0x0800)))
		if tags == 0 {
			l.L2Bytes = uint8(copy(l.L2[:], roce.AppendEthernet(nil, roce.MAC{2}, roce.MAC{4}, 0x0800)))
		}
		return l
	}
	open := func(name string, ifIndex int, takes bool) dataplane.PortInfo {
		return dataplane.PortInfo{Name: name, IfIndex: ifIndex, State: dataplane.PortUp, TakesTags: takes}
	}
	set := ports.New([]dataplane.PortInfo{open("eth1", 1, true), open("eth2", 2, false), open("eth3", 3, true), open("eth4", 4, true)})
	g := &groups.Version{Published: new(mft.Group), Plan: plan.Plan{Receivers: []plan.Leg{
		leg("10.77.0.1", 1, 1), leg("10.77.0.2", 1, 0), leg("10.77.0.3", 2, 1), leg("10.77.0.4", 1, 1), leg("10.77.0.5", 2, 1, 2, 3), leg("10.77.0.6", 1, 1),
	}}}
	want := []string{dataplane.TagsTaken("eth1", "10.77.0.1 and 2 more members"), dataplane.TagsTaken("eth3", "10.77.0.5")}
	if got := tagsTaken(g, set); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
