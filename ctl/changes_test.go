package ctl

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
)

// showsAll lets a test fail where a change ends and readers do not see what it has changed, and
// where it has changed what readers have.
func showsAll(t *testing.T, c *Controller) {
	seen := map[*groups.Version]string{}
	c.groups.Shown = func() {
		for v, was := range seen {
			if is := inside(v); is != was {
				t.Errorf("what readers have of group %s was\n%s\nand is\n%s", v.Name, was, is)
			}
		}
		clear(seen)
		there := maps.Collect(c.groups.All())
		if n := len(c.groups.SeenNames()); n != len(there) {
			t.Errorf("readers see %d groups, and there are %d", n, len(there))
		}
		for name, g := range there {
			v := c.groups.Seen(name)
			if v == nil {
				t.Errorf("readers do not see group %s", name)
				continue
			}
			if !reflect.DeepEqual(*v, g.Version) {
				t.Errorf("group %s has changed, and readers do not see it: %s", name, cmp.Diff(*v, g.Version, cmp.Exporter(func(reflect.Type) bool { return true })))
			}
			seen[v] = inside(v)
		}
	}
}

// inside is what a version has behind pointers and in maps, and groups change.
func inside(v *groups.Version) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", v.Found)
	for _, l := range v.Links {
		fmt.Fprintf(&b, "%+v", *l)
	}
	if v.Branch != nil {
		fmt.Fprintf(&b, "%+v", *v.Branch)
	}
	text, err := v.Past.Text()
	fmt.Fprintf(&b, "%s %v", text, err)
	return b.String()
}

// slowDisk lets the first who stores something wait, until release is closed, and fails then if err
// says so.
type slowDisk struct {
	waits, release chan struct{}
	err            error
}

func newSlowDisk(w *world) *slowDisk {
	d, first, sync := &slowDisk{waits: make(chan struct{}), release: make(chan struct{})}, atomic.Bool{}, w.Store.SyncDir
	w.Store.SyncDir = func(dir string) error {
		if first.CompareAndSwap(false, true) {
			close(d.waits)
			<-d.release
			return errors.Join(d.err, sync(dir))
		}
		return sync(dir)
	}
	return d
}

// A disk that is busy holds a change up for seconds. Who asks meanwhile how groups are must not
// wait: monitoring would take the box for dead.
func TestNoReaderWaitsForTheDisk(t *testing.T) {
	const third = "10.77.0.3"
	for name, change := range map[string]func(w *world){
		"create": func(w *world) { _, _ = w.Create(t.Context(), []byte(anotherGroup("g2", 2))) },
		"update": func(w *world) { _, _ = w.Update(t.Context(), "g1", []byte(withoutReceiver(bothG1, third))) },
		"remove": func(w *world) { _ = w.Remove("g1") },
		"a member that confirms": func(w *world) {
			_, _ = w.Confirm("g1", []byte(`{"ip": "10.77.0.2", "qpn": 18, "state": "rts"}`))
		},
		"a source switch": func(w *world) {
			w.sw.Wait(w.groups.Named("g1").ID, turnOfB)
			w.news(feedback.NoteWaits, "10.77.0.2", 1, 2000)
		},
		"a receiver that is out": func(w *world) { w.news(feedback.NoteEvicted, third, 1, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(t, bothG1)
			disk, done := newSlowDisk(w), make(chan struct{})
			go func() {
				defer close(done)
				change(w)
			}()
			<-disk.waits
			readsAll(t, w)
			g, err := w.Group("g1")
			if isOut := err == nil && g.Members[2].State == api.LeftOut; isOut != (name == "a receiver that is out") {
				t.Errorf("meanwhile the receiver is out: %v (%v)", isOut, err)
			}
			close(disk.release)
			<-done
			want := map[string]int{"create": 2, "remove": 0}
			if n, known := want[name]; known && len(w.Groups().Groups) != n {
				t.Errorf("afterwards there are %+v", w.Groups().Groups)
			}
		})
	}
}

// A group that is being stored holds up no other one. It has its QPs already, and nothing else: a
// next hop that changes does not begin it.
func TestTwoNewGroupsDoNotWaitForEachOther(t *testing.T) {
	for _, what := range []string{"", "the data path", "the disk"} {
		w, fails := newWorld(t), what != ""
		disk, done := newSlowDisk(w), make(chan error, 1)
		go func() {
			_, err := w.Create(t.Context(), []byte(g1))
			done <- err
		}()
		<-disk.waits
		other := make(chan struct{})
		go func() {
			defer close(other)
			w.create(t, anotherGroup("g2", 2))
			w.network.HopsChanged([]netip.Addr{addr("10.77.0.1"), addr("10.77.0.2")})
			const want = "line 7: QP 17 of 10.77.0.1 is already in group g1, and a queue pair has only one peer; write another qpn, or remove group g1"
			if _, err := w.Create(t.Context(), []byte(strings.NewReplacer("name: g1", "name: g3", "qpn: 1\n", "qpn: 3\n").Replace(g1))); err == nil || err.Error() != want {
				t.Errorf("its QPs are taken: %v", err)
			}
			if list := w.Groups().Groups; len(list) != 1 || list[0].Name != "g2" || w.sw.Table().Group(1) != nil {
				t.Errorf("meanwhile there are %+v", list)
			}
		}()
		select {
		case <-other:
		case <-time.After(testlab.Patience):
			t.Fatal("it waits")
		}
		switch what {
		case "the data path":
			w.sw.Refuse(errors.New("the classifier is full"))
		case "the disk":
			disk.err = unix.EIO
		}
		close(disk.release)
		if err := <-done; fails != (err != nil) {
			t.Errorf("%q fails: %v", what, err)
		}
		if !fails {
			continue
		}
		w.create(t, strings.Replace(g1, "name: g1", "name: g4", 1)) // its QPs are free again
		if err := errors.Join(w.Remove("g2"), w.Remove("g4")); err != nil {
			t.Error(err)
		}
		w.expect(t, nothing)
	}
}

