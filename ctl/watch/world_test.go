package watch

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/ctl/view"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// world is a Watch of groups whose data path is that of ctltest. Its state directory outlives it:
// see restart.
type world struct {
	*Watch
	dir  string
	sw   *ctltest.Switch
	hops *ctltest.Hops
	logs *observer.ObservedLogs
	at   api.Cursor // the event that was looked at last
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return openWorld(t, t.TempDir())
}

func openWorld(t *testing.T, dir string) *world {
	t.Helper()
	state, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	core, logs := observer.New(zap.DebugLevel)
	w := &world{dir: dir, sw: ctltest.NewSwitch("eth1", "eth2", "eth3"), hops: ctltest.NewHops(), logs: logs}
	w.hops.SetG1()
	of := groups.Parts{Switch: w.sw, NextHops: w.hops, Addresses: ctltest.NewAddresses(), Store: state, Log: zap.New(core)}
	set := groups.NewSet(of, ports.New(w.sw.Ports()))
	w.Watch = New(Options{Groups: set, Switch: w.sw, Log: zap.New(core), Doubt: w.hops.Doubt})
	if err := set.Restore(); err != nil {
		t.Fatal(err)
	}
	return w
}

// restart begins again with what is stored, as after a crash.
func (w *world) restart(t *testing.T) *world {
	t.Helper()
	w.Groups.Store.Close()
	return openWorld(t, w.dir)
}

func (w *world) create(t *testing.T, text string) {
	t.Helper()
	file, err := groupfile.Parse([]byte(text))
	if err == nil {
		err = w.Groups.Add(groups.New(file, true), []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// edit changes g1.
func (w *world) edit(change func(*groups.Group)) {
	w.Groups.Lock()
	defer w.Groups.Unlock()
	g := w.Groups.Named("g1")
	change(g)
	w.Groups.Changed(g)
}

// again publishes g1 as another group of the data path.
func (w *world) again(t *testing.T) {
	t.Helper()
	w.edit(func(g *groups.Group) {
		next := *g
		if err := w.Groups.Republish(g, &next, nil, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// reach gives hosts other next hops, by which g1 is planned again.
func (w *world) reach(t *testing.T, hops map[string]nexthop.Hop) {
	t.Helper()
	w.hops.Set(hops)
	w.edit(func(g *groups.Group) {
		if err := w.Groups.Replan(g, w.Groups.Plan(g.File)); err != nil {
			t.Fatal(err)
		}
	})
}

// What readers see of g1, and of the box.

func (w *world) summary() api.GroupSummary { return view.Summary(w.Groups.Seen("g1")) }

func (w *world) group() api.Group {
	v := w.Groups.Seen("g1")
	state, _ := w.sw.GroupState(v.ID)
	return view.Group(v, view.DataPath{State: state}, w.Groups.SeenPorts())
}

func (w *world) traffic() api.GroupTraffic {
	v := w.Groups.Seen("g1")
	state, _ := w.sw.GroupState(v.ID)
	return view.Traffic(v, state, nil, time.Now())
}

func (w *world) status(now time.Time) api.Status {
	return view.Status(now, &view.Box{Started: now, Ports: w.Groups.SeenPorts(), Groups: w.Groups.AllSeen(), Strays: w.Strays()})
}

// happened returns the events since it was called last, without their times.
func (w *world) happened() (lines []string) {
	lines, w.at = ctltest.Told(w.Groups.Events, w.at)
	return lines
}

func (w *world) expectEvents(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.happened()); diff != "" {
		t.Error(diff)
	}
}

// note sends a note of the data path, whose state is then what the note says.
func (w *world) note(n dataplane.Note) {
	w.Groups.Lock()
	defer w.Groups.Unlock()
	w.sw.Happens(n)
	w.Hear(n)
}

// noteOf is a note about a member of g1.
func (w *world) noteOf(what feedback.Note, ip string, psn roce.PSN) dataplane.Note {
	return dataplane.Note{Group: w.Groups.Named("g1").ID, What: what, Receiver: addr(ip), RemoteQPN: 1, PSN: psn}
}

// takes lets a member of g1 take a turn.
func (w *world) takes(turn mft.Turn) {
	w.sw.Wait(w.Groups.Named("g1").ID, turn)
	w.note(w.noteOf(feedback.NoteWaits, "10.77.0.2", 2000))
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// runner plays seconds of group g1: its source has sent up to sent, and its receivers have
// acknowledged up to two and three.
type runner struct {
	*world
	now time.Time
}

func newRunner(t *testing.T, keys string) *runner {
	t.Helper()
	return runGroup(t, strings.Replace(ctltest.G1, "mtu:", "repair: local\n"+keys+"mtu:", 1))
}

// runGroup is newRunner with another text of g1.
func runGroup(t *testing.T, text string) *runner {
	t.Helper()
	r := &runner{world: newWorld(t), now: time.Unix(1000, 0)}
	r.create(t, text)
	r.happened()
	return r
}

func (r *runner) second(sent, merged, two, three roce.PSN) api.Group {
	r.now = r.now.Add(time.Second)
	r.sw.Progress("g1", sent, merged, map[string]roce.PSN{"10.77.0.2": two, "10.77.0.3": three})
	r.Look("g1", r.now)
	return r.group()
}
