package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
)

// another is a change that lets one region come, at VA 0x20000 under R_Key 0x88. Each receiver of
// groupFile has it where it has the first one, and 2^32 above.
func another(receivers ...string) api.RegionChange {
	r := api.NewRegion{VA: 0x20000, Length: 100, RKey: 0x88}
	for _, ip := range receivers {
		a := addr(ip).As4()
		r.At = append(r.At, api.RegionAt{IP: ip, VA: api.Hex(4096*(10*int(a[1])+int(a[3])) + 1<<32), RKey: 8})
	}
	return api.RegionChange{Add: []api.NewRegion{r}}
}

func (w *world) changeRegions(t *testing.T, change api.RegionChange) (api.Group, error) {
	t.Helper()
	request, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	return w.ChangeRegions(t.Context(), "g1", request)
}

// memory says what memory a box publishes, and where its receivers have it.
func (b *box) memory() string {
	g := b.published("g1")
	if g == nil {
		return "no group"
	}
	var s strings.Builder
	for i, v := range g.Memory.All {
		fmt.Fprintf(&s, "%#x+%d/%#x:", v.VA, v.Length, v.RKey)
		for k := range g.Paths {
			r := g.Paths[k].Regions.Region(g.Memory, i)
			fmt.Fprintf(&s, " %v=%#x/%#x", g.Paths[k].Dst, r.VA, r.RKey)
		}
		s.WriteString("; ")
	}
	return strings.TrimSuffix(s.String(), "; ")
}

func (f *fabric) checkMemory(want map[string]string) {
	f.t.Helper()
	for _, b := range f.boxes {
		if got := b.memory(); got != want[b.name] {
			f.t.Errorf("%s has\n%s, want\n%s", b.name, got, want[b.name])
		}
	}
}

// oneRegion and twoRegions are what the boxes of newTree have with the receivers of inTree.
var (
	inTree    = []string{"10.1.0.2", "10.3.0.1", "10.4.0.1"}
	oneRegion = map[string]string{
		"b1": "0x10000+4096/0x77: 10.1.0.2=0xc000/0x7 10.9.0.2=0x10000/0x77",
		"b2": "0x10000+4096/0x77: 10.9.0.3=0x10000/0x77 10.9.0.4=0x10000/0x77",
		"b3": "0x10000+4096/0x77: 10.3.0.1=0x1f000/0x7",
		"b4": "0x10000+4096/0x77: 10.4.0.1=0x29000/0x7",
	}
	twoRegions = map[string]string{
		"b1": oneRegion["b1"] + "; 0x20000+100/0x88: 10.1.0.2=0x10000c000/0x8 10.9.0.2=0x20000/0x88",
		"b2": oneRegion["b2"] + "; 0x20000+100/0x88: 10.9.0.3=0x20000/0x88 10.9.0.4=0x20000/0x88",
		"b3": oneRegion["b3"] + "; 0x20000+100/0x88: 10.3.0.1=0x10001f000/0x8",
		"b4": oneRegion["b4"] + "; 0x20000+100/0x88: 10.4.0.1=0x100029000/0x8",
	}
)

// A region that comes or leaves does so at all boxes, and each box has where its own receivers keep
// it. A box that restarts has it too.
func TestRegionsOfATree(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(inTree...))
	f.checkMemory(oneRegion)
	b1 := f.box("b1")
	if g, err := b1.changeRegions(t, another(inTree...)); err != nil || len(g.Memory) != 2 {
		t.Fatalf("%+v, %v", g, err)
	}
	f.checkMemory(twoRegions)
	for _, b := range f.boxes {
		b.restart(true, false)
	}
	f.checkMemory(twoRegions)
	if _, err := b1.changeRegions(t, api.RegionChange{Remove: []api.RegionStart{{VA: 0x20000, RKey: 0x88}}}); err != nil {
		t.Fatal(err)
	}
	f.checkMemory(oneRegion)
	if _, err := b1.changeRegions(t, api.RegionChange{Remove: []api.RegionStart{{VA: 0x10000, RKey: 0x77}}}); err != nil {
		t.Fatal(err)
	}
	f.checkMemory(map[string]string{})
	if m := b1.published("g1").Memory; m == nil {
		t.Error("a group without a region passes every WRITE")
	}
	if _, err := f.box("b2").changeRegions(t, another(inTree...)); err == nil ||
		err.Error() != "group g1 was created on box b1, which asks this box for a part of it; change or remove it there" {
		t.Errorf("%v", err)
	}
}