// A directory that cannot be synced may have the text already. A restart must not begin a group of
// which its user was told that it is not there.
func TestAGroupThatIsNotMadeIsNotStored(t *testing.T) {
	w := newWorld(t)
	sync, text := w.Store.SyncDir, filepath.Join(w.dir, "groups", "g1.yaml")
	w.Store.SyncDir = func(dir string) error {
		if _, err := os.Stat(text); err == nil {
			return unix.EIO
		}
		return sync(dir)
	}
	if _, err := w.Create(t.Context(), []byte(g1)); err == nil {
		t.Error("created")
	}
	w.Store.SyncDir = sync
	w = w.restart(t, false)
	w.expect(t, nothing)
}

// Nor is a group stored, or taken out of the data path, whose frames would be those of another one
// that runs: the other one might come first in a restart.
func TestAGroupWithTheNumbersOfAnotherIsNotStored(t *testing.T) {
	const want = "group g2: %s is taken by group g1; write another qpn (or remoteQPN of a member), or another ip"
	group := func(name, addressing, ip string, qpn int, more string) string {
		text := fmt.Sprintf("name: %s\naddressing: %s\nip: %s\nqpn: %d\nmtu: 1024\nmembers:\n", name, addressing, ip, qpn)
		for i := 1; i <= 3; i += 2 {
			text += fmt.Sprintf("  - {ip: 10.77.0.%d, qpn: %d, psn: 5}\n", i, qpn+3-i)
		}
		return strings.Replace(text, "psn: 5}", "psn: 5, role: source}", 1) + more
	}
	for name, c := range map[string]struct{ addressing, ip, key string }{
		"the group's IP":                   {"group-ip", "10.77.0.100", "10.77.0.100 with QPN 19"},
		"the addresses of members as well": {"virtual-qpn", "10.77.0.3", "QPN 19 from 10.77.0.2 to 10.77.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			fine := group("g2", c.addressing, c.ip, 29, "")
			other := fine + "  - {ip: 10.77.0.2, qpn: 28, psn: 5, remoteQPN: 19}\n"
			w, sync := newWorld(t), false
			w.create(t, group("g1", c.addressing, c.ip, 19, "  - {ip: 10.77.0.2, qpn: 18, psn: 5}\n"))
			stores := w.Store.SyncDir
			w.Store.SyncDir = func(dir string) error {
				if !sync {
					t.Error("something is stored")
				}
				return stores(dir)
			}
			refused := func(what string, err error) {
				t.Helper()
				if want := fmt.Sprintf(want, c.key); err == nil || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("%s: %v, want %s", what, err, want)
				}
			}
			_, err := w.Create(t.Context(), []byte(other))
			refused("created", err)
			sync = true
			w.create(t, fine)
			sync = false
			_, err = w.Update(t.Context(), "g2", []byte(other))
			refused("updated", err)
			w.groups.Lock()
			g, before := w.groups.Named("g2"), w.groups.Named("g2").ID
			next := *g
			next.Wanted = parsed(t, other)
			next.SetLinks(nil)
			refused("published again", w.groups.Republish(g, &next, nil, nil))
			if w.groups.Named("g2").ID != before || g.Published == nil {
				t.Error("the group was taken out of the data path meanwhile")
			}
			w.groups.Unlock()
		})
	}
}

// readsAll reads all that can be read, of a box with group g1.
func readsAll(t *testing.T, w *world) {
	t.Helper()
	if list := w.Groups().Groups; len(list) != 1 || list[0].Name != "g1" {
		t.Errorf("groups %+v", list)
	}
	if _, err := w.Group("g1"); err != nil {
		t.Error(err)
	}
	if _, err := w.Tree(t.Context(), "g1"); err != nil {
		t.Error(err)
	}
	if _, err := w.Regions("g1", 0, 1); err != nil {
		t.Error(err)
	}
	if _, err := w.GroupTraffic("g1"); err != nil {
		t.Error(err)
	}
	if s := w.Status(); s.Groups[api.Ready]+s.Groups[api.Degraded] != 1 || s.Ports[api.PortUp] != 3 {
		t.Errorf("status %+v", s)
	}
	if traffic := w.Traffic(); len(traffic.Groups) != 1 {
		t.Errorf("traffic %+v", traffic)
	}
	if tally := w.Tally(); tally != (Tally{Groups: 1, Ports: 3, Open: 3}) {
		t.Errorf("tally %+v", tally)
	}
	w.Stats()
	w.PortList()
}

