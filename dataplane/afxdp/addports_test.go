package afxdp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

func (w *world) addPorts(names ...string) error {
	return w.box.Do(func() error { return w.sw.AddPorts(names, make([]dataplane.Egress, len(names))) })
}

// names lists the ports with their numbers.
func (w *world) names() string {
	var names []string
	for _, p := range w.sw.Ports() {
		names = append(names, fmt.Sprint(p.ID, "=", p.Name))
	}
	return strings.Join(names, " ")
}

// Interfaces become ports and stop to be ports while the others carry frames, several times. If
// chunks were lost, fewer would be free at the end.
func TestPortsAreAddedAndRemoved(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			w := newWorld(t)
			for n := range 3 {
				w.plug(n+1, netns.VethOptions{Queues: 2})
			}
			w.open(Config{Ports: []string{"p1", "p2"}, Workers: workers, FanOut: true})
			free, reserve := w.sw.workers[0].umem.Census().Free, w.sw.reserve.Load()
			for range 2 {
				if err := w.addPorts("p3", "later"); err != nil {
					t.Fatal(err)
				}
				if got := w.names(); got != "0=p1 1=p2 2=p3 3=later" {
					t.Fatalf("ports %s", got)
				}
				w.expect(3, dataplane.PortUp, "")
				w.expect(4, dataplane.PortGone, "no interface has this name")
				if p := w.port(3); p.Opened != 1 || p.RxFrames != 0 || p.Queues != 2 {
					t.Errorf("added as %+v", p)
				}
				w.arrives(3)
				w.arrives(1)
				w.sw.RemovePorts([]string{"p3", "later"})
				w.refresh()
				if links, err := w.box.Exec("ip", "link", "show", "p3"); err != nil || strings.Contains(links, "prog/xdp") {
					t.Errorf("the classifier stays (%v):\n%s", err, links)
				}
				if got := w.names(); got != "0=p1 1=p2" || w.sw.reserve.Load() != reserve {
					t.Fatalf("ports %s, and %d chunks of %d are left", got, w.sw.reserve.Load(), reserve)
				}
				w.arrives(2)
			}
			w.sw.Do(0, func() {
				if c := w.sw.workers[0].umem.Census(); c.Free < free {
					t.Errorf("%d chunks were free at the start, fewer are now: %+v", free, c)
				}
			})
		})
	}
}

// Whatever a port is refused for, those that came before it in the same change go again.
func TestPortsAreAddedTogetherOrNotAtAll(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		w.plug(n+1, netns.VethOptions{Queues: 2})
	}
	w.plug(4, netns.VethOptions{Queues: 1})
	w.open(Config{Ports: []string{"p1"}, Workers: 2})
	reserve := w.sw.reserve.Load()
	err := w.addPorts("p2", "p3", "p4")
	want := "open port p4: it has 1 RX and 1 TX queues for 2 workers; `ethtool -L p4 combined 2` (or rx 2 tx 2) gives it more, or use fewer workers"
	if err == nil || err.Error() != want || !errors.Is(err, ErrConfig) {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	if got := w.names(); got != "0=p1" || w.sw.reserve.Load() != reserve {
		t.Errorf("ports %s, and %d chunks of %d are left", got, w.sw.reserve.Load(), reserve)
	}
	if links, err := w.box.Exec("ip", "link"); err != nil || strings.Count(links, "prog/xdp") != 1 {
		t.Errorf("%v:\n%s", err, links)
	}
	if err := w.addPorts("p3"); err != nil {
		t.Fatal(err)
	}
	if got := w.names(); got != "0=p1 1=p3" {
		t.Errorf("ports %s", got)
	}
}

// Also when the sockets of a port cannot be opened nothing is left of it.
func TestAPortThatCannotBeOpenedIsNotAdded(t *testing.T) {
	w := newWorld(t)
	for n := range 2 {
		w.plug(n+1, netns.VethOptions{})
	}
	fails := false
	w.open(Config{Ports: []string{"p1"}, openSocket: func(u *xsk.UMEM, ifIndex int, queue uint32, config xsk.SocketConfig) (*xsk.Socket, error) {
		if fails {
			return nil, unix.EBUSY
		}
		return xsk.Open(u, ifIndex, queue, config)
	}})
	reserve := w.sw.reserve.Load()
	fails = true
	if err := w.addPorts("p2"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("%v", err)
	}
	if got := w.names(); got != "0=p1" || w.sw.reserve.Load() != reserve {
		t.Errorf("ports %s, and %d chunks of %d are left", got, w.sw.reserve.Load(), reserve)
	}
	fails = false
	if err := w.addPorts("p2"); err != nil {
		t.Fatal(err)
	}
	w.arrives(2)
}

