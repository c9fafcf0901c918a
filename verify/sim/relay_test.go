package sim

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/relaying"
	"github.com/rocast/rocast/internal/testlab"
)

// oneMessage is a setting in which the time to send one message is nearly all that passes.
func oneMessage(receivers int) setting {
	s := stream(receivers)
	s.single()
	s.delay, s.messages = 0, 1
	return s
}

func playRelay(t testing.TB, r *relay, s Scenario, how relaying.Shape, slices int) outcome {
	t.Helper()
	if err := r.run(&s, how, slices); err != nil {
		t.Fatal(err)
	}
	return r.outcome()
}

// wants fails unless got is as many times one as want says, within two per cent.
func wants(t testing.TB, what string, got, one time.Duration, want float64) {
	t.Helper()
	if times := float64(got) / float64(one); times < 0.98*want || times > 1.02*want {
		t.Errorf("%s: %v, which is %.3f times %v, not %.3f times", what, got, times, one, want)
	}
}

// How long a message takes without losses, in times of sending it once: to n receivers by unicast
// n; over a chain of n hosts in s slices (n+s-1)/s; down a binomial tree a round for each time that
// the number of hosts doubles. The source's link carries the message once for each connection.
func TestRelayTakesItsTime(t *testing.T) {
	testlab.Long(t)
	var r relay
	s := oneMessage(1)
	one := playRelay(t, &r, s.scenario(0, feedback.Policy{}, 0), relaying.Unicast, 1).latencies[0]
	packets := uint64(s.bytes / comparedMTU)
	check := func(what string, n int, how relaying.Shape, slices int, times float64, copies int) {
		s := oneMessage(n)
		o := playRelay(t, &r, s.scenario(0, feedback.Policy{}, 0), how, slices)
		what = fmt.Sprintf("%s to %d receivers in %d slices", what, n, slices)
		wants(t, what, o.latencies[0], one, times)
		wants(t, what+", until all know", o.took, one, times)
		if got := r.nodes[0].toSwitch.offered; got != uint64(copies)*packets || o.resent != 0 {
			t.Errorf("%s: %d packets, %d of them resent, and the message has %d", what, got, o.resent, packets)
		}
	}
	for _, n := range []int{1, 2, 3, 7, 8, 12} {
		check("unicast", n, relaying.Unicast, 1, float64(n), n)
		rounds := bits.Len(uint(n))
		check("a tree", n, relaying.Binomial, 1, float64(rounds), rounds)
		for _, pieces := range []int{1, 2, 4, 16} {
			check("a chain", n, relaying.Chain, pieces, float64(n+pieces-1)/float64(pieces), 1)
		}
	}
}

var shapes = []struct {
	name   string
	shape  relaying.Shape
	slices int
}{{"unicast", relaying.Unicast, 1}, {"chain", relaying.Chain, 4}, {"whole-chain", relaying.Chain, 1}, {"tree", relaying.Binomial, 1}, {"sliced-tree", relaying.Binomial, 8}}

// At the end of a transfer with many losses, the memory of every host has what the source sent. A
// message is posted when all hosts have that from whose place it is sent. A loss that no later
// packet shows costs a timeout.
func TestRelayBringsEverythingToAll(t *testing.T) {
	for _, way := range shapes {
		t.Run(way.name, func(t *testing.T) {
			s := stream(5)
			s.messages, s.posted = 24, 4
			var r relay
			o := playRelay(t, &r, s.scenario(3, feedback.Policy{}, 1e-2), way.shape, way.slices)
			for i := range r.nodes {
				for m := s.messages - s.posted; m < s.messages; m++ {
					if got := r.nodes[i].bytes[m%s.posted*s.bytes:][:s.bytes]; !bytes.Equal(got, r.plan.data(m)) {
						t.Errorf("message %d is not at %s", m, hostName(i))
					}
				}
			}
			for m := s.posted; m < s.messages; m++ {
				if r.flights[m].postedAt < r.flights[m-s.posted].arrivedAt {
					t.Errorf("message %d was posted before message %d was at all receivers", m, m-s.posted)
				}
			}
			if slowest := slices.Max(o.latencies); slowest < r.w.s.ackTimeout() {
				t.Errorf("no message waited for a timeout, the slowest took %v", slowest)
			}
			checkLinks(t, &r)
			if o.resent == 0 || r.w.tally[Loss].Data == 0 || r.w.tally[Loss].Feedback == 0 {
				t.Errorf("%d packets resent, lost: %+v", o.resent, r.w.tally[Loss])
			}
		})
	}
}

// checkLinks checks that every frame came out of its link or was lost there, and that the hosts and
// the switch kept none.
func checkLinks(t testing.TB, r *relay) {
	t.Helper()
	for i := range r.nodes {
		for _, l := range []*link{&r.nodes[i].toSwitch, &r.nodes[i].toHost} {
			if l.offered != l.delivered+l.lost {
				t.Errorf("%v: %d frames in, %d out, %d lost", l, l.offered, l.delivered, l.lost)
			}
		}
	}
	if n := r.w.pool.lent(); n > 0 {
		t.Errorf("%d frames are lent", n)
	}
}

// A run that does not bring everything to all is no measurement.
func TestRelayFails(t *testing.T) {
	for want, spoil := range map[string]func(*Scenario){
		"ends: not over in time: 0 of 24 messages are at all receivers":    func(s *Scenario) { s.Limit = 2 * time.Microsecond },
		"ends: 0 of 24 messages are at all receivers, and nothing happens": func(s *Scenario) { s.Timeout = 0 },
		"ends: a: wr 0 write: transport retry counter exceeded":            func(s *Scenario) { s.RetryCount = 0 },
	} {
		setting := stream(2)
		setting.messages = 24
		s := setting.scenario(3, feedback.Policy{}, 0.2)
		spoil(&s)
		var r relay
		if err := r.run(&s, relaying.Unicast, 1); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A message that is not in the memory of a host as it was sent ends the run.
func TestRelayNoticesWrongBytes(t *testing.T) {
	s := stream(2)
	var r relay
	scenario := s.scenario(0, feedback.Policy{}, 0)
	r.shape, r.cut.Slices = relaying.Unicast, 1
	if err := r.open(&scenario); err != nil {
		t.Fatal(err)
	}
	r.arrived(&r.ends[1])
	if f := r.w.failure; f == nil || f.Invariant != Memory {
		t.Error(f)
	}
}

// A loss costs the host that sent the packet: the source resends what its own connections lost, and
// nothing that a host behind the next one lost.
func TestRelayResendsWhereItWasLost(t *testing.T) {
	s := stream(2)
	s.messages = 16
	scenario := s.scenario(1, feedback.Policy{}, 0)
	scenario.Hosts[2].ToHost.Loss = 1e-2
	var r relay
	if o := playRelay(t, &r, scenario, relaying.Unicast, 1); o.resent == 0 {
		t.Error("unicast: the source resent nothing")
	}
	packets := uint64(s.messages * s.bytes / comparedMTU)
	o := playRelay(t, &r, scenario, relaying.Chain, 4)
	if sent := r.nodes[0].toSwitch.offered; o.resent != 0 || sent != packets {
		t.Errorf("chain: the source sent %d packets and resent %d of %d", sent, o.resent, packets)
	}
	if o.busiest <= packets+uint64(s.messages*4) {
		t.Errorf("chain: the busiest link carried %d frames, and a host had to resend some of %d", o.busiest, packets)
	}
}
