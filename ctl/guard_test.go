package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
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
