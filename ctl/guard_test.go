package ctl

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/address"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
)

// A disk that is busy holds a change up for seconds. Who asks meanwhile how groups are must not
// wait: monitoring would take the box for dead.
func TestNoReaderWaitsForTheDisk(t *testing.T) {
	const third = "10.77.0.3"
	for _, change := range []struct {
		name string
		file string // that cannot be written
		make func(w *world)
	}{
		{"create", "g2.yaml", func(w *world) { _, _ = w.Create(t.Context(), []byte(anotherGroup("g2", 2))) }},
		{"update", "g1.yaml", func(w *world) {
			_, _ = w.Update(t.Context(), "g1", []byte(withoutReceiver(bothG1, third)))
		}},
		{"a member that confirms", "g1.state", func(w *world) { _, _ = w.Confirm("g1", []byte(`{"ip": "10.77.0.2", "qpn": 18, "state": "rts"}`)) }},
		{"a source switch", "g1.state", func(w *world) {
			w.sw.Wait(w.groups["g1"].id, turnOfB)
			w.news(feedback.NoteWaits, "10.77.0.2", 1, 2000)
		}},
		{"a receiver that is out", "g1.state", func(w *world) { w.news(feedback.NoteEvicted, third, 1, 1000) }},
	} {
		t.Run(change.name, func(t *testing.T) {
			w := newWorld(t)
			w.create(t, bothG1)
			blocked := blockWrites(t, filepath.Join(w.dir, "groups", change.file))
			done := make(chan struct{})
			go func() {
				defer close(done)
				change.make(w)
			}()
			testlab.Eventually(t, 10*time.Second, "the change waits for the disk", func() bool {
				select {
				case <-done:
					t.Fatal("the change has ended")
				default:
				}
				if w.mu.changing.TryLock() {
					w.mu.changing.Unlock()
					return false
				}
				if w.mu.TryRLock() {
					w.mu.RUnlock()
					return true
				}
				return false
			}, nil)
			read := make(chan struct{})
			go func() {
				defer close(read)
				if list := w.Groups().Groups; len(list) != 1 || list[0].Name != "g1" {
					t.Errorf("groups %+v", list)
				}
				if _, err := w.Group("g1"); err != nil {
					t.Error(err)
				}
				if s := w.Status(); s.Groups[api.Ready]+s.Groups[api.Degraded] != 1 {
					t.Errorf("status %+v", s)
				}
				if traffic := w.Traffic(); len(traffic.Groups) != 1 {
					t.Errorf("traffic %+v", traffic)
				}
				if _, ok := w.Tally(); !ok {
					t.Error("no sign of life")
				}
				w.Stats()
				w.PortList()
			}()
			select {
			case <-read:
			case <-time.After(10 * time.Second):
				t.Error("a reader waits for the disk")
			}
			blocked()
			<-done
			<-read
		})
	}
}

// blockWrites lets whoever writes a stored file wait until the caller calls release; then the
// write fails.
func blockWrites(t *testing.T, path string) (release func()) {
	t.Helper()
	dir, name := filepath.Split(path)
	aside := filepath.Join(dir, "."+name+".new")
	if err := unix.Mkfifo(aside, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		f, err := os.OpenFile(aside, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = f.Close() })
	}
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
			if to == "b2" && method == "PUT" && b1.groups["g1"].source.IP != second.IP {
				b1.sw.Wait(b1.groups["g1"].id, mft.Turn{Source: second})
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
		g := b1.groups["g1"]
		if g.source != groupfile.ID(second) || !g.past.Switched {
			t.Errorf("the source is %+v, switched %v", g.source, g.past.Switched)
		}
		if stays != (err == nil) || !stays && !strings.Contains(err.Error(), "10.1.0.2, which is the source now") {
			t.Errorf("stays %v: %v", stays, err)
		}
		b1.sw.Part(g.id, "10.1.0.2", feedback.PartGone) // as of each member while it sends
		b1.lookAtProgress("g1", time.Now())
		b1.mu.Lock()
		b1.lookAround(g)
		b1.mu.Unlock()
		if s := g.past.Standing(groupfile.ID(second)); s.IsOut() {
			t.Errorf("the source is %v", s)
		}
	}
}

// reading is the box's addresses, and reads whenever they change, as others do meanwhile.
type reading struct {
	Addresses
	read func()
}

func (r reading) Hold(p address.Place) error {
	r.read()
	return r.Addresses.Hold(p)
}

func (r reading) Release(p address.Place) error {
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
		w.Addresses = reading{w.addresses, func() {
			reads++
			s, runs := w.Groups().Groups[0], false
			for range w.sw.Table().All {
				runs = true
			}
			if s.ClearToSend != runs || runs != (s.State == api.Ready) || runs != (s.Reason == "") {
				t.Errorf("fails %v, in the data path: %v, shown as %+v", fails, runs, s)
			}
		}}
		w.mu.Lock()
		g := w.groups["g1"]
		next := *g
		if fails {
			w.sw.Refuse(errors.New("the classifier is full"))
		}
		err := w.republish(g, &next, nil, nil)
		w.mu.Unlock()
		if fails != (err != nil) || fails != (reads > 0) {
			t.Errorf("fails %v: %v, %d reads", fails, err, reads)
		}
		if s, _ := w.Group("g1"); s.State != api.Ready || w.addresses.String() != held {
			t.Errorf("afterwards %+v, held %s", s, w.addresses)
		}
	}
}

// What etcd is told of a group while the boxes behind are asked is known after a move, too.
func TestWhatHappensDuringAMoveStays(t *testing.T) {
	f, b1 := newFork(t)
	b1.route(8, "b3")
	f.cuts(func(_, to, method string) (bool, bool) {
		if to == "b3" && method == "PUT" {
			b1.mu.Lock()
			b1.groups["g1"].switches, b1.groups["g1"].marked = true, true
			b1.mu.Unlock()
		}
		return true, true
	})
	b1.hopsChanged([]netip.Addr{addr("10.8.0.1")})
	f.tendAll(time.Now())
	f.check2("b1: 10.1.0.2 b3 | b3: 10.8.0.1")
	if g := b1.groups["g1"]; !g.switches || !g.marked {
		t.Errorf("switches %v, marked %v", g.switches, g.marked)
	}
}