// A region that one box cannot take comes to none.
func TestARegionThatOneBoxRefuses(t *testing.T) {
	f := newTree(t)
	f.create(groupFile(inTree...))
	f.box("b4").sw.Refuse(errors.New("no room"))
	_, err := f.box("b1").changeRegions(t, another(inTree...))
	if want := "group g1 could not be set up: box b2 refuses: group g1 could not be set up: box b4 refuses: no room"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	f.tendAll(time.Now())
	f.checkMemory(oneRegion)
}

// A box that was not reached while memory and members changed hears of both at once.
func TestABoxThatMissesAChangeOfMemory(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1"))
	if _, err := f.box("b1").changeRegions(t, another("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.4.0.1")); err != nil {
		t.Fatal(err)
	}
	epoch := f.box("b3").published("g1").ID
	f.cuts(func(_, to, _ string) (bool, bool) { return to != "b3", to != "b3" })
	text, _ := f.box("b1").Store.Get("g1")
	var fewer []string
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.Contains(line, `"10.3.0.2"`) {
			fewer = append(fewer, line)
		}
	}
	f.box("b1").update(t, strings.Join(fewer, "\n"))
	// Memory that leaves cannot be told to b3 either: the change is refused, and nobody makes it.
	if _, err := f.box("b1").changeRegions(t, api.RegionChange{Remove: []api.RegionStart{{VA: 0x20000, RKey: 0x88}}}); err == nil {
		t.Error("the memory has changed, and b3 does not know")
	}
	f.cuts(nil)
	for range 3 {
		for _, b := range f.boxes {
			b.due("g1")
		}
		f.tendAll(time.Now())
	}
	f.checkMemory(twoRegions)
	if f.box("b3").published("g1").ID != epoch {
		t.Error("b3 has made the group anew, and its receivers' PSNs are lost")
	}
}

// A group that was changed by someone else meanwhile is not changed back.
func TestRegionsOfAnotherVersion(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2"))
	b1 := f.box("b1")
	_, from, err := b1.running(t.Context(), "g1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b1.changeRegions(t, another("10.1.0.2")); err != nil {
		t.Fatal(err)
	}
	const want = "group g1 was changed by someone else at the same time; look at it with rocast group show, and try again"
	if _, err := b1.Controller.update(t.Context(), "g1", []byte(groupFile("10.1.0.2")), from); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if got := b1.published("g1").Memory.Len(); got != 2 {
		t.Errorf("%d regions", got)
	}
}

