package groups

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/mft"
)

// newSet returns a Set on a state directory. The hosts of ctltest.G1 are behind eth1, eth2 and
// eth3.
func newSet(t *testing.T, dir string) *Set {
	t.Helper()
	state, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	sw, hops := ctltest.NewSwitch("eth1", "eth2", "eth3"), ctltest.NewHops()
	hops.SetG1()
	s := NewSet(Parts{Switch: sw, NextHops: hops, Addresses: ctltest.NewAddresses(), Store: state, Log: zap.NewNop()}, ports.New(sw.Ports()))
	if err := s.Restore(); err != nil {
		t.Fatal(err)
	}
	return s
}

// put adds the group that a text describes.
func (s *Set) put(t *testing.T, text string) *Group {
	t.Helper()
	g := New(parsed(t, text), true)
	if err := s.Add(g, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return g
}

// removeNamed removes a group.
func (s *Set) removeNamed(t *testing.T, name string) {
	t.Helper()
	s.Lock()
	defer s.Unlock()
	if err := s.Forget(s.Named(name)); err != nil {
		t.Fatal(err)
	}
}

func parsed(t *testing.T, text string) *groupfile.File {
	t.Helper()
	f, err := groupfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// receiver3 is the last receiver of ctltest.G1, and receiver4 one that could take its place.
const (
	receiver3 = "  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [{va: 0x7f1000000000, length: 4096, rkey: 0xfeedbea9}]}\n"
	receiver4 = "  - {ip: 10.77.0.4, qpn: 20, psn: 9, regions: [{va: 0x7f2000000000, length: 4096, rkey: 0xfeedbeaa}]}\n"
)

var id3 = groupfile.ID{IP: netip.MustParseAddr("10.77.0.3"), RemoteQPN: 1}

// nextOf returns the next version of a group.
func nextOf(g *Group, file *groupfile.File) *Group {
	next := *g
	next.Wanted, next.File, next.Past = file, file, g.Past.Next(g.File, file)
	return &next
}

// Readers see a group when the change that makes it ends, and no more when the change that removes
// it ends. What they have seen stays as it was.
func TestReadersSeeAChangeWhenItEnds(t *testing.T) {
	s := newSet(t, t.TempDir())
	g := s.put(t, ctltest.G1)
	seen := s.Seen("g1")
	s.Lock()
	g.Past.Out(id3, chronicle.Evicted, 1007)
	s.Changed(g)
	if s.Seen("g1") != seen || seen.Past.Standing(id3) != "" {
		t.Error("readers see a change that has not ended")
	}
	s.Unlock()
	if next := s.Seen("g1"); next == seen || next.Past.Standing(id3) != chronicle.Evicted || seen.Past.Standing(id3) != "" {
		t.Error("readers do not see the change, or what they had has changed")
	}
	s.removeNamed(t, "g1")
	if s.Seen("g1") != nil || len(s.AllSeen()) != 0 {
		t.Error("readers see a group that has gone")
	}
}

// A crash between the two writes of an update leaves the old text: the state beside it says of both
// versions' receivers how they stood.
func TestTheStateOfAnUpdateCoversBothVersions(t *testing.T) {
	s := newSet(t, t.TempDir())
	g := s.put(t, ctltest.G1)
	s.Lock()
	defer s.Unlock()
	g.Past.Out(id3, chronicle.Evicted, 1007)
	s.Changed(g)
	next := parsed(t, strings.Replace(ctltest.G1, receiver3, receiver4, 1))
	if err := s.keepNext(g, nextOf(g, next), []byte(ctltest.G1)); err != nil {
		t.Fatal(err)
	}
	stored, err := s.Store.Restore()
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	for version, file := range map[string]*groupfile.File{"old": g.File, "new": next} {
		past, err := chronicle.Read(stored[0].State, file, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := past.Standing(file.Receivers[1].ID()); got != map[string]chronicle.Standing{"old": chronicle.Evicted, "new": chronicle.Joining}[version] {
			t.Errorf("in the %s version the second receiver is %q", version, got)
		}
	}
}

// An update removes an evicted receiver, and the daemon crashes between the two writes. The file
// still has the receiver, but it must stay out.
func TestWhoLeavesIsOutUntilTheFileSaysSo(t *testing.T) {
	dir := t.TempDir()
	s := newSet(t, dir)
	g := s.put(t, ctltest.G1)
	inTheWay := filepath.Join(dir, "groups", ".g1.yaml.new") // only the file cannot be written
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(ctltest.G1, receiver3, "", 1)
	s.Lock()
	g.Past.Out(id3, chronicle.Evicted, 1007)
	s.Changed(g)
	err := s.keepNext(g, nextOf(g, parsed(t, without)), []byte(without))
	s.Unlock()
	if err == nil {
		t.Fatal("kept")
	}
	s.Store.Close()
	v := newSet(t, dir).Seen("g1")
	if v.Past.Standing(id3) != chronicle.Evicted || v.Published == nil || v.Published.FindPath(id3.IP, id3.RemoteQPN) >= 0 {
		t.Errorf("%+v", v)
	}
}

// A daemon that dies between the writes of an update has the old file, and the links of all members
// in it.
func TestACrashWithinAnUpdateLosesNoLink(t *testing.T) {
	id := func(ip string) groupfile.ID { return groupfile.ID{IP: netip.MustParseAddr(ip), RemoteQPN: 1} }
	was := []*Link{{Box: "b2", Members: []groupfile.ID{id("10.2.0.1"), id("10.3.0.2")}}}
	next := []*Link{{Box: "b7", Members: []groupfile.ID{id("10.7.0.1")}}, {Box: "b2", Members: was[0].Members[:1]}}
	both := linksOfBoth(was, next, new(groupfile.File))
	if LinkOf(both, id("10.7.0.1")).Box != "b7" || LinkOf(both, id("10.2.0.1")).Box != "b2" || LinkOf(both, id("10.3.0.2")).Box != "b2" || len(both) != 2 {
		t.Errorf("%+v", both)
	}
	if len(next[1].Members) != 1 {
		t.Error("the next links have changed")
	}
	if both = linksOfBoth(was, next[:1], new(groupfile.File)); LinkOf(both, id("10.3.0.2")).Box != "b2" || len(both) != 2 {
		t.Errorf("%+v", both)
	}
}

func TestAGroupThatGoesLeavesNothingInTheIndex(t *testing.T) {
	s := newSet(t, t.TempDir())
	g := s.put(t, ctltest.G1)
	host2, host3 := netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.3")
	other := New(parsed(t, strings.Replace(ctltest.G1, "name: g1", "name: g2", 1)), true)
	key := mft.Key{Dst: netip.MustParseAddr("10.77.0.100"), QPN: 1, Match: mft.MatchDstQPN}
	if s.index.remove(other) || s.byQP[host2][18] != g || s.byKey[key] != g {
		t.Error("a group that is not in it took the QPs or the keys of another one along")
	}
	s.addFailed(other)
	if found := s.ReachedBy([]netip.Addr{netip.MustParseAddr("10.9.9.9")}); len(found) != 0 {
		t.Errorf("reached by a host that is in no group: %v", found)
	}
	if found := s.ReachedBy([]netip.Addr{host3}); len(found) != 2 {
		t.Errorf("reached by a host of both: %v", found)
	}
	if !s.index.remove(other) || s.hasFailed(other) {
		t.Error("a failed group stays")
	}
	g3 := s.put(t, ctltest.AnotherGroup("g3", 3)) // of the same hosts
	for _, name := range []string{"g1", "g3"} {
		if s.byQP[host2][318] != g3 {
			t.Errorf("before %s goes, g3 is not found by its QP", name)
		}
		s.removeNamed(t, name)
	}
	if len(s.byQP) != 0 || len(s.byKey) != 0 || len(s.failed) != 0 {
		t.Errorf("left: %+v", s.index)
	}
}

// A stored group that fails is shown with the reason, and is tried again.
func TestAStoredGroupThatFailsIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	s := newSet(t, dir)
	s.put(t, ctltest.G1)
	s.Store.Close()
	s = newSet(t, dir)
	s.Lock()
	g := s.Named("g1")
	if err := s.end(g); err != nil {
		t.Fatal(err)
	}
	g.Problem = "the classifier is full"
	s.trackFailed(g)
	s.Changed(g)
	s.Unlock()
	if v := s.Seen("g1"); v.Published != nil || v.Problem != "the classifier is full" {
		t.Errorf("%+v", v)
	}
	s.RetryFailed()
	if v := s.Seen("g1"); v.Published == nil || v.Problem != "" {
		t.Errorf("tried again: %+v", v)
	}
}

// A change of a group waits for the one under way, unless an upper box asks for it while this box
// changes the group itself: the two could wait for each other.
func TestOneChangeOfAGroupAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames()
		unlock, busy, err := n.Lock(t.Context(), "g1", "")
		if busy || err != nil {
			t.Fatal(busy, err)
		}
		if _, busy, err := n.Lock(t.Context(), "g1", "b1"); !busy || err != nil {
			t.Errorf("for an upper box: busy %v, %v", busy, err)
		}
		if _, free := n.TryLock("g1", ""); free {
			t.Error("two changes at a time")
		}
		if free, ok := n.TryLock("g2", ""); !ok {
			t.Error("a change of another group waits")
		} else {
			free()
		}
		var order []string
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			next, _, err := n.Lock(t.Context(), "g1", "")
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, "second")
			next()
		}()
		synctest.Wait() // it waits
		order = append(order, "first")
		unlock()
		if <-begun; !slices.Equal(order, []string{"first", "second"}) {
			t.Errorf("in the order %q", order)
		}
	})
}
