package turns

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/roce"
)

const (
	memoryVA   = 0x10000
	memoryKey  = 0x77
	memory     = 64 << 10
	writeBytes = 1500 // two packets
	patience   = 60 * time.Second
)

func TestMain(m *testing.M) { boxes.Main(m) }

// lab is a box that runs rocastd, and three hosts that may all be the source.
type lab struct {
	*bed.Bed
	t       *testing.T
	daemon  *boxes.Daemon
	members []*member
}

type member struct {
	*bed.Host
	qp     *endpoint.QP
	memory []byte
	seed   byte
}

func newLab(t *testing.T, keys string) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	l := &lab{t: t}
	var err error
	l.Bed, err = bed.New(bed.Options{Hosts: 3})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, l.Close()) })
	l.daemon = boxes.Launch(t, l.Box, boxes.Ports(l.Ports()...))
	l.create(keys)
	return l
}

// create makes a group of all hosts and connects their queue pairs to it. PSNs wrap soon.
func (l *lab) create(keys string) {
	t := l.t
	t.Helper()
	text := fmt.Sprintf("name: g1\nip: %v\nqpn: 1\nmtu: 1024\nmemory: {va: %#x, length: %d, rkey: %#x}\n%smembers:\n",
		l.GroupIP(), memoryVA, memory, memoryKey, keys)
	sends := func(i int) roce.PSN { return roce.PSN(0xFFFFF0 + i) }
	expects := func(i int) roce.PSN { return roce.PSN(1000 * i) }
	for i, h := range l.Hosts {
		text += fmt.Sprintf("  - {ip: %v, qpn: %d, psn: %d, sendPSN: %d, role: both, regions: {va: 0, length: %d, rkey: 7}}\n",
			h.IP, 100+i, expects(i), sends(i), memory)
	}
	l.daemon.Create(t, "g1", text)
	var err error
	for i, h := range l.Hosts {
		m := &member{Host: h, memory: make([]byte, memory)}
		testlab.Must(t, h.RNIC.Register(rnic.Region{VA: 0, RKey: 7, Access: rnic.RemoteWrite, Bytes: m.memory}))
		m.qp, err = h.RNIC.NewQP(bed.QP(roce.QPN(100+i), sends(i), 1024))
		testlab.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		testlab.Must(t, m.qp.Connect(ctx, endpoint.Peer{IP: l.GroupIP(), QPN: 1, PSN: expects(i)}))
		l.members = append(l.members, m)
	}
}

// write lets a member write that often, one WRITE after the other, and says how long each one took.
func (l *lab) write(from *member, times int) (data []byte, took []time.Duration) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	for n := range times {
		from.seed++
		data = bed.Random(writeBytes, from.seed)
		begun := time.Now()
		testlab.Must(l.t, from.qp.PostWrite(uint64(n), data, rnic.Remote{VA: memoryVA, RKey: memoryKey}))
		c, err := from.qp.Wait(ctx)
		if err != nil || c.Status != rnic.Success {
			g, _ := l.daemon.Client().Group(l.t.Context(), "g1")
			l.t.Fatalf("WRITE %d of %v ended with %v (%v); %+v\n%s", n, from.IP, c.Status, err, g, l.daemon.Log())
		}
		took = append(took, time.Since(begun))
	}
	return data, took
}

// lost counts the members other than from that lack data.
func (l *lab) lost(from *member, data []byte) (n int) {
	for _, m := range l.members {
		if m != from && !m.Has(m.memory[:len(data)], data) {
			n++
		}
	}
	return n
}

// number is what an environment variable says.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	testlab.Must(t, err)
	return n
}

// a writes 10 times and b 5 times; the box is killed as soon as b's writes have completed, and a
// writes once more. The same queue pairs go through all crashes.
func TestNothingIsLostWhenTheBoxIsKilledBehindATurn(t *testing.T) {
	crashes := number(t, "ROCAST_CRASHES", 3)
	for _, engine := range []string{"auto", "afxdp"} {
		t.Run(engine, func(t *testing.T) {
			l := newLab(t, "engine: "+engine+"\n")
			a, b := l.members[0], l.members[1]
			lost := 0
			for range (crashes + 1) / 2 {
				data, _ := l.write(a, 10)
				lost += l.lost(a, data)
				data, _ = l.write(b, 5)
				testlab.Must(t, l.daemon.Kill())
				lost += l.lost(b, data)
				l.daemon.StartFor(t, l.Box)
				data, _ = l.write(a, 1)
				lost += l.lost(a, data)
			}
			t.Logf("%d crashes, %d losses", (crashes+1)/2, lost)
			if lost > 0 {
				t.Errorf("%d of %d crashes lost data\n%s", lost, crashes, l.daemon.Log())
			}
			for _, m := range l.members {
				testlab.Must(t, bed.CheckResponses(m.qp))
			}
		})
	}
}

// What a change of the source costs: the first WRITE of a turn waits until the turn is stored.
func TestTheFirstWriteOfATurnWaitsForTheDiskAlone(t *testing.T) {
	l := newLab(t, "")
	var first, later []time.Duration
	for turn := range 30 {
		_, took := l.write(l.members[turn%2], 3)
		if turn > 0 {
			first, later = append(first, took[0]), append(later, took[1:]...)
		}
	}
	slices.Sort(first)
	slices.Sort(later)
	t.Logf("first WRITE of a turn: median %v, longest %v; others: median %v", first[len(first)/2], first[len(first)-1], later[len(later)/2])
	if first[len(first)/2] > 50*time.Millisecond { // the source's timeout is longer
		t.Error("the source sent the first packet of its turn again")
	}
}
