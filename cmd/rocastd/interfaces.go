package main

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/dataplane/afxdp"
)

// interfaces lists the interfaces in the network namespace of the calling thread.
func interfaces() ([]config.Interface, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	var list []config.Interface
	for _, l := range links {
		u := afxdp.UpperOf(l, links)
		i := config.Interface{Name: u.Name, Plain: l.Attrs().EncapType == "ether" && u.Refusal() == ""}
		if u.IsBond() {
			i.Plain, i.Lower = false, u.Below
		}
		list = append(list, i)
	}
	return list, nil
}