// Frames leave by a port that was added. Another interface that has its number later begins with
// counters of its own.
func TestAnAddedPortSends(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		w.plug(n+1, netns.VethOptions{})
	}
	w.open(Config{Ports: []string{"p1"}, FanOut: true})
	if err := w.addPorts("p2"); err != nil {
		t.Fatal(err)
	}
	w.arrives(2)
	var sent int
	w.onWorker(8, 100, func(worker *worker, out []dataplane.Outgoing) { sent = worker.ports[1].Send(out) })
	if sent != 8 {
		t.Errorf("%d of 8 frames were sent", sent)
	}
	w.sw.RemovePorts([]string{"p2"})
	w.onWorker(8, 100, func(worker *worker, out []dataplane.Outgoing) { sent = worker.ports[1].Send(out) })
	if sent != 0 {
		t.Errorf("%d frames were sent by a port that was removed", sent)
	}
	if err := w.addPorts("p3"); err != nil {
		t.Fatal(err)
	}
	idle := slices.IndexFunc(w.port(2).Kernel, func(c dataplane.Counter) bool { return c.Value != 0 }) < 0
	if p := w.port(2); p.ID != 1 || p.Name != "p3" || p.RxFrames != 0 || !idle {
		t.Errorf("%+v", p)
	}
	w.send(3, 64)
	w.eventually("frames by the new port", func() bool { return w.port(2).RxFrames == 64 })
}

// Frames of groups that come by a port before its sockets are open go to the kernel. That lasts for
// a moment, so the operator hears nothing of it.
func TestFramesBeforeTheSocketsOfAnAddedPortAreNoWarning(t *testing.T) {
	w := newWorld(t)
	for n := range 2 {
		w.plug(n+1, netns.VethOptions{})
	}
	opened := 0
	w.open(Config{Ports: []string{"p1"}, openSocket: func(u *xsk.UMEM, ifIndex int, queue uint32, config xsk.SocketConfig) (*xsk.Socket, error) {
		if opened++; opened == 2 {
			w.send(2, 64)
			testlab.Eventually(t, patience, "frames go to the kernel", func() bool { return w.classified("pass_no_socket") > 0 },
				func() string { return fmt.Sprint(w.sw.Counters()) })
		}
		return xsk.Open(u, ifIndex, queue, config)
	}})
	if err := w.addPorts("p2"); err != nil {
		t.Fatal(err)
	}
	w.arrives(2)
	if got := w.refresh(); len(got) != 0 {
		t.Errorf("warnings %q", got)
	}
}

func TestTheRoomOfAnAddedPort(t *testing.T) {
	for _, c := range []struct{ reserve, queues, want int }{
		{8192, 1, 2048}, {8192, 8, 4096}, {2048, 1, 1024}, {1024, 1, 512}, {512, 1, 512}, {256, 1, 256}, {2048, 4, 2048}, {2048, 8, 2048},
	} {
		if got, err := addedRoom(c.reserve, c.queues); got != c.want || err != nil {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	want := "each forwarding thread has 9 queues of it, and packet memory for 8 queues of ports that are added while rocastd runs; " +
		"restart rocastd, or reduce the queues with ethtool -L"
	if _, err := addedRoom(2048, 9); err == nil || err.Error() != want || !errors.Is(err, ErrConfig) {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	for queues, want := range map[int]int{1: leastReserve, 4: leastReserve, 6: 3072, 64: mostReserve} {
		f := newIface(0, "p1")
		f.info.Queues = queues
		if got := reserve([]*iface{f}, 1); got != want {
			t.Errorf("%d queues: %d chunks in reserve, want %d", queues, got, want)
		}
	}
}
