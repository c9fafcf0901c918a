package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	var list api.Regions
	if d.mustJSON(t, &list, "region", "ls", "g1"); list.Total != 1 || len(list.Regions) != 1 || list.Regions[0].VA != 0x20000000 || list.Regions[0].At[1].VA != 0x7f3000000000 {
		t.Errorf("%+v", list)
	}
}

// loadFile has so many regions of 4 KiB for the receivers of testdata/g1.yaml, and a line that has
// none.
func loadFile(n int) string {
	text := strings.Builder{}
	text.WriteString("# VA, length, R_Key\n\n")
	for i := range n {
		fmt.Fprintf(&text, "%#x 4096 0x78 10.77.0.2=%#x:0x2234 10.77.0.3=%#x:0x2235\n", i<<12, 1<<40+i<<12, 1<<41+i<<12)
	}
	return text.String()
}

// A file of regions that is longer than one request is loaded in several. What is listed is what
// was loaded, in pages too.
func TestRegionsAreLoaded(t *testing.T) {
	d := startDaemon(t)
	group, err := os.ReadFile("testdata/g1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`, regions: \[.*?\]`).ReplaceAllString(regexp.MustCompile(`memory: .*`).ReplaceAllString(string(group), "memory: table"), "")
	files := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const many = 9000
	d.must(t, "group", "create", "-f", write("g1.yaml", text))
	said := d.must(t, "region", "load", "g1", "-f", write("regions", loadFile(many)))
	said += d.must(t, "region", "ls", "g1", "--from", "8998") + d.must(t, "region", "ls", "g1", "--from", "1", "--count", "1")
	said += d.must(t, "region", "rm", "g1", "--va", "0x1000", "--rkey", "0x78")
	golden(t, "region-table.txt", said)
	var list api.Regions
	d.mustJSON(t, &list, "region", "ls", "g1")
	if list.Total != many-1 || len(list.Regions) != many-1 {
		t.Fatalf("%d of %d regions are listed", len(list.Regions), list.Total)
	}
	for i, r := range list.Regions {
		k := api.Hex(i)
		if i > 0 {
			k++ // one has left
		}
		if r.VA != k<<12 || r.Length != 4096 || *r.RKey != 0x78 || len(r.At) != 2 || r.At[0].VA != 1<<40+k<<12 || r.At[1].VA != 1<<41+k<<12 || *r.At[1].RKey != 0x2235 {
			t.Fatalf("region %d is %+v", i, r)
		}
	}
	if d.mustJSON(t, &list, "region", "ls", "g1", "--from", "5000", "--count", "4500"); list.From != 5000 || len(list.Regions) != 3999 || list.Regions[0].VA != 5001<<12 {
		t.Errorf("%d from %d", len(list.Regions), list.From)
	}
	if show := d.must(t, "group", "show", "g1"); !strings.Contains(show, "the memory is a table of 8999 regions; rocast region ls g1 lists them") {
		t.Error(show)
	}
	for text, want := range map[string]string{
		"1 2":                 "write VA, length, R_Key and IP=VA:RKEY for each receiver",
		"x 2 3 10.77.0.2=4":   `"x" is no address; write a number such as 0x20000000`,
		"1 x 3 10.77.0.2=4":   `"x" is no length; write a number of bytes, without a leading zero`,
		"1 010 3 10.77.0.2=4": `"010" is no length; write a number of bytes, without a leading zero`,
		"01 2 3 10.77.0.2=4":  `"01" is no address; write a number such as 0x20000000`,
		"1 2 x 10.77.0.2=4":   "the third word is no R_Key; write a number such as 0x78",
		"1 2 3 10.77.0.2=4":   "a place is not IP=VA:RKEY, such as 10.77.0.2=0x7f0000000000:0x1234",
	} {
		file := write("bad", "\n"+text+"\n")
		d.refused(t, exitUsage, api.Usage, fmt.Sprintf("%s: line 2: %s; see rocast region load --help", file, want), "region", "load", "g1", "-f", file)
	}
	d.refused(t, exitUsage, api.Usage, "-f FILE is missing; see rocast region load --help", "region", "load", "g1")
	d.refused(t, exitUsage, api.Usage, "--from and --count cannot be below 0; see rocast region ls --help", "region", "ls", "g1", "--count", "-1")
	// The second request has a region that is there already; what came with the first one stays.
	text = strings.ReplaceAll(loadFile(many), " 0x78 ", " 0x79 ") + "0x2000 1 0x78 10.77.0.2=1:1 10.77.0.3=1:1\n"
	exit, _, stderr := d.run("region", "load", "g1", "-f", write("twice", text))
	var before int
	n, _ := fmt.Sscanf(stderr, "rocast: the first %d regions have come, and then: the range of memory at VA 0x2000 overlaps", &before)
	if d.mustJSON(t, &list, "region", "ls", "g1", "--count", "1"); exit != exitRefused || n != 1 || before == 0 || before >= many || list.Total != many-1+before {
		t.Errorf("exit %d, %d regions: %s", exit, list.Total, stderr)
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
		{"10.77.0.3/1=0x7f3000000000:0x2235", "10.77.0.3/01=1:2", exitUsage, api.Usage,
			`--at "10.77.0.3/01=1:2" is not IP=VA:RKEY, such as 10.77.0.2=0x7f0000000000:0x1234; see rocast region add --help`},
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
