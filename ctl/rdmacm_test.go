package ctl

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/events"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The proxy really opens sockets at its group IP, so the IP is one of the loopback's.
const cmRequest = `{"groupIP": "127.0.0.220", "receivers": ["10.77.0.2", "10.77.0.3"], "port": 7174}`

func TestRDMACMOwnsItsIPWhileItIsUp(t *testing.T) {
	w := newWorld(t)
	up, err := w.Services.CMUp(t.Context(), []byte(cmRequest))
	if err != nil || up.GroupIP != "127.0.0.220" || up.Port != 7174 || len(up.Receivers) != 2 || up.Ack != "all" || strings.Join(up.Allow, " ") != "127.0.0.0/8" {
		t.Fatalf("%+v, %v", up, err)
	}
	if n := w.hops.Resolved(); n != 1 {
		t.Errorf("the kernel was waited for %d times", n)
	}
	w.expect(t, "table [], addresses [127.0.0.220@2 x1 127.0.0.220@3 x1], tracking 2, files []")
	for request, want := range map[string]string{
		cmRequest: "RDMA-CM on 127.0.0.220 is already up; take it down first",
		`{"groupIP": "127.0.0.221", "receivers": ["10.77.0.9"], "port": 1}`: "RDMA-CM on 127.0.0.221: 10.77.0.9 is not reached: no route to 10.77.0.9",
		`{"groupIP": "127.0.0.221"}`:                                        "the request has no receivers; add receivers: [ADDRESS, ...], where the programs that listen run",
	} {
		if _, err := w.Services.CMUp(t.Context(), []byte(request)); err == nil || err.Error() != want {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
	if err := w.Services.CMDown("127.0.0.221"); err == nil || err.Error() != "RDMA-CM on 127.0.0.221 is not up; rocast cm ls lists what is up" {
		t.Error(err)
	}
	if err := w.Services.CMDown("127.0.0.220"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
	if list := w.Services.CMs(); len(list.CMs) != 0 {
		t.Errorf("%+v", list)
	}
}

// Receivers may be behind other boxes. These send the copies from the group IP, which stays an
// address of the source's box alone, and leave to the kernel what else is sent between that IP and
// the hosts: the messages of RDMA-CM cross them.
func TestRDMACMPassesBoxes(t *testing.T) {
	f := newTree(t)
	b1 := f.box("b1")
	tracked := b1.hops.Tracked()
	if _, err := b1.Services.CMUp(t.Context(), []byte(`{"groupIP": "127.0.0.223", "receivers": ["10.1.0.2", "10.3.0.1"], "port": 7174}`)); err != nil {
		t.Fatal(err)
	}
	if got := b1.addresses.String(); got != "127.0.0.223@1 x1" {
		t.Errorf("the group IP is at [%s]", got)
	}
	file := treeRunFile(t, everywhere...)
	file.Addressing = mft.BySwitchIP
	groups := groupsOf(b1.Controller)
	if err := groups.Create(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	f.check(wholeTree)
	for _, b := range f.boxes {
		g, isRoot := b.published("g1"), b == b1
		speaks := false
		for _, key := range g.Keys() {
			speaks = speaks || key == mft.Key{Src: file.IP, Match: mft.MatchSrc}
			if key.Match == mft.MatchDst {
				t.Errorf("%s takes all RoCE to %v", b.name, key.Dst)
			}
		}
		if speaks != isRoot {
			t.Errorf("%s drops what comes from the group IP: %v", b.name, speaks)
		}
		if !isRoot && b.addresses.String() != "" {
			t.Errorf("%s has [%s]", b.name, b.addresses.String())
		}
		for i := range g.Paths {
			if p := &g.Paths[i]; !strings.HasPrefix(f.who(p.Dst), "b") && p.Src != file.IP {
				t.Errorf("%s sends to %v from %v", b.name, p.Dst, p.Src)
			}
		}
	}
	f.box("b3").restart(false, false)
	f.check(wholeTree)
	if err := groups.Remove(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	if err := b1.Services.CMDown("127.0.0.223"); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft()
	if n := b1.hops.Tracked(); n != tracked {
		t.Errorf("%d addresses are tracked, %d before", n, tracked)
	}
}

// What a side does not say when it disconnects the box has seen: which receiver has ended its QP,
// and with which answer.
func TestWhatTheBoxSawOfAGroupOfAConnection(t *testing.T) {
	r := newRunner(t, "")
	groups := groupsOf(r.Controller)
	if got := groups.Saw("g1"); got != "" {
		t.Errorf("before anything has happened: %q", got)
	}
	r.note(dataplane.Note{Group: r.groups.Named("g1").ID, Receiver: addr("10.77.0.3"), RemoteQPN: 1, What: feedback.NoteFatal, PSN: 7, Syndrome: roce.NAKRemoteAccess})
	got := groups.Saw("g1")
	if !strings.HasPrefix(got, "10.77.0.3: it has answered the source's packet 7 with NAK remote access") || !strings.Contains(got, "(since ") {
		t.Error(got)
	}
	if sees := groups.Sees("g1"); sees != got {
		t.Errorf("while it goes on %q", sees)
	}
	if got := groups.Saw("gone"); got != "" {
		t.Errorf("of a group that is not there: %q", got)
	}
	groups.Control.AddEvent(api.Event{Kind: api.ConnectionRefused, Member: "10.77.0.9"})
	events := r.Events(t.Context(), api.Cursor{}, "").Events
	if last := events[len(events)-1]; last.Kind != api.ConnectionRefused || last.Member != "10.77.0.9" {
		t.Errorf("%+v", last)
	}
}

// A receiver of a connection that disconnects leaves the group: the data path waits for it no more,
// and sends it nothing. The others go on, and the event says why it is gone.
func TestAReceiverLeavesTheGroupOfItsConnection(t *testing.T) {
	w := newWorld(t)
	file, err := groupfile.Parse([]byte(strings.Replace(g1, "mtu:", "ack: quorum 1\nmtu:", 1)))
	if err != nil {
		t.Fatal(err)
	}
	groups := groupsOf(w.Controller)
	if err := groups.Create(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	at := w.Events(t.Context(), api.Cursor{}, "").Cursor
	if err := groups.Leave(t.Context(), "g1", addr("10.77.0.3")); err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, p := range w.sw.Table().Group(0).Paths {
		has = append(has, p.Dst.String())
	}
	var told []string
	for _, e := range w.groups.Events.After(at, "").Events {
		told = append(told, fmt.Sprintf("%s %s: %s", e.Kind, e.Member, e.Cause))
	}
	if slices.Contains(has, "10.77.0.3") || !slices.Contains(has, "10.77.0.2") || !slices.Contains(told, "member-left 10.77.0.3: it has disconnected") {
		t.Errorf("the data path has %v, and the events are %q", has, told)
	}
	for _, name := range []string{"g1", "gone"} {
		if err := groups.Leave(t.Context(), name, addr("10.77.0.9")); err == nil {
			t.Errorf("one that group %s does not have leaves it", name)
		}
	}
	if err := groups.Remove(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}

// The port to 10.77.0.3 has an MTU of 1500, which carries a path MTU of 1024 with all headers.
func TestWhatTheWayToAHostCarries(t *testing.T) {
	w := newWorld(t)
	groups := groupsOf(w.Controller)
	for _, c := range []struct {
		host    string
		pathMTU int
		want    string
	}{
		{"10.77.0.3", 1024, ""},
		{"10.77.0.3", 2048, "10.77.0.3 is reached through eth3, whose MTU 1500 cannot carry path MTU 2048; set it with ip link set eth3 mtu 2112"},
		{"10.77.0.9", 4096, ""}, // there is no route; Create says so
	} {
		got := ""
		if err := groups.Hold(addr(c.host), c.pathMTU); err != nil {
			got = err.Error()
		}
		w.expect(t, strings.Replace(nothing, "tracking 0", "tracking 1", 1))
		groups.Release(addr(c.host))
		if got != c.want {
			t.Errorf("%s, %d:\ngot  %s\nwant %s", c.host, c.pathMTU, got, c.want)
		}
	}
	w.expect(t, nothing)
}

// The groups of connections cost no memory when they are gone. The runtime's own varies by some
// thousand bytes.
func TestManyConnectionsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and one thread does everything; it runs without -short")
	}
	w := newWorld(t)
	groups, number := groupsOf(w.Controller), 0
	several := func(n int) uint64 {
		for range n {
			number++
			file, err := groupfile.Parse([]byte(strings.NewReplacer("name: g1", fmt.Sprintf("name: cm-%d", number)).Replace(g1)))
			if err == nil {
				err = groups.Create(t.Context(), file)
			}
			if err == nil {
				err = groups.Remove(t.Context(), file.Name)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.logs.TakeAll()
		runtime.GC() // what pools keep is gone after two collections
		return testlab.HeapBytes()
	}
	before := several(events.Kept) // as many events are kept
	const connects = 200
	after := several(connects)
	if after > before+100*connects {
		t.Errorf("%d bytes before, %d after %d groups", before, after, connects)
	}
	w.expect(t, nothing)
}

// The group of a connection has the IP that the proxy has added to the box: connection management
// to that IP stays the kernel's, and so the proxy's.
func TestTheGroupOfAConnection(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Services.CMUp(t.Context(), []byte(cmRequest)); err != nil {
		t.Fatal(err)
	}
	file, err := groupfile.Parse([]byte(strings.NewReplacer("name: g1", "name: connection\naddressing: switch-ip").Replace(g1)))
	if err != nil {
		t.Fatal(err)
	}
	file.IP, file.Lines = addr("127.0.0.220"), nil
	if err := groupsOf(w.Controller).Create(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	for _, key := range w.sw.Table().Group(0).Keys() {
		if key.Match == mft.MatchDst {
			t.Errorf("%+v takes what is sent to queue pair 1", key)
		}
	}
	if err := w.Remove("connection"); err != nil {
		t.Error(err)
	}
	if err := w.Services.CMDown("127.0.0.220"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, nothing)
}
