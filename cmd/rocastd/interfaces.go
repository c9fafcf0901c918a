package main

import (
	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/ctl"
)

// interfaces lists what the calling thread's network namespace has.
func interfaces() ([]ctl.Interface, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	var list []ctl.Interface
	for _, l := range links {
		a := l.Attrs()
		leadsElsewhere := l.Type() == "bridge" || l.Type() == "vlan"
		list = append(list, ctl.Interface{Name: a.Name, Plain: a.EncapType == "ether" && !leadsElsewhere})
	}
	return list, nil
}
