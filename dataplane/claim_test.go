package dataplane_test

import (
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// everybodySends makes the source a receiver, too, and receiver b a sender, of a group that goes on
// with two of three.
func everybodySends(g *mft.Group) {
	a := receiver(0, ipA)
	a.DestQPN, a.Sends, a.SendPSN = 17, true, firstPSN
	g.Paths[0].Sends, g.Paths[0].SendPSN = true, 5000
	g.Paths = append([]mft.Path{a}, g.Paths...)
	g.Policy.Ack = 2
}

// The cable of d is out during a's turn, which ends without d. It is back when b takes its turn. d
// catches up where packets are retained; otherwise b's turn begins without it.
func TestASourceSwitchAfterAQuorumWentOnWithoutOne(t *testing.T) {
	engine := func(b *repairBench) { // which carries the group when d's cable is cut
		b.Net = porttest.NewRetaining(4, 64, porttest.NewFanOut(), func() feedback.Tick { return b.now })
	}
	for _, c := range []struct {
		name    string
		options []func(*mft.Group)
		engine  func(*repairBench)
		follows bool // d takes part in b's turn
	}{
		{"repair", nil, nil, true},
		{"repair, the kernel's engine", nil, engine, true},
		{"repair off", []func(*mft.Group){func(g *mft.Group) { g.Policy.Repair = feedback.RepairOff }}, nil, false},
		{"repair off, the kernel's engine", []func(*mft.Group){func(g *mft.Group) { g.Policy.Repair = feedback.RepairOff }}, engine, false},
		{"evict", []func(*mft.Group){func(g *mft.Group) {
			g.Policy.SilentAfter, g.Policy.Evict = 200*time.Millisecond, true
		}}, nil, true},
		{"a window that is too small", []func(*mft.Group){func(g *mft.Group) { g.Policy.RepairWindow = 2 }}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &repairBench{t: t, group: group()}
			b.group.Policy.Repair, b.group.Policy.RepairWindow = feedback.RepairLocal, 64
			everybodySends(b.group)
			for _, o := range c.options {
				o(b.group)
			}
			b.Net = porttest.NewRetaining(4, 64, nil, func() feedback.Tick { return b.now })
			if c.engine != nil {
				c.engine(b)
			}
			b.add(b.group)
			psn := roce.PSN(firstPSN)
			turn := func(packets int, paths ...int) {
				for range packets {
					b.send(quiet(psn))
					for _, path := range paths {
						b.answer(path, psn, roce.SyndromeUnlimited)
					}
					psn = psn.Next()
				}
			}
			turn(20, 1, 2, 3)
			b.expectEngine(c.engine != nil)
			turn(10, 1, 2)
			for range 5000 {
				b.now += feedback.Tick(time.Millisecond)
				b.Poll()
			}
			for _, p := range b.Ports {
				p.Take()
			}
			next := write(5000, []byte("b is next"))
			next.src = ipB
			d := &b.group.Paths[3]
			expected, got := d.FirstPSN.Add(20), 0             // what d's queue pair expects, and has got
			asked := false                                     // d sends one NAK for a gap
			for try := 0; len(b.Ports[2].Take()) == 0; try++ { // c has everything, and gets b's packets only
				if try == 7 {
					t.Fatalf("b's queue pair ends by its retries: %v", moved(b.Switch))
				}
				say(t, b.Net, next)
				for range 67 {
					for _, f := range b.Ports[3].Take() {
						switch psn := decode(t, f).PSN; {
						case psn == expected:
							expected, got, asked = expected.Next(), got+1, false
							say(t, b.Net, ack(ipD, psn, roce.SyndromeUnlimited))
						case psn.After(expected) && !asked:
							asked = true
							say(t, b.Net, ack(ipD, expected, roce.NAKSequence))
						}
					}
					b.now += feedback.Tick(time.Millisecond)
					b.Poll()
				}
			}
			if follows := got == 11; follows != c.follows {
				t.Errorf("d has got %d packets, and b's is the 11th", got)
			}
			st, _ := b.Switch.GroupState(b.group.ID)
			if behind := st.Paths[3].Part == feedback.PartBehind; behind == c.follows {
				t.Errorf("d is %v", st.Paths[3].Part)
			}
		})
	}
}
