package dataplane_test

import (
	"strings"
	"testing"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A port comes while a group runs. A receiver behind it joins then and gets copies like the others,
// within the bounds of the port.
func TestAPortComesWhileAGroupRuns(t *testing.T) {
	for _, c := range []struct {
		bounds dataplane.Egress
		want   int // copies by the new port
	}{{dataplane.Egress{}, 1}, {dataplane.Egress{LimitBytes: 32}, 0}} {
		g := group()
		g.Paths = g.Paths[:2]
		net := newNet(t, g)
		net.Ports[0].Put(write(firstPSN, []byte("x")).frame(t))
		net.Poll()
		more := *group()
		more.Paths[2] = receiver(4, ipD)
		err := net.Switch.Replace(g.ID, &more)
		if want := "10.77.0.4 is behind port 4, and there are only 4 ports"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Fatalf("before the port is there: %v", err)
		}
		if id := net.AddPort(c.bounds); id != 4 {
			t.Fatalf("the port is number %d", id)
		}
		if err := net.Switch.Replace(g.ID, &more); err != nil {
			t.Fatal(err)
		}
		for _, p := range net.Ports {
			p.Take()
		}
		net.Ports[0].Put(write(firstPSN+1, []byte("y")).frame(t))
		net.Poll()
		for port, want := range []int{0, 1, 1, 0, c.want} {
			if got := len(net.Ports[port].Take()); got != want {
				t.Errorf("%+v: port %d sent %d copies, want %d", c.bounds, port, got, want)
			}
		}
		if got := net.Switch.PortCounters(); len(got) != 5 || got[4].TxFrames != uint64(c.want) || got[4].QueueFull != uint64(1-c.want) || got[1].TxFrames != 2 {
			t.Errorf("%+v", got)
		}
		net.Ports[4].Put(write(firstPSN+1, []byte("y")).frame(t)) // a frame that comes by it is counted there
		net.Poll()
		if got := net.Switch.PortCounters()[4].RxFrames; got != 1 {
			t.Errorf("%d frames came by the port", got)
		}
	}
}

// A number that no group uses any more is another interface's: it has nothing of the first one.
func TestANumberOfAPortIsUsedAgain(t *testing.T) {
	net := porttest.NewBounded(4, nil, nil, dataplane.Egress{}, dataplane.Egress{}, dataplane.Egress{LimitBytes: 32})
	g := group()
	if _, err := net.Switch.Add(g); err != nil {
		t.Fatal(err)
	}
	send := func() {
		net.Ports[0].Put(write(firstPSN, []byte("x")).frame(t))
		net.Poll()
	}
	send()
	before := net.Switch.PortCounters()
	if before[2].QueueFull != 1 || before[1].TxFrames != 1 {
		t.Fatalf("%+v", before)
	}
	another := porttest.New(3).Ports[2]
	net.Switch.TakePort(2, []dataplane.Port{another}, dataplane.Egress{})
	if got := net.Switch.PortCounters(); got[2] != (dataplane.PortCounters{}) || got[1] != before[1] || len(got) != 4 {
		t.Errorf("%+v", got)
	}
	send()
	if got := len(another.Take()); got != 1 || len(net.Ports[2].Take()) != 0 {
		t.Errorf("%d copies by the new port", got)
	}
}

// Ports come while the workers forward. Nothing of what they forward is lost or late, whichever
// worker has the group.
func TestPortsComeUnderTraffic(t *testing.T) {
	r := newRunning(t, 2, false)
	g := group()
	if _, err := r.Add(g); err != nil {
		t.Fatal(err)
	}
	dataplane.Claim(r.Switch, g.ID, 1)
	const frames = 20
	added := make(chan struct{})
	go func() {
		defer close(added)
		for id := range mft.PortID(frames) {
			queues := []dataplane.Port{&porttest.Port{}, &porttest.Port{}}
			r.TakePort(4+id, queues, dataplane.Egress{})
			r.PortCounters()
		}
	}()
	for i := range frames {
		r.lines[1][0].put(write(roce.PSN(firstPSN+i), []byte("x")).frame(t))
		r.waits[1].Wake()
		for path := range g.Paths {
			within(t, "a copy", func() { <-r.lines[1][path+1].out })
		}
	}
	within(t, "adding ports", func() { <-added })
	if n := len(r.PortCounters()); n != 4+frames {
		t.Errorf("%d ports", n)
	}
}
