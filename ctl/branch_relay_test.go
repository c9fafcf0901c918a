package ctl

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
)

// relayed returns the path by which the root has a member behind b2.
func (f *fabric) relayed(member string) *mft.Path {
	f.t.Helper()
	b1 := f.box("b1")
	l, g := b1.groups.Named("g1").Links[0], b1.published("g1")
	end := l.EndOf(b1.groups.Named("g1").Wanted, idOf(member))
	i := g.FindPath(end.IP, end.RemoteQPN)
	if i < 0 {
		f.t.Fatalf("the root has no path for %s", member)
	}
	return &g.Paths[i]
}

// Over a tree a quorum counts each receiver, wherever it is: the root has a path for each, and the
// boxes behind pass frames on. A new packet crosses each link once.
func TestAQuorumCountsReceiversWhereverTheyAre(t *testing.T) {
	f := newTree(t)
	f.create(quorumFile(everywhere...))
	up, mid, low := f.box("b1").published("g1"), f.box("b2").published("g1"), f.box("b3").published("g1")
	if len(up.Paths) != len(everywhere) || up.Relay != nil || up.Policy.Ack != 2 {
		t.Fatalf("b1 has %d paths, policy %+v", len(up.Paths), up.Policy)
	}
	for i := range up.Paths {
		if up.Paths[i].Receivers != 0 || up.Paths[i].Box != mft.NoBox {
			t.Errorf("%+v", up.Paths[i])
		}
	}
	if len(up.Shares) != 1 || len(up.Shares[0].Members) != 4 || up.Shares[0].Dst != linkIP(2) || up.Shares[0].DestQPN != mid.Source.RemoteQPN {
		t.Errorf("b1 shares %+v", up.Shares)
	}
	if mid.Relay == nil || low.Relay == nil || mid.Policy != (feedback.Policy{}) || mid.Relay.Shared != mid.Source.RemoteQPN {
		t.Fatalf("b2 %+v, b3 %+v", mid.Relay, low.Relay)
	}
	if len(mid.Shares) != 1 || mid.Shares[0].Dst != linkIP(3) || mid.Shares[0].DestQPN != low.Source.RemoteQPN {
		t.Errorf("b2 shares %+v", mid.Shares)
	}
	// What the root sends to 10.3.0.2 alone is named so at b2, and again at b3. It has the PSNs
	// that the host expects from the root on.
	p := f.relayed("10.3.0.2")
	at := mid.FindEnd(p.DestQPN)
	if at < 0 || p.RemoteQPN != p.DestQPN || p.FirstPSN != 32 {
		t.Fatalf("%+v is path %d of b2", p, at)
	}
	next := low.FindEnd(mid.Paths[at].DestQPN)
	if next < 0 || low.Paths[next].Dst != addr("10.3.0.2") || low.Paths[next].DestQPN != 132 {
		t.Errorf("%+v is path %d of b3", mid.Paths[at], next)
	}
	if e := low.End(next); !e.Mapped || e.AddPSN != 0x1000000+32-1000 {
		t.Errorf("%+v", e)
	}
	// The user sees the members as they are.
	g, _ := f.box("b1").Group("g1")
	var ips []string
	for _, m := range g.Members {
		ips = append(ips, m.IP)
	}
	if want := append([]string{"10.1.0.1"}, everywhere...); !slices.Equal(slices.Sorted(slices.Values(ips)), slices.Sorted(slices.Values(want))) || len(g.Notes) > 0 {
		t.Errorf("%v, %q", ips, g.Notes)
	}
	if err := f.box("b1").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
}

// Whichever box restarts, all QPNs and mappings are what they were.
func TestRelaysAfterARestart(t *testing.T) {
	f := newTree(t)
	f.create(quorumFile(everywhere...))
	before := map[string]*mft.Group{}
	for _, name := range []string{"b1", "b2", "b3"} {
		before[name] = f.box(name).published("g1")
		f.box(name).restart(false, false)
		f.renewAll()
	}
	for name, was := range before {
		is := f.box(name).published("g1")
		for i := range was.Paths {
			if is.Paths[i].QP() != was.Paths[i].QP() || is.Paths[i].DestQPN != was.Paths[i].DestQPN || is.Relay != nil && *is.End(i) != *was.End(i) {
				t.Errorf("%s: %+v, and it was %+v", name, is.Paths[i], was.Paths[i])
			}
		}
		if is.Source.RemoteQPN != was.Source.RemoteQPN {
			t.Errorf("%s: its link has QPN %d, and had %d", name, is.Source.RemoteQPN, was.Source.RemoteQPN)
		}
	}
	// A box that has lost everything is told again.
	b2 := f.box("b2")
	b2.restart(false, true)
	f.renewAll()
	if is := b2.published("g1"); is == nil || is.FindEnd(f.relayed("10.3.0.2").DestQPN) < 0 {
		t.Errorf("%+v", is)
	}
}

