package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
)

// writeFile makes testdata/g1.yaml with replacements a file of its own.
func writeFile(t *testing.T, replacements ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/g1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "group.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replacements...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGroupCreate(t *testing.T) {
	d := startDaemon(t)
	golden(t, "group_create.txt", d.must(t, "group", "create", "-f", "testdata/g1.yaml"))
	var g api.Group
	d.mustJSON(t, &g, "group", "create", "--file", writeFile(t, "name: g1", "name: g2", "qpn: 1 ", "qpn: 2 ", "qpn: 17", "qpn: 27", "qpn: 18", "qpn: 28", "qpn: 19", "qpn: 29"))
	if g.Name != "g2" || g.State != api.Ready || len(g.Members) != 3 {
		t.Errorf("%+v", g)
	}
}

func TestGroupCreateNamesWhoIsWaitedFor(t *testing.T) {
	d := startDaemon(t)
	file := writeFile(t, "10.77.0.3", "10.77.0.9")
	golden(t, "group_create_waiting.txt", d.must(t, "group", "create", "-f", file))
}

func TestGroupCreateReadsStandardInput(t *testing.T) {
	d := startDaemon(t)
	text, err := os.ReadFile("testdata/g1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	e := env{args: []string{"group", "create", "-f", "-", "--socket", d.socket}, stdin: bytes.NewReader(text), stdout: &out, stderr: &errs}
	if exit := e.run(context.Background()); exit != exitOK {
		t.Errorf("exit %d: %s", exit, errs.String())
	}
}

func TestGroupCreateNamesFileAndLine(t *testing.T) {
	d := startDaemon(t)
	file := writeFile(t, "psn: 5", "psn: -5")
	exit, _, stderr := d.run("group", "create", "-f", file)
	want := "rocast: " + file + ":10: member 2: psn is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes\n"
	if exit != exitRefused || stderr != want {
		t.Errorf("exit %d\ngot  %swant %s", exit, stderr, want)
	}
	d.refused(t, exitRefused, api.BadFile,
		file+":10: member 2: psn is not a whole number from 0 to 16777215 (0xffffff); write one, without quotes", "group", "create", "-f", file)
	if list := d.must(t, "group", "ls"); strings.Contains(list, "g1") {
		t.Errorf("it is there all the same:\n%s", list)
	}
}

func TestGroupCreateRefusesAFileNoGroupNeeds(t *testing.T) {
	d := startDaemon(t)
	file := writeFile(t, "name:", strings.Repeat("#\n", api.MaxGroupFileBytes)+"name:")
	d.refused(t, exitRefused, api.TooLarge, "the group file is longer than 1048576 bytes, which no group needs; split the group",
		"group", "create", "-f", file)
}

// 10.77.0.4 is reached in a VLAN by eth3, and 10.77.0.3 without a tag.
func TestGroupCreateTellsWhoseTagsAPortTakesOut(t *testing.T) {
	sw := ctltest.NewSwitch("eth1", "eth2", "eth3")
	sw.SetTakesTags(1, "")
	sw.SetTakesTags(2, "")
	d := startDaemonOver(t, sw)
	const begin, end = "eth3 takes the VLAN tags of ", " out of frames before rocast sees them, so that rocast refuses the frames; run ethtool -K eth3 rxvlan off txvlan off"
	if out := d.must(t, "group", "create", "-f", "testdata/g1.yaml"); strings.Contains(out, "VLAN tags") {
		t.Errorf("without a tag:\n%s", out)
	}
	if out := d.must(t, "group", "show", "g1"); strings.Contains(out, "VLAN tags") {
		t.Errorf("without a tag:\n%s", out)
	}
	d.must(t, "group", "rm", "g1")
	if out := oneLine(d.must(t, "group", "create", "-f", writeFile(t, "10.77.0.3", "10.77.0.4"))); !strings.HasSuffix(out, " "+begin+"10.77.0.4"+end) || strings.Contains(out, "eth2 takes") {
		t.Errorf("\n%s", out)
	}
}
