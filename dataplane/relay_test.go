package dataplane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Another box sends an old packet again, as behind a crash. It hears an ACK of the newest one:
// while it is the source, when this box has crashed too, and when its turn has ended.
func TestABoxThatSendsAnOldPacketHearsOfTheNewest(t *testing.T) {
	for name, since := range map[string]func(*branch){
		"its turn": func(*branch) {},
		"its turn behind a crash": func(b *branch) {
			b.crashesInTheTurn(t)
			b.goesOnBehindACrash(t)
		},
		"its next turn": func(b *branch) {
			sayAt(t, b.net, linkDown, b.answer())
			b.turnBegins()
			for _, f := range b.net.Ports[linkDown].Take() {
				link := ack(ipUpper, decode(t, f).PSN, roce.SyndromeUnlimited)
				link.dst, link.bth.DestQPN = ipLower, qpnLower
				sayAt(t, b.net, linkDown, link)
			}
			say(t, b.net, ack(ipD, heard(t, b.net, ipD, roce.OpWriteOnly), roce.SyndromeUnlimited))
			request := b.says(b.sent.bth.PSN.Next().Add(2 * feedback.Window))
			request.bth.Opcode, request.reth, request.payload = roce.OpWriteMiddle, nil, nil
			sayAt(t, b.net, linkDown, request)
			b.turnBegins()
			b.net.Ports[2].Take() // c hears an ACK
			b.sends()
		},
		"c's turn": func(b *branch) {
			sayAt(t, b.net, linkDown, b.answer())
			b.turnBegins()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBranch(t, mft.BoxBelow, feedback.Policy{})
			b.now = feedback.Tick(time.Second)
			for range 3 {
				b.sends()
			}
			since(b)
			b.net.Ports[linkDown].Take()
			sayAt(t, b.net, linkDown, b.says(b.sent.bth.PSN.Prev()))
			var heard []roce.PSN
			for _, f := range b.net.Ports[linkDown].Take() {
				if d := decode(t, f); d.Opcode == roce.OpAck {
					heard = append(heard, d.PSN)
				}
			}
			if len(heard) != 1 || heard[0] != b.sent.bth.PSN {
				t.Errorf("the newest packet was %d, and the box hears ACKs of %d; counters %v", b.sent.bth.PSN, heard, moved(b.net.Switch))
			}
		})
	}
}

// The other box only sends, until a member behind it may receive. It is another box then as before.
func TestABoxThatReceivesLaterHearsOfTheNewest(t *testing.T) {
	b := newBranch(t, mft.BoxAbove, feedback.Policy{})
	b.now = feedback.Tick(time.Second)
	next := *b.group
	b.group = group()
	b.group.KeepsTurns, b.group.Source = true, mft.Source{Leg: next.Source.Leg, RemoteQPN: qpnLower, FirstPSN: psnUpper}
	b.group.Paths = slices.DeleteFunc(slices.Clone(next.Paths), func(p mft.Path) bool { return p.Box != mft.NoBox })
	b.begin()
	for range 3 {
		b.sends()
	}
	if err := b.net.Switch.Replace(b.group.ID, &next); err != nil {
		t.Fatal(err)
	}
	b.net.Ports[linkDown].Take()
	sayAt(t, b.net, linkDown, b.says(b.sent.bth.PSN.Prev()))
	out := b.net.Ports[linkDown].Take()
	if len(out) != 1 || decode(t, out[0]).Opcode != roce.OpAck || decode(t, out[0]).PSN != b.sent.bth.PSN {
		t.Errorf("it hears %d packets; counters %v", len(out), moved(b.net.Switch))
	}
}

// turnBegins lets the turn begin that a member waits for.
func (b *branch) turnBegins() {
	if !b.waits() {
		b.t.Fatalf("nobody waits for a turn; counters %v", moved(b.net.Switch))
	}
	b.net.Switch.BeginTurn(b.group.ID, true)
}

// Behind the turn of another box a NIC is answered with the packet that it sends again: an ACK of
// later ones would be ahead of its place.
func TestANICThatSendsAnOldPacketHearsOfThatOne(t *testing.T) {
	b := newBranch(t, mft.BoxBelow, feedback.Policy{})
	b.now = feedback.Tick(time.Second)
	b.sends()
	sayAt(t, b.net, linkDown, b.answer())
	b.turnBegins()
	sends := func(psn roce.PSN) {
		r := write(psn, []byte("from c"))
		r.src = ipC
		say(t, b.net, r)
	}
	sends(201)
	for _, f := range b.net.Ports[linkDown].Take() {
		link := ack(ipUpper, decode(t, f).PSN, roce.SyndromeUnlimited)
		link.dst, link.bth.DestQPN = ipLower, qpnLower
		sayAt(t, b.net, linkDown, link)
	}
	for _, f := range b.net.Ports[3].Take() {
		say(t, b.net, ack(ipD, decode(t, f).PSN, roce.SyndromeUnlimited))
	}
	b.net.Ports[2].Take()
	sends(200)
	out := b.net.Ports[2].Take()
	if len(out) != 1 || decode(t, out[0]).Opcode != roce.OpAck || decode(t, out[0]).PSN != 200 {
		t.Errorf("c sends packet 200 again, and hears %d packets; counters %v", len(out), moved(b.net.Switch))
	}
}