// Who joins behind a link has copies of its own there, because its PSNs go with those of its first
// packet. One that leaves is gone at all boxes.
func TestWhoJoinsBehindARelaySharesNothing(t *testing.T) {
	f := newTree(t)
	f.create(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	b1, b3 := f.box("b1"), f.box("b3")
	b1.sw.Carry("g1", 1005)
	b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.3.0.3"))
	up, low := b1.published("g1"), b3.published("g1")
	if len(up.Paths) != 4 || len(low.Paths) != 3 || low.End(2).Mapped || !low.End(1).Mapped || len(up.Shares) != 1 || len(up.Shares[0].Members) != 2 {
		t.Fatalf("b1 %+v\nb3 %+v", up.Shares, low.Relay.Ends)
	}
	if id := b1.groups.Named("g1").Links[0].EndOf(b1.groups.Named("g1").Wanted, idOf("10.3.0.3")); b1.groups.Named("g1").Past.Standing(id) != "joining" {
		t.Errorf("b1 has it as %q", b1.groups.Named("g1").Past.Standing(id))
	}
	if s := b3.groups.Named("g1").Past.Standing(idOf("10.3.0.3")); s != "" {
		t.Errorf("b3 has it as %q", s)
	}
	b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.3"))
	if up, low = b1.published("g1"), b3.published("g1"); len(up.Paths) != 3 || len(low.Paths) != 2 || len(up.Shares) != 0 {
		t.Errorf("b1 has %d paths and %d shares, b3 %d paths", len(up.Paths), len(up.Shares), len(low.Paths))
	}
}

// A receiver that the root leaves out must get no copies any more, and the box behind would map
// them for it.
func TestWhoIsOutBehindARelayEndsTheSharing(t *testing.T) {
	f := newTree(t)
	f.create(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	b1 := f.box("b1")
	id := f.relayed("10.3.0.2").QP()
	b1.note(dataplane.Note{Group: b1.groups.Named("g1").ID, Receiver: id.IP, RemoteQPN: id.RemoteQPN, What: feedback.NoteBehind, PSN: 1003})
	if e := b1.happened(); !slices.ContainsFunc(e, func(line string) bool { return strings.HasPrefix(line, "member-behind g1 10.3.0.2") }) {
		t.Errorf("%q", e)
	}
	b1.restart(false, false)
	f.renewAll()
	if g := b1.published("g1"); len(g.Shares) != 0 {
		t.Errorf("%+v", g.Shares)
	}
}

// A box merges what its receivers answer where one of them may send, and one of an older release
// always does.
func TestWhereBoxesMergeForAQuorum(t *testing.T) {
	f := newTree(t)
	text := strings.Replace(quorumFile(everywhere...), "psn: 31,", "psn: 31, role: both, sendPSN: 300,", 1)
	f.create(text)
	if g := f.box("b1").published("g1"); f.box("b2").published("g1").Relay != nil || g.Paths[1].Receivers != 4 {
		t.Errorf("%+v", g.Paths)
	}
	if err := f.box("b1").Remove("g1"); err != nil {
		t.Fatal(err)
	}
	f.create(quorumFile("10.1.0.2", "10.3.0.1"))
	_, err := f.box("b1").Update(t.Context(), "g1", []byte(strings.Replace(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"), "psn: 32,", "psn: 32, role: both, sendPSN: 300,", 1)))
	if err == nil || !strings.Contains(err.Error(), "the member at 10.3.0.2 has role both and is behind box b2") {
		t.Error(err)
	}
}

// What the data path refuses while a link gets another end is tried again with the next look.
func TestARefusedEndOfALinkIsTriedAgain(t *testing.T) {
	f := newTree(t)
	f.create(quorumFile(everywhere...))
	b1 := f.box("b1")
	g := b1.groups.Named("g1")
	look := func() []string {
		b1.groups.Lock()
		defer b1.groups.Unlock()
		b1.sw.Replaced()
		b1.groups.ShareAsNow(g)
		return b1.sw.Replaced()
	}
	b1.sw.Refuse(errors.New("no memory"))
	b1.groups.Lock()
	groups.ShareLinks(b1.groups, g)
	b1.groups.Unlock()
	if got := look(); !slices.Equal(got, []string{"g1"}) {
		t.Errorf("after it was refused: %q", got)
	}
	if got := look(); len(got) > 0 {
		t.Errorf("nothing is to change: %q", got)
	}
}
