package ctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/shared"
	"github.com/rocast/rocast/internal/testlab"
)

// tableFile is groupFile with memory: table.
func tableFile(receivers ...string) string {
	text := regexp.MustCompile(`, regions: \{.*?\}`).ReplaceAllString(groupFile(receivers...), "")
	return regexp.MustCompile(`memory: .*`).ReplaceAllString(text, "memory: table")
}

var nearReceivers = []string{"10.1.0.2", "10.1.0.3"}

// region is one for nearReceivers: receiver i keeps it 2^32 times i higher.
func newRegion(va uint64) api.NewRegion {
	r := api.NewRegion{VA: api.Hex(va), Length: 16, RKey: 0x88}
	for i, ip := range nearReceivers {
		r.At = append(r.At, api.RegionAt{IP: ip, VA: api.Hex(va + uint64(i+1)<<32), RKey: api.Hex(i + 1)})
	}
	return r
}

func adding(vas ...uint64) (c api.RegionChange) {
	for _, va := range vas {
		c.Add = append(c.Add, newRegion(va))
	}
	return c
}

func removing(vas ...uint64) (c api.RegionChange) {
	for _, va := range vas {
		c.Remove = append(c.Remove, api.RegionStart{VA: api.Hex(va), RKey: 0x88})
	}
	return c
}

// has checks that box b1 publishes and lists the regions at these addresses, each where the
// receivers keep it.
func (f *fabric) hasTable(vas ...uint64) {
	f.t.Helper()
	var want []string
	for _, va := range vas {
		want = append(want, fmt.Sprintf("%#x+16/0x88: 10.1.0.2=%#x/0x1 10.1.0.3=%#x/0x2", va, va+1<<32, va+2<<32))
	}
	if got := f.box("b1").memory(); got != strings.Join(want, "; ") {
		f.t.Errorf("\ngot  %s\nwant %s", got, strings.Join(want, "; "))
	}
	list, err := f.box("b1").Regions("g1", 0, api.MaxRegions)
	if err != nil || list.Total != len(vas) || len(list.Regions) != len(vas) {
		f.t.Fatalf("%+v, %v", list, err)
	}
	for i, va := range vas {
		r := list.Regions[i]
		if uint64(r.VA) != va || r.Length != 16 || *r.RKey != 0x88 || len(r.At) != 2 || r.At[1].IP != "10.1.0.3" || uint64(r.At[1].VA) != va+2<<32 || *r.At[1].RKey != 2 || r.At[1].RemoteQPN != 1 {
			f.t.Errorf("%+v", r)
		}
	}
}

func (f *fabric) mustChange(change api.RegionChange) api.Group {
	f.t.Helper()
	g, err := f.box("b1").changeRegions(f.t, change)
	if err != nil {
		f.t.Fatal(err)
	}
	return g
}

// Regions of a table come and leave without the group file, and a restart finds them, whether the
// daemon stopped or was killed.
func TestATableOutlivesTheDaemon(t *testing.T) {
	f := newTree(t)
	f.create(tableFile(nearReceivers...))
	b1 := f.box("b1")
	if m := b1.published("g1").Memory; m == nil || m.Len() != 0 {
		t.Error("a table without regions passes every WRITE")
	}
	file, _ := b1.Store.Get("g1")
	f.mustChange(adding(0x3000, 0x1000))
	if g := f.mustChange(adding(0x2000)); g.RegionCount != 3 || g.Memory != nil || g.Members[1].Regions != nil {
		t.Errorf("%+v", g)
	}
	f.hasTable(0x1000, 0x2000, 0x3000)
	f.mustChange(removing(0x1000))
	for _, clean := range []bool{true, false} {
		b1.restart(clean, false)
		f.hasTable(0x2000, 0x3000)
	}
	change := removing(0x3000)
	change.Add = adding(0x4000, 0x5000).Add
	f.mustChange(change)
	b1.restart(true, false)
	f.hasTable(0x2000, 0x4000, 0x5000)
	if now, _ := b1.Store.Get("g1"); string(now) != string(file) {
		t.Errorf("the group file has changed:\n%s", now)
	}
	list, err := b1.Regions("g1", 1, 1)
	if err != nil || list.Total != 3 || list.From != 1 || len(list.Regions) != 1 || list.Regions[0].VA != 0x4000 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := b1.Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.create(tableFile(nearReceivers...)) // it has nothing of the group before
	f.hasTable()
}

