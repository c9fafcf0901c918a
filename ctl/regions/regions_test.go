package regions

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
)

var (
	a = groupfile.ID{IP: netip.MustParseAddr("10.77.0.2"), RemoteQPN: 1}
	b = groupfile.ID{IP: netip.MustParseAddr("10.77.0.2"), RemoteQPN: 7}
	c = groupfile.ID{IP: netip.MustParseAddr("fd00::3"), RemoteQPN: 1}
)

// at returns a range of 16 bytes at va. Receiver i of n keeps it 2^32 times i+1 higher.
func at(va uint64, rkey uint32, n int) Range {
	r := Range{VirtualRegion: mft.VirtualRegion{VA: va, Length: 16, RKey: rkey}}
	for i := range n {
		r.At = append(r.At, mft.Region{VA: va + uint64(i+1)<<32, Length: 16, RKey: rkey + uint32(i) + 1})
	}
	return r
}

func (t *Table) text(ids ...groupfile.ID) string {
	var s strings.Builder
	for r := range t.All(ids) {
		fmt.Fprintf(&s, "%#x/%d:", r.VA, r.RKey)
		for _, p := range r.At {
			fmt.Fprintf(&s, " %#x+%d/%d", p.VA, p.Length, p.RKey)
		}
		s.WriteString("; ")
	}
	return strings.TrimSuffix(s.String(), "; ")
}

func mustApply(t *testing.T, table *Table, change Change) *Table {
	t.Helper()
	next, err := table.Apply(change)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// Ranges come and go, each receiver keeps its own place of each, and the tables before stay as they
// were.
func TestATableChanges(t *testing.T) {
	both := []groupfile.ID{a, c}
	empty := new(Table)
	if empty.Memory() == nil || empty.Len() != 0 || empty.text() != "" {
		t.Error("an empty table is no table")
	}
	one := mustApply(t, empty, Change{Receivers: both, Add: []Range{at(0x200, 5, 2), at(0x100, 5, 2), at(0x100, 4, 2)}})
	two := mustApply(t, one, Change{Receivers: both, Remove: []mft.VirtualRegion{at(0x100, 5, 0).VirtualRegion}, Add: []Range{at(0x300, 4, 2)}})
	for got, want := range map[string]string{
		one.text(a, c): "0x100/4: 0x100000100+16/5 0x200000100+16/6; 0x100/5: 0x100000100+16/6 0x200000100+16/7; 0x200/5: 0x100000200+16/6 0x200000200+16/7",
		two.text(c):    "0x100/4: 0x200000100+16/6; 0x300/4: 0x200000300+16/6; 0x200/5: 0x200000200+16/7",
	} {
		if got != want {
			t.Errorf("\ngot  %s\nwant %s", got, want)
		}
	}
	if v, found := two.Find(0x300, 4); !found || v.Length != 16 {
		t.Error(v, found)
	}
	for _, wrong := range []Range{at(0x301, 4, 0), at(0x300, 5, 0), at(0x2FF, 4, 0)} {
		if _, found := two.Find(wrong.VA, wrong.RKey); found {
			t.Errorf("%#x under %d is found", wrong.VA, wrong.RKey)
		}
	}
	if _, err := two.Apply(Change{Receivers: both, Add: []Range{at(0x308, 4, 2)}}); err == nil {
		t.Error("two ranges overlap")
	}
	again := Change{Receivers: both, Remove: []mft.VirtualRegion{at(0x300, 4, 0).VirtualRegion}, Add: []Range{at(0x300, 4, 2)}}
	if _, err := two.Apply(again); err == nil || err.Error() != "the range of memory at VA 0x300 leaves and comes in one change; make two" {
		t.Error(err)
	}
	if _, err := two.Apply(Change{Receivers: []groupfile.ID{a, b}, Add: []Range{at(0x400, 4, 2)}}); err == nil ||
		err.Error() != "where the receiver at 10.77.0.2 keeps the ranges of memory is not known" {
		t.Error(err)
	}
	only := two.Only([]groupfile.ID{c, b})
	if only.text(c) != two.text(c) || len(only.at) != 1 || len(two.at) != 2 {
		t.Error(only.at)
	}
	var part []uint64
	for r := range two.Part(both, 1, 1) {
		part = append(part, r.VA)
	}
	for range two.Part(both, 3, 5) {
		part = append(part, 0)
	}
	if !slices.Equal(part, []uint64{0x300}) {
		t.Error(part)
	}
}

// What is read is what was written, and no truncation of it is read.
func TestChangesComeBack(t *testing.T) {
	want := Change{Receivers: []groupfile.ID{a, c, b}, Remove: []mft.VirtualRegion{at(1<<60, 9, 0).VirtualRegion}, Add: []Range{at(0x100, 5, 3), at(0x200, 0xFFFF_FFF0, 3)}}
	text := want.Append(nil)
	got, err := Read(text)
	if err != nil || fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Fatalf("%v\ngot  %+v\nwant %+v", err, *got, want)
	}
	for n := range text {
		if _, err := Read(text[:n]); err == nil {
			t.Errorf("%d of %d bytes are a change", n, len(text))
		}
	}
	if _, err := Read(append(text, 0)); err == nil {
		t.Error("a byte too many")
	}
	text[0] = 2
	if _, err := Read(text); err == nil || err.Error() != "a change of the memory has version 2, and this rocastd knows version 1" {
		t.Error(err)
	}
	noIP := Change{Receivers: []groupfile.ID{{RemoteQPN: 1}}}
	if _, err := Read(noIP.Append(nil)); err == nil {
		t.Error("a receiver without an address")
	}
	nobody := Change{Add: []Range{at(1, 1, 0)}}
	if _, err := Read(nobody.Append(nil)); err == nil {
		t.Error("a range that no receiver has")
	}
}

