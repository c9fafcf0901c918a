package stick

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

const (
	groupName  = "story"
	groupQPN   = 0x21
	memoryVA   = 0x10000
	memoryKey  = 0x77
	pathMTU    = 1024
	writeBytes = 64 << 10
	patience   = 60 * time.Second
)

func TestMain(m *testing.M) { boxes.Main(m) }

// lab is a switch with hosts and boxes. The switch is a bed whose box runs no daemon.
//
//	hosts ── switch (br0) ── eth1, box
//	               └──────── eth1, box
type lab struct {
	*bed.Bed
	t         *testing.T
	boxes     []*box
	source    *endpoint.QP
	receivers []*receiver
	ip        netip.Addr // the group's
}

// box is a machine with one port and a daemon.
type box struct {
	t      *testing.T
	ns     *netns.NS
	port   netns.Link // eth1
	daemon *boxes.Daemon
}

type receiver struct {
	*bed.Host
	memory []byte
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
		b := &box{t: t, ns: netns.New(t)}
		end := fmt.Sprintf("box%d", i+1)
		b.port, _ = netns.Veth(t, b.ns, "eth1", l.Box, end, netns.VethOptions{})
		testlab.Must(t, b.port.AddAddress(fmt.Sprintf("10.77.3.%d/22", 10+i)))
		run(t, l.Box, "ip", "link", "set", end, "master", bed.Bridge)
		run(t, l.Box, "ethtool", "-K", end, "gro", "on") // so that it takes what XDP redirects to it
		l.boxes = append(l.boxes, b)
	}
	return l
}

func run(t *testing.T, in *netns.NS, name string, args ...string) string {
	t.Helper()
	out, err := in.Exec(name, args...)
	testlab.Must(t, err)
	return out
}

// start starts the box's daemon with more lines of config.
func (b *box) start(lines string) {
	b.t.Helper()
	b.daemon = boxes.Launch(b.t, b.ns, boxes.Ports("eth1")+lines)
}

func (b *box) client() *client.Client { return b.daemon.Client() }

// create makes a group of all hosts by one of the boxes, and connects the hosts to it.
func (l *lab) create(at *box, ip netip.Addr, memory int, keys string) {
	t := l.t
	t.Helper()
	l.ip = ip
	var text strings.Builder
	fmt.Fprintf(&text, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nmemory: {va: %#x, length: %d, rkey: %#x}\n%s\nmembers:\n",
		groupName, ip, groupQPN, pathMTU, memoryVA, memory, memoryKey, keys)
	fmt.Fprintf(&text, "  - {ip: %v, qpn: 17, psn: 16777200, role: source}\n", l.Hosts[0].IP)
	for i, h := range l.Hosts[1:] {
		fmt.Fprintf(&text, "  - {ip: %v, qpn: %d, psn: %d, regions: {va: 0, length: %d, rkey: 7}}\n", h.IP, 100+i, 1000*i, memory)
	}
	at.daemon.Create(t, groupName, text.String())
	for i, h := range l.Hosts[1:] {
		r := &receiver{Host: h, memory: make([]byte, memory)}
		l.receivers = append(l.receivers, r)
		testlab.Must(t, h.RNIC.Register(rnic.Region{VA: 0, RKey: 7, Access: rnic.RemoteWrite, Bytes: r.memory}))
		l.connect(h, roce.QPN(100+i), 0, roce.PSN(1000*i))
	}
	l.source = l.connect(l.Hosts[0], 17, 16777200, 0)
}

// connect makes a queue pair with the timeout of 268 ms, which retries six times.
func (l *lab) connect(h *bed.Host, qpn roce.QPN, sends, expects roce.PSN) *endpoint.QP {
	l.t.Helper()
	c := bed.QP(qpn, sends, pathMTU)
	c.Timeout, c.RetryCount = 16, 6
	qp, err := h.RNIC.NewQP(c)
	testlab.Must(l.t, err)
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	testlab.Must(l.t, qp.Connect(ctx, endpoint.Peer{IP: l.ip, QPN: groupQPN, PSN: expects}))
	return qp
}

func (b *box) group() api.Group { return b.daemon.Group(b.t, groupName) }

// write fills the group's memory with new data and returns the longest time between two
// completions. It calls midway when half of the WRITEs are complete, if midway is not nil. All
// receivers must have the data at the end.
func (l *lab) write(seed byte, midway func()) (outage time.Duration) {
	l.t.Helper()
	data := bed.Random(len(l.receivers[0].memory), seed)
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	outage, err := bed.Write(ctx, l.source, rnic.Remote{VA: memoryVA, RKey: memoryKey}, data, writeBytes, midway)
	if err != nil {
		l.t.Fatalf("%v\n%s", err, l.text())
	}
	for _, r := range l.receivers {
		if err := r.CheckReceived(r.memory, data); err != nil {
			l.t.Error(err)
		}
	}
	if err := bed.CheckResponses(l.source); err != nil {
		l.t.Error(err)
	}
	return outage
}

func (l *lab) text() (all string) {
	for i, b := range l.boxes {
		all += fmt.Sprintf("box %d:\n%s\n", i+1, b.daemon.Log())
	}
	return all
}
