package afxdp

import (
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/slow"
	"github.com/rocast/rocast/mft"
)

const (
	slowHost   = 2
	ecnCapable = 2 // congestion field (RFC 3168, 5)
	megabit    = 1_000_000
)

// slowLab is a lab with three receivers. The link of one of them is slow, so that frames wait in
// the queue of its port. The rate is in bits per second.
func slowLab(t *testing.T, rate int, bounds dataplane.Egress) *lab {
	t.Helper()
	egress := make([]dataplane.Egress, slowHost+1)
	egress[slowHost] = bounds
	l := newLab(t, labOptions{Options: bed.Options{Hosts: 4, MTU: 1500}, repair: 8 << 20, egress: egress, fanOut: true})
	_, err := slow.Attach(l.Hosts[slowHost].End, rate)
	check(t, err)
	return l
}

// notifies makes queue pairs send packets that may be marked, and notify of marks.
func notifies(c *rnic.Config) { c.TrafficClass, c.CNPInterval = 24<<2|ecnCapable, 50*time.Microsecond }

func (l *lab) portCounters(host int) dataplane.PortCounters { return l.sw.Ports()[host].PortCounters }

// A long queue marks what leaves by its port, and nothing else. The receivers' NICs accept what is
// marked, and the source hears of it. The kernel engine does not carry the group.
func TestALongQueueMarksItsCopies(t *testing.T) {
	for name, pathMTU := range map[string]int{"one chunk a packet": 1024, "small packets": 256} {
		t.Run(name, func(t *testing.T) {
			// Hosts that are slow under the race detector overrun a link of this rate, too.
			l := slowLab(t, 10*megabit, dataplane.Egress{KminBytes: 8 << 10, KmaxBytes: 32 << 10, MarkPercent: 50, LimitBytes: 1 << 20})
			g := l.addGroup(t, groupOptions{memory: 256 << 10, pathMTU: pathMTU, rnic: notifies})
			g.holds(t, g.write(t, 64<<10))
			for host := 1; host <= 3; host++ {
				counted := l.portCounters(host)
				if (counted.Marked > 0) != (host == slowHost) || counted.TxLost != 0 {
					t.Errorf("the port of receiver %d counts %+v", host, counted)
				}
				// What was sent again because the source was impatient may still be on its way.
				l.eventually(t, "the receiver has got all marks", func() bool {
					nic := l.Hosts[host].RNIC.Counters()
					return nic.Get(rnic.CongestionMarks) == counted.Marked
				})
			}
			source := l.Hosts[0].RNIC.Counters()
			if source.Get(rnic.CNPsReceived) == 0 {
				t.Error("the source has heard of no congestion")
			}
			if e := g.engine(t); e.Carried != 0 || e.Kernel {
				t.Errorf("%+v", e)
			}
		})
	}
}

// A source that slows down when it is notified loses nothing. One that does not overruns the queue
// of the slow port; the box repairs what is lost there, and the other receivers lose nothing.
func TestASourceThatSlowsDownLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("under the race detector a soft NIC is too slow to fill a queue")
	}
	// A soft NIC on a socket cannot send a packet every few microseconds, so that its rates are low
	// here, and it changes them slowly. Its line is little faster than the slow link: the queue
	// takes a tenth of a second to fill, which is time to hear of it on a busy machine.
	slowly := rnic.RateControl{
		LineRate: 27 * megabit, MinRate: 5 * megabit, Gain: 4, AlphaEvery: 5 * time.Millisecond,
		IncreaseEvery: 5 * time.Millisecond, IncreaseBytes: 1 << 20, Stages: 5, Additive: megabit, Hyper: megabit,
	}
	for name, c := range map[string]struct {
		rate, memory, limit int
		control             rnic.RateControl
	}{
		"slows down": {rate: 20 * megabit, memory: 512 << 10, limit: 96 << 10, control: slowly},
		// A window of packets is longer than the queue may be, and the link takes a tenth of a
		// second for the rest: a soft NIC sends a window in less, also on a busy machine.
		"does not": {rate: 5 * megabit, memory: 512 << 10, limit: 48 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			l := slowLab(t, c.rate, dataplane.Egress{KminBytes: 8 << 10, KmaxBytes: 32 << 10, MarkPercent: 50, LimitBytes: c.limit})
			g := l.addGroup(t, groupOptions{
				memory: c.memory,
				edit: func(g *mft.Group) {
					if (c.control == rnic.RateControl{}) { // a slow source may seem silent to repair
						g.Policy.Repair = feedback.RepairLocal
					}
				},
				rnic: func(config *rnic.Config) {
					notifies(config)
					config.RateControl = c.control
				},
			})
			g.holds(t, g.write(t, 256<<10))
			for host := 1; host <= 3; host++ {
				lost := l.portCounters(host).QueueFull
				if (lost > 0) != (host == slowHost && c.control == rnic.RateControl{}) {
					t.Errorf("receiver %d: %d copies lost", host, lost)
				}
			}
			if n := l.portCounters(slowHost).Marked; n == 0 {
				t.Error("nothing was marked")
			}
		})
	}
}