// A change that cannot be made changes nothing: neither what is published nor what is stored.
func TestATableThatCannotChange(t *testing.T) {
	f := newTree(t)
	f.create(tableFile(nearReceivers...))
	b1 := f.box("b1")
	f.mustChange(adding(0x1000))
	lacksPlace := adding(0x2000)
	lacksPlace.Add[0].At = lacksPlace.Add[0].At[:1]
	both := removing(0x1000)
	both.Add = adding(0x1000).Add
	wide := removing(0x1000)
	wide.Remove[0].RKey += 1 << 32
	for want, change := range map[string]api.RegionChange{
		"the range of memory at VA 0x1008 overlaps another one under the same R_Key, so an address in both would be ambiguous": adding(0x1008),
		"the range of memory at VA 0x2000 overlaps another one under the same R_Key, so an address in both would be ambiguous": adding(0x2000, 0x2000),
		"the range of memory at VA 0x1000 leaves and comes in one change; make two":                                            both,
		"receiver 10.1.0.3 has no place for the region at VA 0x2000; add where it keeps the region":                            lacksPlace,
		"group g1 has no region that begins at VA 0x1001 under that R_Key; rocast region ls g1 lists them":                     removing(0x1001),
		"group g1 has no region that begins at VA 0x1000 under that R_Key; rocast region ls g1 lists them":                     wide,
		"the range of memory at VA 0xfffffffffffffff8 ends beyond 2^64":                                                        adding(1<<64 - 8),
	} {
		if _, err := b1.changeRegions(t, change); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	b1.sw.Refuse(errors.New("no room"))
	if _, err := b1.changeRegions(t, adding(0x2000)); err == nil || err.Error() != "no room" {
		t.Error(err)
	}
	f.hasTable(0x1000)
	b1.restart(false, false)
	f.hasTable(0x1000)
}

// A receiver leaves a group with a table. One that comes has no place for the regions and is
// refused; while there are none it joins.
func TestReceiversOfATable(t *testing.T) {
	f := newTree(t)
	f.create(tableFile("10.1.0.2", "10.1.0.3", "10.1.0.4"))
	b1 := f.box("b1")
	change := adding(0x1000)
	change.Add[0].At = append(change.Add[0].At, api.RegionAt{IP: "10.1.0.4", VA: 4, RKey: 4})
	f.mustChange(change)
	b1.update(t, tableFile(nearReceivers...))
	f.hasTable(0x1000)
	f.mustChange(adding(0x2000))
	b1.restart(false, false)
	f.hasTable(0x1000, 0x2000)
	_, err := b1.Update(t.Context(), "g1", []byte(tableFile("10.1.0.2", "10.1.0.3", "10.1.0.4")))
	if want := "line 10: the member at 10.1.0.4 would join, and where it keeps the 2 regions of the group is not known; " +
		"remove the regions first (rocast region rm), or the group, and create it again with this member"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	_, err = b1.Update(t.Context(), "g1", []byte(groupFile(nearReceivers...)))
	if want := "line 5: memory is a table in one of the running group and the file, and a list in the other; keep what the running group has, or " +
		"remove the group and create it again"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	f.mustChange(removing(0x1000, 0x2000))
	b1.update(t, tableFile("10.1.0.2", "10.1.0.3", "10.1.0.4"))
	f.mustChange(change)
	b1.restart(true, false)
	if got, want := b1.memory(), "0x1000+16/0x88: 10.1.0.2=0x100001000/0x1 10.1.0.3=0x200001000/0x2 10.1.0.4=0x4/0x4"; got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

// Other boxes learn of memory by the group file alone.
func TestATableIsForOneBox(t *testing.T) {
	f := newTree(t)
	f.refused(tableFile("10.1.0.2", "10.3.0.1"), "memory is a table and some members are behind other boxes, which learn of memory only by the group file; "+
		"list the regions there (at most 4096)")
	f.nothingLeft()
	f.box("b1").shared = new(shared.Shared)
	f.refused(tableFile("10.1.0.2"), "memory is a table, which only this box would have, and with store: etcd all boxes share what they know of a group; "+
		"list the regions in the file (at most 4096)")
}

// The file of a table does not grow for ever while regions come and leave.
func TestTheFileOfATableIsWrittenAnew(t *testing.T) {
	testlab.Long(t)
	f := newTree(t)
	f.create(tableFile(nearReceivers...))
	b1 := f.box("b1")
	const each = 4000
	f.mustChange(adding(0x10))
	var vas []uint64
	for i := range each {
		vas = append(vas, 0x1000+uint64(i)<<4)
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(b1.dir, "groups", "g1.regions"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for last := int64(0); size() >= last; {
		if last = size(); last > 64<<20 {
			t.Fatalf("the file has %d bytes, and the group one region", last)
		}
		f.mustChange(adding(vas...))
		f.mustChange(removing(vas...))
	}
	if size() > 1<<10 {
		t.Errorf("the file has %d bytes for one region", size())
	}
	f.mustChange(adding(0x1000))
	b1.restart(false, false)
	f.hasTable(0x10, 0x1000)
}

// A table that is damaged, also in its last change, or is gone fails its group, and says so: nobody
// may WRITE to memory that has left, and a source whose memory is gone must not be refused it.
func TestADamagedTable(t *testing.T) {
	for _, c := range []struct {
		is     string
		damage func(path string, text []byte) error
	}{
		{"damaged", func(path string, text []byte) error {
			text[20] ^= 1
			return os.WriteFile(path, text, 0o600)
		}},
		{"damaged", func(path string, text []byte) error {
			text[len(text)-20] ^= 1
			return os.WriteFile(path, text, 0o600)
		}},
		{"damaged", func(path string, _ []byte) error { return os.Truncate(path, 0) }},
		{"missing", func(path string, _ []byte) error { return os.Remove(path) }},
	} {
		f := newTree(t)
		f.create(tableFile(nearReceivers...))
		b1 := f.box("b1")
		b1.restart(false, false)
		f.hasTable() // a table without regions has a file too
		f.mustChange(adding(0x1000))
		f.mustChange(removing(0x1000))
		path := filepath.Join(b1.dir, "groups", "g1.regions")
		text, err := os.ReadFile(path)
		if err == nil {
			err = c.damage(path, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		b1.restart(false, false)
		g, err := b1.Group("g1")
		want := "read the regions of group g1: the file with its regions is " + c.is +
			"; repair the cause and restart rocastd, or remove the group and create it again"
		if err != nil || g.State != api.Failed || g.Reason != want {
			t.Errorf("%s: %+v, %v", c.is, g.GroupSummary, err)
		}
		if _, err := b1.changeRegions(t, adding(0x2000)); err == nil {
			t.Errorf("%s: a group that failed has changed", c.is)
		}
	}
}
