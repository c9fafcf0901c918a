package main

import (
	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/ctl/config"
)

// interfaces lists the interfaces in the network namespace of the calling thread.
func interfaces() ([]config.Interface, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	var list []config.Interface
	for _, l := range links {
		a := l.Attrs()
		leadsElsewhere := l.Type() == "bridge" || l.Type() == "vlan"
		list = append(list, config.Interface{Name: a.Name, Plain: a.EncapType == "ether" && !leadsElsewhere})
	}
	return list, nil
}