// FuzzRead: no bytes make Read fail in another way than by an error, or ask for more memory than
// they stand for.
func FuzzRead(f *testing.F) {
	c := Change{Receivers: []groupfile.ID{a, b}, Remove: []mft.VirtualRegion{at(3, 9, 0).VirtualRegion}, Add: []Range{at(0x100, 5, 2)}}
	f.Add(c.Append(nil))
	f.Add([]byte{version, 1, 0, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // an address of two bytes
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := Read(text); err == nil && string(c.Append(nil)) != string(text) {
			t.Errorf("%q is read as %+v", text, c)
		}
	})
}

// A table that is made of its stored changes is the one that was changed, also when receivers have
// left meanwhile, and when the changes were written anew.
func TestHistoryMakesTheTable(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		ids := []groupfile.ID{b, a, c}
		table, history := new(Table), new(History)
		var there []mft.VirtualRegion
		for range 30 {
			if len(ids) > 1 && random.IntN(20) == 0 {
				ids = slices.Delete(slices.Clone(ids), 0, 1)
				table = table.Only(ids)
			}
			change := Change{Receivers: ids}
			for range random.IntN(4) {
				if len(there) > 0 {
					k := random.IntN(len(there))
					change.Remove = append(change.Remove, there[k])
					there = slices.Delete(there, k, k+1)
				}
			}
			for range random.IntN(5) {
				r := at(random.Uint64N(100)<<8, random.Uint32N(3), len(ids))
				if !slices.Contains(there, r.VirtualRegion) && !slices.Contains(change.Remove, r.VirtualRegion) {
					change.Add, there = append(change.Add, r), append(there, r.VirtualRegion)
				}
			}
			table = mustApply(t, table, change)
			if err := history.Add(change.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		checkSame(t, seed, table, history, ids)
		anew := new(History)
		for part := range table.Parts(ids) {
			if err := anew.Add(part); err != nil {
				t.Fatal(err)
			}
		}
		checkSame(t, seed, table, anew, ids)
	}
}

func checkSame(t *testing.T, seed uint64, table *Table, h *History, ids []groupfile.ID) {
	t.Helper()
	got, err := h.Table(ids)
	if err != nil {
		t.Fatal(err)
	}
	if want := table.text(ids...); got.text(ids...) != want {
		t.Errorf("seed %d:\ngot  %s\nwant %s", seed, got.text(ids...), want)
	}
}

// Many ranges are written in several parts, and none of them is longer than what the store takes.
func TestManyRangesAreWrittenInParts(t *testing.T) {
	ids := []groupfile.ID{a, b}
	change := Change{Receivers: ids}
	for i := range 50_000 {
		change.Add = append(change.Add, at(uint64(i)<<8, 1, 2))
	}
	table := mustApply(t, new(Table), change)
	h, parts, bytes := new(History), 0, 0
	for part := range table.Parts(ids) {
		if parts++; len(part) > partBytes+1<<10 {
			t.Errorf("a part of %d bytes", len(part))
		}
		bytes += len(part)
		if err := h.Add(part); err != nil {
			t.Fatal(err)
		}
	}
	checkSame(t, 0, table, h, ids)
	if parts != 3 || table.Bytes() < int64(bytes)*9/10 || table.Bytes() > int64(bytes) {
		t.Errorf("%d parts of %d bytes, and the table says %d", parts, bytes, table.Bytes())
	}
}

// Changes that do not fit each other were damaged: no table is made of them.
func TestChangesThatDoNotFit(t *testing.T) {
	first := Change{Receivers: []groupfile.ID{a}, Add: []Range{at(0x100, 5, 1)}}
	leaves := Change{Receivers: []groupfile.ID{a}, Remove: []mft.VirtualRegion{at(0x200, 5, 0).VirtualRegion}}
	h := new(History)
	if err := h.Add(first.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := h.Add(leaves.Append(nil)); err == nil {
		t.Error("a range leaves that was not there")
	}
	if err := h.Add([]byte("x")); err == nil {
		t.Error("no change")
	}
	if _, err := h.Table([]groupfile.ID{a, c}); err == nil || err.Error() != "where the receiver at fd00::3 keeps the ranges of memory was not stored" {
		t.Error(err)
	}
}
