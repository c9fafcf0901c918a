package afxdp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// world is a switch on the veth ends p1, p2 ... in one namespace, with the other ends, h1, h2 ...,
// in another. A host sends frames of a group of which it is no member: the switch counts them as
// received and drops them.
type world struct {
	t         *testing.T
	box, host *netns.NS
	far       map[int]netns.Link // the hosts' ends, by the port's number
	sw        *Switch
	group     *mft.Group
}

const patience = testlab.Patience

var groupIP = netip.MustParseAddr("10.9.0.100")

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, box: netns.New(t), host: netns.New(t), far: map[int]netns.Link{}}
}

// plug makes the veth pair of port n, for the first time or again.
func (w *world) plug(n int, o netns.VethOptions) {
	w.t.Helper()
	_, far := netns.Veth(w.t, w.box, fmt.Sprintf("p%d", n), w.host, fmt.Sprintf("h%d", n), o)
	w.far[n] = far
	if err := far.AddAddress(fmt.Sprintf("10.9.%d.1/24", n)); err != nil {
		w.t.Fatal(err)
	}
	// The last route to the group decides by which port it is reached.
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	if err := far.AddNeighbour(w.via(n), mac); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) via(n int) string { return fmt.Sprintf("10.9.%d.254", n) }

func (w *world) unplug(n int) { w.run(w.box, "ip", "link", "del", fmt.Sprintf("p%d", n)) }

func (w *world) run(ns *netns.NS, name string, args ...string) {
	w.t.Helper()
	if _, err := ns.Exec(name, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tryOpen(c Config) error {
	return w.box.Do(func() (err error) { w.sw, err = Open(c); return err })
}

// open opens the switch and lets it run with a group until the test ends.
func (w *world) open(c Config) {
	w.t.Helper()
	if err := w.tryOpen(c); err != nil {
		w.t.Fatal(err)
	}
	w.engage()
	w.runs()
}

func (w *world) engage() {
	w.t.Helper()
	if err := w.box.Do(func() error { w.sw.Engage(); return nil }); err != nil {
		w.t.Error(err)
	}
}

// runs lets the switch run with a group until the test ends.
func (w *world) runs() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.sw.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		<-ended
		for i, worker := range w.sw.workers {
			if err := worker.umem.Audit(); err != nil {
				w.t.Error(err)
			}
			if c := worker.umem.Census(); c.Held != 0 || c.Stranded != 0 {
				w.t.Errorf("worker %d has ended, and %+v", i, c)
			}
		}
		if err := w.sw.Close(); err != nil {
			w.t.Error(err)
		}
	})
	nowhere := mft.Leg{Port: mft.NoPort, Src: groupIP, Dst: netip.MustParseAddr("192.0.2.1"), DestQPN: 17}
	g := &mft.Group{
		Name: "g", IP: groupIP, QPN: 1, PathMTU: 1024, Source: mft.Source{Leg: nowhere},
		Paths: []mft.Path{{Leg: nowhere, RemoteQPN: 1}},
	}
	g.Paths[0].Dst = netip.MustParseAddr("192.0.2.2")
	w.group = g
	if _, err := w.sw.Add(g); err != nil {
		w.t.Fatal(err)
	}
}

// refresh returns the warnings, each as "port: text: detail" without the empty parts.
func (w *world) refresh() (texts []string) {
	w.t.Helper()
	var warnings []dataplane.Warning
	err := w.box.Do(func() error { _, warnings = w.sw.Refresh(); return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	for _, w := range warnings {
		parts := slices.DeleteFunc([]string{w.Port, w.Text, w.Detail}, func(part string) bool { return part == "" })
		texts = append(texts, strings.Join(parts, ": "))
	}
	return texts
}

// port returns the state and the counters of port n.
func (w *world) port(n int) dataplane.PortInfo { return w.sw.Ports()[n-1] }

func (w *world) expect(n int, state dataplane.PortState, reason string) {
	w.t.Helper()
	if p := w.port(n); p.State != state || !strings.Contains(p.Reason, reason) || (reason == "") != (p.Reason == "") {
		w.t.Errorf("port %d is %s (%s), want %s (%s)", n, p.State, p.Reason, state, reason)
	}
}

func (w *world) classified(verdict string) uint64 {
	w.t.Helper()
	for _, c := range w.sw.Counters() {
		if c.Name == "classifier-"+verdict {
			return c.Value
		}
	}
	w.t.Fatalf("no counter for %s", verdict)
	return 0
}

// send sends group frames by port n. Each frame belongs to another flow.
func (w *world) send(n, frames int) { w.t.Helper(); w.sendBytes(n, frames, roce.BTHBytes) }

func (w *world) sendBytes(n, frames, payload int) {
	w.t.Helper()
	w.run(w.host, "ip", "route", "replace", groupIP.String()+"/32", "via", w.via(n))
	// BTH of a SEND-only to QPN 1. The ICRC is missing, because it is not checked here.
	bth := append([]byte{byte(roce.OpSendOnly), 0, 0xff, 0xff, 0, 0, 0, 1}, make([]byte, payload-8)...)
	err := w.host.Do(func() error {
		for range frames {
			conn, err := net.Dial("udp4", groupIP.String()+":4791")
			if err != nil {
				return err
			}
			if _, err := conn.Write(bth); err != nil {
				return err
			}
			conn.Close()
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// arrives sends frames by port n and waits until the switch has received all of them.
func (w *world) arrives(n int) {
	w.t.Helper()
	if err := w.far[n].AwaitCarrier(); err != nil { // the port may just have come up
		w.t.Fatal(err)
	}
	const frames = 64
	before := w.port(n).RxFrames
	w.send(n, frames)
	w.eventually(fmt.Sprintf("%d frames by port %d", frames, n), func() bool { return w.port(n).RxFrames-before >= frames })
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	testlab.Eventually(w.t, patience, what, done, func() string {
		return fmt.Sprintf("ports %+v, counters %v", w.sw.Ports(), w.sw.Counters())
	})
}