// withoutReceiver removes the line of a member from a group file.
func withoutReceiver(text, ip string) string {
	var kept []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.Contains(line, "ip: "+ip+",") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// While the boxes behind are asked, the source may switch. The change must not undo that: this box
// would take the present source for a receiver, and store that it is out.
func TestASwitchDuringAChangeStays(t *testing.T) {
	both := strings.NewReplacer("role: source", "role: both, sendPSN: 1000, regions: {va: 0, length: 4096, rkey: 7}",
		"psn: 12,", "psn: 12, role: both, sendPSN: 300,")
	for _, stays := range []bool{true, false} {
		f := newTree(t)
		f.create(both.Replace(groupFile("10.1.0.2", "10.2.0.1")))
		b1, second := f.box("b1"), mft.QP{IP: addr("10.1.0.2"), RemoteQPN: 1}
		f.cuts(func(_, to, method string) (bool, bool) {
			if to == "b2" && method == "PUT" && b1.groups.Named("g1").Source.IP != second.IP {
				b1.sw.Wait(b1.groups.Named("g1").ID, mft.Turn{Source: second})
				b1.newsOf("g1", feedback.NoteWaits, "10.1.0.2", 1, 300)
				b1.newsOf("g1", feedback.NoteSource, "10.1.0.2", 1, 300)
			}
			return true, true
		})
		after := []string{"10.1.0.2", "10.2.0.1", "10.2.0.2"}
		if !stays {
			after = after[1:]
		}
		_, err := b1.Update(t.Context(), "g1", []byte(both.Replace(groupFile(after...))))
		g := b1.groups.Named("g1")
		if g.Source != groupfile.ID(second) || !g.Past.Switched {
			t.Errorf("the source is %+v, switched %v", g.Source, g.Past.Switched)
		}
		if stays != (err == nil) || !stays && !strings.Contains(err.Error(), "10.1.0.2, which is the source now") {
			t.Errorf("stays %v: %v", stays, err)
		}
		b1.sw.Part(g.ID, "10.1.0.2", feedback.PartGone) // as of each member while it sends
		b1.watch.Look("g1", time.Now())
		b1.groups.Lock()
		b1.groups.Observe(g)
		b1.groups.Unlock()
		if s := g.Past.Standing(groupfile.ID(second)); s.IsOut() {
			t.Errorf("the source is %v", s)
		}
	}
}

// reading is the box's addresses, and reads whenever they change, as others do meanwhile.
type reading struct {
	Addresses
	read func()
}

func (r reading) Hold(p address.IfAddr) error {
	r.read()
	return r.Addresses.Hold(p)
}

func (r reading) Release(p address.IfAddr) error {
	r.read()
	return r.Addresses.Release(p)
}

// A group that is published again for other routes is not shown as failed meanwhile. One that
// cannot be published is not shown as ready while its address leaves the box.
func TestAReaderSeesNoHalfChange(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w := newWorld(t)
		w.create(t, g1)
		reads, held := 0, w.addresses.String()
		w.groups.Addresses = reading{w.addresses, func() {
			reads++
			s, runs := w.Groups().Groups[0], false
			for range w.sw.Table().All {
				runs = true
			}
			if s.ClearToSend != runs || runs != (s.State == api.Ready) || runs != (s.Reason == "") {
				t.Errorf("fails %v, in the data path: %v, shown as %+v", fails, runs, s)
			}
		}}
		w.groups.Lock()
		g := w.groups.Named("g1")
		next := *g
		if fails {
			w.sw.Refuse(errors.New("the classifier is full"))
		}
		err := w.groups.Republish(g, &next, nil, nil)
		w.groups.Unlock()
		if fails != (err != nil) || fails != (reads > 0) {
			t.Errorf("fails %v: %v, %d reads", fails, err, reads)
		}
		if s, _ := w.Group("g1"); s.State != api.Ready || w.addresses.String() != held {
			t.Errorf("afterwards %+v, held %s", s, w.addresses)
		}
	}
}

// What happens to a group while the boxes behind are asked is known after a move, too.
func TestWhatHappensDuringAMoveStays(t *testing.T) {
	f, b1 := newFork(t)
	b1.route(8, "b3")
	f.cuts(func(_, to, method string) (bool, bool) {
		if to == "b3" && method == "PUT" {
			b1.edit("g1", func(g *groups.Group) { g.Claim = 7 })
		}
		return true, true
	})
	b1.network.HopsChanged([]netip.Addr{addr("10.8.0.1")})
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b3 | b3: 10.8.0.1")
	if g := b1.groups.Named("g1"); g.Claim != 7 {
		t.Errorf("its claim is %d", g.Claim)
	}
}
