package main

import (
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestGroupList(t *testing.T) {
	d := startDaemon(t)
	var list api.Groups
	d.mustJSON(t, &list, "group", "ls")
	if list.Groups == nil || len(list.Groups) != 0 {
		t.Errorf("no groups are %+v, want an empty list", list)
	}
	d.must(t, "group", "create", "-f", writeFile(t, "name: g1", "name: b-waits", "10.77.0.3", "10.77.0.9"))
	d.must(t, "group", "create", "-f", writeFile(t, "name: g1", "name: a-other", "qpn: 1 ", "qpn: 77 ", "qpn: 17", "qpn: 27", "qpn: 18", "qpn: 28", "qpn: 19", "qpn: 29"))
	golden(t, "group_ls.txt", d.must(t, "group", "ls"))
	d.mustJSON(t, &list, "group", "ls")
	if len(list.Groups) != 2 || list.Groups[1].WaitingCount != 1 || list.Groups[1].State != api.Waiting {
		t.Errorf("%+v", list)
	}
}
