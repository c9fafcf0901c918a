package afxdp

import (
	"errors"

	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/dataplane"
)

// UpperOf describes an interface, which is one of list, as one above others.
func UpperOf(l netlink.Link, list []netlink.Link) dataplane.Upper {
	a := l.Attrs()
	u := dataplane.Upper{Name: a.Name, Kind: l.Type()}
	if bond, is := l.(*netlink.Bond); is {
		u.Mode = bond.Mode.String()
	}
	for _, other := range list {
		b := other.Attrs()
		if b.MasterIndex == a.Index || u.Kind == "vlan" && b.Index == a.ParentIndex && a.NetNsID < 0 {
			u.Below = append(u.Below, b.Name)
		}
	}
	return u
}

// errEmptyBond is the reason of a port that is a bond: its lower devices are ports in its place as
// soon as it has some.
var errEmptyBond = away{"it is a bond without a lower device; add one with ip link set INTERFACE master BOND"}

// away is an error that is errGone with a sentence of its own.
type away struct{ sentence string }

func (a away) Error() string      { return a.sentence }
func (away) Is(target error) bool { return target == errGone }

// refuseUpper refuses an interface above others that cannot be a port itself.
func refuseUpper(l netlink.Link) error {
	u := UpperOf(l, nil)
	if u.IsBond() {
		return errEmptyBond
	}
	if u.Refusal() == "" {
		return nil
	}
	list, err := netlink.LinkList()
	if err != nil {
		return err
	}
	u = UpperOf(l, list)
	return misfit{errors.New(u.Refusal())}
}

// underVLAN returns a VLAN device of list that is above the interface, its bridge or its bond; "":
// there is none.
func underVLAN(ifIndex int, list []netlink.Link) string {
	for ifIndex != 0 {
		master := 0
		for _, l := range list {
			a := l.Attrs()
			switch {
			case l.Type() == "vlan" && a.ParentIndex == ifIndex && a.NetNsID < 0:
				return a.Name
			case a.Index == ifIndex:
				master = a.MasterIndex
			}
		}
		ifIndex = master
	}
	return ""
}
