package main

import (
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

func TestGroupRemove(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", "testdata/g1.yaml")
	golden(t, "group_rm.txt", d.must(t, "group", "rm", "g1"))
	d.refused(t, exitRefused, api.NotFound, `there is no group "g1"; rocast group ls lists the groups`, "group", "rm", "g1")

	d.must(t, "group", "create", "-f", "testdata/g1.yaml")
	var removed api.Removed
	if d.mustJSON(t, &removed, "group", "rm", "g1"); removed.Name != "g1" {
		t.Errorf("%+v", removed)
	}
}

// A name is a word, not a path: it must not reach another resource.
func TestGroupRemoveTakesNoPath(t *testing.T) {
	startDaemon(t).refused(t, exitRefused, api.NotFound, `there is no group "../ports"; rocast group ls lists the groups`, "group", "rm", "../ports")
}
