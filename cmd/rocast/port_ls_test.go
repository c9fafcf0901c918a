package main

import (
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestPortList(t *testing.T) {
	d := startDaemon(t)
	golden(t, "port_ls.txt", d.must(t, "port", "ls"))
	var list api.Ports
	if d.mustJSON(t, &list, "port", "ls"); len(list.Ports) != 3 || list.Ports[2].Name != "eth3" || list.Ports[2].IfIndex != 3 {
		t.Errorf("%+v", list)
	}
}
