package turns

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/softgroup"
	"github.com/rocast/rocast/roce"
)

const (
	memoryVA   = softgroup.VA
	memoryKey  = softgroup.RKey
	writeBytes = 1500 // two packets
	patience   = 60 * time.Second
)

func TestMain(m *testing.M) { boxes.Main(m) }

// lab is a box that runs rocastd, and three hosts that may all be the source.
type lab struct {
	*bed.Bed
	t      *testing.T
	daemon *boxes.Daemon
	group  *softgroup.Group
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
	l.group = &softgroup.Group{Name: "g1", IP: l.GroupIP(), QPN: 1, Bytes: 64 << 10, Keys: keys}
	for i, h := range l.Hosts { // PSNs wrap soon
		l.group.Add(h, softgroup.Both, roce.QPN(100+i), roce.PSN(0xFFFFF0+i), roce.PSN(1000*i))
	}
	l.daemon.Create(t, "g1", l.group.File())
	l.group.Connect(t)
	return l
}

// write lets a member write that often, one WRITE after the other, and says how long each one took.
func (l *lab) write(from *softgroup.Member, times int) (data []byte, took []time.Duration) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	for n := range times {
		data = from.New(writeBytes)
		begun := time.Now()
		testlab.Must(l.t, from.QP.PostWrite(uint64(n), data, rnic.Remote{VA: memoryVA, RKey: memoryKey}))
		c, err := from.QP.Wait(ctx)
		if err != nil || c.Status != rnic.Success {
			l.t.Fatalf("WRITE %d of %v ended with %v (%v)\n%s", n, from.IP, c.Status, err, boxes.State(l.t, "g1", l.daemon))
		}
		took = append(took, time.Since(begun))
	}
	return data, took
}

// lost counts the members other than from that lack data.
func (l *lab) lost(from *softgroup.Member, data []byte) int {
	return len(l.group.Lacking(from, 0, data))
}

// a writes 10 times and b 5 times; the box is killed as soon as b's writes have completed, and a
// writes once more. The same queue pairs go through all crashes.
func TestNothingIsLostWhenTheBoxIsKilledBehindATurn(t *testing.T) {
	crashes := testlab.Setting(t, "ROCAST_CRASHES", 3)
	for _, engine := range []string{"auto", "afxdp"} {
		t.Run(engine, func(t *testing.T) {
			l := newLab(t, "engine: "+engine+"\n")
			a, b := l.group.Members[0], l.group.Members[1]
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
			for _, m := range l.group.Members {
				testlab.Must(t, bed.CheckResponses(m.QP))
			}
		})
	}
}

// What a change of the source costs: the first WRITE of a turn waits until the turn is stored.
func TestTheFirstWriteOfATurnWaitsForTheDiskAlone(t *testing.T) {
	l := newLab(t, "")
	var first, later []time.Duration
	for turn := range 30 {
		_, took := l.write(l.group.Members[turn%2], 3)
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
