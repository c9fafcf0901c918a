package main

import (
	"os"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

const newReceiver = "  - {ip: 10.77.0.4, qpn: 20, psn: 9, regions: [{va: 0x7f2000000000, length: 67108864, rkey: 0x1236}]}\n"

// withReceivers makes testdata/g1.yaml with lines more a file of its own.
func withReceivers(t *testing.T, lines string) string {
	t.Helper()
	path := writeFile(t)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, lines...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGroupUpdate(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", "testdata/g1.yaml")
	golden(t, "group_update.txt", d.must(t, "group", "update", "-f", withReceivers(t, newReceiver)))
	var g api.Group
	if d.mustJSON(t, &g, "group", "update", "-f", "testdata/g1.yaml"); len(g.Members) != 3 {
		t.Errorf("%+v", g)
	}
}

func TestGroupUpdateSaysWhatItCannotDo(t *testing.T) {
	d := startDaemon(t)
	d.refused(t, exitRefused, api.NotFound, `there is no group "g1"; rocast group ls lists the groups`, "group", "update", "-f", "testdata/g1.yaml")
	d.must(t, "group", "create", "-f", "testdata/g1.yaml")
	file := writeFile(t, "mtu: 1024", "mtu: 512")
	d.refused(t, exitRefused, api.BadFile,
		file+":4: mtu is 512 and the running group has 1024; an update may change only receivers and memory: write 1024, or remove the group and create it again", "group", "update", "-f", file)
	file = writeFile(t, "name: g1", "")
	d.refused(t, exitRefused, api.BadFile, file+":2: the group file has no name; add name: WORD, what the group is called", "group", "update", "-f", file)
}
