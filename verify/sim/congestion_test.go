package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
)

// Numbers of bytes in the queue of a congested link. At 1 Gbit/s about 19 packets of 256 bytes
// arrive in 50 us, the time between two notifications.
const (
	always = 40000 // every packet is marked
	often  = 4360  // one packet in a hundred is marked, so every sixth interval has a mark
	seldom = 4090  // one packet in four hundred is marked
)

// congested is a run of about 25 ms in which other traffic keeps this many bytes in each queue:
// first the queue from the source, then the queues of the receivers.
func congested(interval time.Duration, queues [4]int) Scenario {
	s := calm()
	s.CNPInterval = interval
	s.Hosts[0].Messages = nil
	for i := range 2400 {
		s.Hosts[0].Messages = append(s.Hosts[0].Messages, Message{Op: rnic.Write, Bytes: 1024, Target: i % 64 * 1024, From: i * 100})
	}
	s.eachLink(func(l *Link) {
		l.PicosPerByte, l.KminBytes, l.KmaxBytes, l.MarkPercent = 8000, 4000, 40000, 100
	})
	for host, bytes := range queues {
		if bytes > 0 {
			s.Hosts[host].ToHost.CrossBytes, s.Hosts[host].ToSwitch.CrossBytes = bytes, bytes
			s.Timed = append(s.Timed, Timed{Kind: CrossTraffic, Host: host})
		}
	}
	return s
}

// heardOf plays s and returns the number of notifications that the source got, and the number that
// the switch got from each receiver.
func heardOf(t *testing.T, s Scenario) (heard uint64, arrived [4]uint64) {
	t.Helper()
	var r Runner
	if result := play(t, &r, s); result.Failure != nil || result.Status != rnic.Success {
		t.Fatal(result.Failure, result.Status)
	}
	for i := range r.w.hosts {
		arrived[i] = r.w.hosts[i].arrived
	}
	return r.w.hosts[0].qp.Counters().Get(rnic.CNPsReceived), arrived
}

// The source gets as many notifications as the most congested receiver sends, as if it were the
// only receiver, and not the notifications of all receivers.
func TestSourceHearsTheMostCongestedReceiver(t *testing.T) {
	testlab.Long(t)
	for _, interval := range []time.Duration{4 * time.Microsecond, 50 * time.Microsecond} {
		for name, queues := range map[string][4]int{
			"one receiver":          {0, 0, always, 0},
			"one receiver, seldom":  {0, 0, 0, seldom},
			"one of three":          {0, seldom, always, often},
			"two of three alike":    {0, always, 0, always},
			"all alike":             {0, always, always, always},
			"the source's own link": {always, 0, 0, 0},
		} {
			t.Run(fmt.Sprintf("%v/%s", interval, name), func(t *testing.T) {
				heard, arrived := heardOf(t, congested(interval, queues))
				most := max(arrived[1], arrived[2], arrived[3])
				if most < 10 {
					t.Fatalf("%v notifications arrived: too few to say anything", arrived)
				}
				if most == arrived[1]+arrived[2]+arrived[3] && heard != most {
					t.Errorf("the source heard %d of the %d notifications of the only congested receiver", heard, most)
				}
				if heard < most-most/10 || heard > most+most/10 {
					t.Errorf("the source heard %d notifications of %v", heard, arrived)
				}
			})
		}
	}
}

// When another receiver becomes the most congested one, the source hears the notifications of that
// receiver within milliseconds.
func TestCongestionMoves(t *testing.T) {
	s := congested(50*time.Microsecond, [4]int{})
	for host := 1; host <= 2; host++ {
		s.Hosts[host].ToHost.CrossBytes = always
		s.Timed = append(s.Timed, Timed{Kind: CrossTraffic, Host: host, AfterPacket: 4800 * (host - 1), For: 12 * time.Millisecond})
	}
	heard, arrived := heardOf(t, s)
	if all := arrived[1] + arrived[2]; arrived[1] < 100 || arrived[2] < 100 || heard < all-all/10 {
		t.Errorf("the source heard %d notifications of %v", heard, arrived)
	}
}

// With cnp: all the source hears every notification.
func TestAllNotificationsPass(t *testing.T) {
	s := congested(50*time.Microsecond, [4]int{0, seldom, always, often})
	s.Policy.CNP = feedback.CNPAll
	if heard, arrived := heardOf(t, s); heard != arrived[1]+arrived[2]+arrived[3] {
		t.Errorf("the source heard %d notifications of %v", heard, arrived)
	}
}
