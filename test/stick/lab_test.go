package stick

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) { boxes.Main(m) }

// lab is a switch with hosts and boxes. The switch is a bed whose box runs no daemon.
//
//	hosts ── switch (br0) ── eth1, box
//	               └──────── eth1, box
type lab struct {
	*bed.Bed
	t     *testing.T
	boxes []*box
	group *softgroup.Group // of all hosts
}

// box is a machine with one port and a daemon.
type box struct {
	*boxes.Daemon
	ns   *netns.NS
	port netns.Link // eth1
}

// newLab builds a switch with a source, three receivers and boxes.
func newLab(t *testing.T, boxes int) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	l := &lab{t: t}
	var err error
	l.Bed, err = bed.New(bed.Options{Hosts: 4})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, l.Bed.Close()) })
	for i := range boxes {
		b := &box{}
		b.ns, b.port, err = l.AddStick(fmt.Sprintf("box%d", i+1), netip.AddrFrom4([4]byte{10, 77, 3, byte(10 + i)}))
		testlab.Must(t, err)
		t.Cleanup(func() { testlab.Must(t, b.ns.Close()) })
		l.boxes = append(l.boxes, b)
	}
	return l
}

// start starts a box's daemon with more lines of config.
func (l *lab) start(b *box, lines string) {
	l.t.Helper()
	b.Daemon = boxes.Launch(l.t, b.ns, boxes.Ports("eth1")+lines)
}

// create makes a group of all hosts by one of the boxes, and connects the hosts to it. Their queue
// pairs have the timeout of 268 ms, and retry six times.
func (l *lab) create(at *box, ip netip.Addr, bytes int, keys string) {
	l.t.Helper()
	g := &softgroup.Group{
		Name: "story", IP: ip, QPN: 0x21, Bytes: bytes, Keys: keys, Timeout: 16, RetryCount: 6,
		State: func() string { return boxes.State(l.t, "story", l.boxes...) },
	}
	g.Add(l.Hosts[0], softgroup.Sends, 17, 16777200, 0)
	for i, h := range l.Hosts[1:] {
		g.Add(h, softgroup.Receives, roce.QPN(100+i), 0, roce.PSN(1000*i))
	}
	at.Create(l.t, g.Name, g.File())
	g.Connect(l.t)
	l.group = g
}

// write lets the source write to all receivers, and returns the longest time between two
// completions. It calls midway when half of the WRITEs are complete.
func (l *lab) write(midway func()) (outage time.Duration) {
	l.t.Helper()
	return l.group.Write(l.t, l.group.Members[0], 64<<10, midway).Outage
}
