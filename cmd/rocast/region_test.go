package main

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

var newRegion = []string{"region", "add", "g1", "--va", "0x20000000", "--length", "4096", "--rkey", "0x78",
	"--at", "10.77.0.2=0x7f2000000000:0x2234", "--at", "10.77.0.3/1=0x7f3000000000:0x2235"}

func TestRegionsComeAndLeave(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", "testdata/g1.yaml")
	said := d.must(t, newRegion...)
	golden(t, "region.txt", said+d.must(t, "region", "ls", "g1")+d.must(t, "region", "rm", "g1", "--va", "65536", "--rkey", "0x77"))
	var g api.Group
	if d.mustJSON(t, &g, "region", "ls", "g1"); len(g.Memory) != 1 || g.Memory[0].VA != 0x20000000 || g.Members[2].Regions[0].VA != 0x7f3000000000 {
		t.Errorf("%+v", g.Memory)
	}
}

func TestRegionsThatCannotCome(t *testing.T) {
	d := startDaemon(t)
	d.must(t, "group", "create", "-f", "testdata/g1.yaml")
	for _, c := range []struct {
		old, new string // in newRegion
		exit     int
		kind     api.Kind
		want     string
	}{
		{"g1", "g2", exitRefused, api.NotFound, `there is no group "g2"; rocast group ls lists the groups`},
		{"0x20000000", "0x10001", exitRefused, api.BadRequest, ""},
		{"10.77.0.2=0x7f2000000000:0x2234", "10.77.0.9=0x7f2000000000:0x2234", exitRefused, api.NotFound,
			"10.77.0.9 is no receiver of group g1; rocast group show g1 lists them"},
		{"10.77.0.3/1=0x7f3000000000:0x2235", "10.77.0.2=0x7f3000000000:0x2235", exitRefused, api.BadRequest,
			"receiver 10.77.0.2 has two places for the region at VA 0x20000000; write one"},
		{"10.77.0.2=0x7f2000000000:0x2234", "10.77.0.2=0x7f2000000000", exitUsage, api.Usage,
			`--at "10.77.0.2=0x7f2000000000" is not IP=VA:RKEY, such as 10.77.0.2=0x7f0000000000:0x1234; see rocast region add --help`},
		{"10.77.0.3/1=0x7f3000000000:0x2235", "10.77.0.3/x=1:2", exitUsage, api.Usage,
			`--at "10.77.0.3/x=1:2" is not IP=VA:RKEY, such as 10.77.0.2=0x7f0000000000:0x1234; see rocast region add --help`},
		{"10.77.0.3/1=0x7f3000000000:0x2235", "10.77.0.3=y:2", exitUsage, api.Usage,
			`--at "10.77.0.3=y:2" is not IP=VA:RKEY, such as 10.77.0.2=0x7f0000000000:0x1234; see rocast region add --help`},
	} {
		args := append([]string{}, newRegion...)
		for i := range args {
			if args[i] == c.old {
				args[i] = c.new
			}
		}
		if c.want == "" {
			c.want = "memory 2 overlaps memory 1 under the same rkey, so an address in both would be ambiguous; move it or give it another rkey"
			args[8] = "0x77"
		}
		d.refused(t, c.exit, c.kind, c.want, args...)
	}
	d.refused(t, exitRefused, api.BadRequest, "receiver 10.77.0.3 has no place for the region at VA 0x20000000; add where it keeps the region", newRegion[:len(newRegion)-2]...)
	d.refused(t, exitUsage, api.Usage, "--at is missing; see rocast region add --help", newRegion[:len(newRegion)-4]...)
	d.refused(t, exitUsage, api.Usage, "--rkey is missing; see rocast region rm --help", "region", "rm", "g1", "--va", "1")
	d.refused(t, exitRefused, api.NotFound, "group g1 has no region that begins at VA 0x10000 under that R_Key; rocast region ls g1 lists them",
		"region", "rm", "g1", "--va", "0x10000", "--rkey", "0x78")
	if text := d.must(t, "region", "ls", "g1"); strings.Contains(text, "0x20000000") {
		t.Error(text)
	}
}