// What a change of regions cannot be is refused in one sentence without an R_Key.
func TestRegionsThatCannotChange(t *testing.T) {
	f := newTree(t)
	f.create(groupFile("10.1.0.2") + "  - {ip: 10.1.0.2, qpn: 300, psn: 1, remoteQPN: 9, regions: {va: 0, length: 4096, rkey: 1}}\n")
	b1 := f.box("b1")
	add := func(edit func(*api.NewRegion)) api.RegionChange {
		c := another("10.1.0.2", "10.1.0.2")
		c.Add[0].At[0].RemoteQPN, c.Add[0].At[1].RemoteQPN = 1, 9
		edit(&c.Add[0])
		return c
	}
	for want, change := range map[string]api.RegionChange{
		"10.1.0.2 has several receivers of group g1; add the remoteQPN of the one that is meant":            add(func(r *api.NewRegion) { r.At[0].RemoteQPN = 0 }),
		"10.1.0.2 is no receiver of group g1; rocast group show g1 lists them":                              add(func(r *api.NewRegion) { r.At[0].RemoteQPN = 7 }),
		"\"x\" is no address; write that of a receiver, such as 10.77.0.2":                                  add(func(r *api.NewRegion) { r.At[0].IP = "x" }),
		"the R_Key of the region at VA 0x20000 has more than 32 bits":                                       add(func(r *api.NewRegion) { r.RKey = 1 << 32 }),
		"the R_Key of receiver 10.1.0.2 for the region at VA 0x20000 has more than 32 bits":                 add(func(r *api.NewRegion) { r.At[1].RKey = 1 << 32 }),
		"the region at VA 0x20000 has length 0; write its length in bytes":                                  add(func(r *api.NewRegion) { r.Length = 0 }),
		"memory 2 ends beyond 2^64; write a smaller va or length":                                           add(func(r *api.NewRegion) { r.VA = 1<<64 - 50 }),
		"group g1 has no region that begins at VA 0x10000 under that R_Key; rocast region ls g1 lists them": {Remove: []api.RegionStart{{VA: 0x10000, RKey: 0x77 + 1<<32}}},
	} {
		if _, err := b1.changeRegions(t, change); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	for request, want := range map[string]string{
		`{"add": 0x5ec4e7}`: "the change of regions cannot be read; write add and remove, with numbers like 0x10000 in quotes",
		`{"adds": []}`:      "the change of regions cannot be read; write add and remove, with numbers like 0x10000 in quotes",
	} {
		if _, err := b1.ChangeRegions(t.Context(), "g1", []byte(request)); err == nil || err.Error() != want {
			t.Errorf("%s: %v", request, err)
		}
	}
	var many api.RegionChange
	for i := range 4095 {
		r := add(func(r *api.NewRegion) { r.VA, r.Length = api.Hex(1<<40+i<<20), 1<<19 }).Add[0]
		for k := range r.At {
			r.At[k].VA, r.At[k].RKey = 0xFFFF_0000_0000_0000, 0xFFFF_FFFF
		}
		many.Add = append(many.Add, r)
	}
	if _, err := b1.changeRegions(t, many); err == nil || !strings.Contains(err.Error(), "values; split it") {
		t.Errorf("%v", err)
	}
	if m := b1.published("g1").Memory; m.Len() != 1 || m.Range(0) != (mft.VirtualRegion{VA: 0x10000, Length: 4096, RKey: 0x77}) {
		t.Errorf("%d regions", m.Len())
	}
	f.create(strings.NewReplacer("name: g1", "name: g2", "qpn: 1\n", "qpn: 2\n", "memory: {va: 0x10000, length: 4096, rkey: 0x77}\n", "",
		"qpn: 17", "qpn: 27", "qpn: 112", "qpn: 212", ", regions: {va: 12, length: 4096, rkey: 7}", "").Replace(strings.Replace(groupFile("10.1.0.2"), "va: 49152", "va: 12", 1)))
	request, _ := json.Marshal(another("10.1.0.2"))
	if _, err := b1.ChangeRegions(t.Context(), "g2", request); err == nil || err.Error() !=
		"group g2 has no memory, so its copies keep the addresses and keys of the source; create it with memory: [] to add regions later" {
		t.Errorf("%v", err)
	}
}

// A region comes to the group of a perftest run or an RDMA-CM connection too, and leaves it. Such a
// group is not stored, and its region is not either.
func TestARegionOfAConnection(t *testing.T) {
	w := newWorld(t)
	groups := groupsOf(w.Controller)
	if err := groups.Create(t.Context(), runFile(t)); err != nil {
		t.Fatal(err)
	}
	unstored := strings.NewReplacer("g1.yaml", "", "g1", "run").Replace(withG1)
	has := func(regions int) {
		t.Helper()
		var got []mft.VirtualRegion
		for _, v := range w.sw.Table().Group(0).Memory.All {
			got = append(got, v)
		}
		if len(got) != regions || slices.Contains(got, mft.VirtualRegion{VA: 0x20000, Length: 100, RKey: 0x88}) != (regions == 2) {
			t.Errorf("the group has %+v", got)
		}
		w.expect(t, unstored)
	}
	change := func(r api.RegionChange) error {
		t.Helper()
		request, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.ChangeRegions(t.Context(), "run", request)
		return err
	}
	has(1)
	if err := change(another("10.77.0.2", "10.77.0.3")); err != nil {
		t.Fatal(err)
	}
	has(2)
	gone := api.RegionChange{Remove: []api.RegionStart{{VA: 0x20000, RKey: 0x88}}}
	w.sw.Refuse(errors.New("no room"))
	if err := change(gone); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Error(err)
	}
	has(2)
	if err := change(gone); err != nil {
		t.Error(err)
	}
	has(1)
	if err := groups.Remove(t.Context(), "run"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

// What was changed from a group of this box alone is no change of a shared group that has its name.
func TestAChangeFromAGroupOfThisBoxAlone(t *testing.T) {
	for _, c := range []struct {
		from *basis
		want string
	}{
		{nil, "0 <nil>"},
		{&basis{revision: 7}, "7 <nil>"},
		{&basis{file: &groupfile.File{}}, "0 group g1 was changed by someone else at the same time; look at it with rocast group show, and try again"},
	} {
		revision, err := c.from.inEtcd("g1")
		if got := fmt.Sprint(revision, err); got != c.want {
			t.Errorf("%+v: %s", c.from, got)
		}
	}
}
