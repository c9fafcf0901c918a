package model

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// The source and the receivers of this package are short because they leave out frames. This test
// compares them with internal/rnic, whose own tests replay captures of rdma_rxe: both get the same
// events and must do the same.

const (
	mtuBytes = 256
	rnrTime  = 1280 * time.Microsecond // of rnrSyndrome
)

var sourcePeer, receiverPeer = rnic.Peer{
	MAC: roce.MAC{2, 0, 0, 0, 0, 0xA}, IP: netip.MustParseAddr("10.0.0.1"), QPN: 0xA1, PSN: 0xFFFFFE,
}, rnic.Peer{
	MAC: roce.MAC{2, 0, 0, 0, 0, 0xB}, IP: netip.MustParseAddr("10.0.0.2"), QPN: 0xB1, PSN: 0x400,
}

func newQP(t *rapid.T, w *World, self, peer rnic.Peer) *rnic.QP {
	c := rnic.Defaults()
	c.MAC, c.IP, c.QPN, c.SendPSN, c.MTUBytes = self.MAC, self.IP, self.QPN, self.PSN, mtuBytes
	c.RetryCount, c.MinRNRTimer = w.retries(), rnrSyndrome.RNRTimer()
	qp, err := rnic.NewQP(c, &rnic.Memory{})
	if err == nil {
		err = qp.Connect(peer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return qp
}

// drawWorld draws the traffic; three losses stand for three retries.
func drawWorld(t *rapid.T, read bool) *World {
	w := &World{
		Packets: maxPackets, Message: rapid.IntRange(1, 5).Draw(t, "message"), First: sourcePeer.PSN, Losses: 3,
	}
	if read {
		w.Read = rapid.IntRange(0, maxPackets-1).Draw(t, "read")
	}
	w.prepare()
	return w
}

func post(t *rapid.T, w *World, qp *rnic.QP) {
	for p := uint8(0); int(p) < w.Packets; p = w.last[p] + 1 {
		err := error(nil)
		if p == w.read() {
			err = qp.PostRead(uint64(p), mtuBytes, rnic.Remote{})
		} else {
			err = qp.PostSend(uint64(p), make([]byte, mtuBytes*int(w.last[p]-p+1)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// pair is a source of the model and a queue pair of internal/rnic that get the same events.
type pair struct {
	w         *World
	src       source
	qp        *rnic.QP
	now       time.Duration
	buf       [rnic.MaxFrameBytes]byte
	completed int // number of messages that the queue pair has completed
}

func TestSourceIsRXE(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		p := &pair{w: w, qp: newQP(t, w, sourcePeer, receiverPeer)}
		post(t, w, p.qp)
		t.Repeat(map[string]func(*rapid.T){
			"send":    p.send,
			"hear":    p.hear,
			"timeout": p.timeout,
			"":        p.compare,
		})
	})
}

func (p *pair) send(t *rapid.T) {
	var v roce.View
	frame := p.qp.Transmit(p.now, p.buf[:])
	if got, want := frame != nil, p.src.canSend(p.w); got != want {
		t.Fatalf("the queue pair sends: %v, the model: %v", got, want)
	}
	if frame == nil {
		return
	}
	if err := v.Decode(frame, len(frame)); err != nil {
		t.Fatal(err)
	}
	packet := p.src.send()
	if diff := cmp.Diff(int32(packet), p.w.packet(v.PSN(frame))); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(p.w.asks[packet], v.AckReq(frame)); diff != "" {
		t.Fatal(diff)
	}
}

func (p *pair) hear(t *rapid.T) {
	if p.src.sent == 0 {
		t.Skip("nothing was sent")
	}
	m := message{
		packet: int8(rapid.IntRange(-1, int(p.src.sent)-1).Draw(t, "packet")),
		syndrome: rapid.SampledFrom([]roce.Syndrome{
			roce.SyndromeUnlimited, roce.SyndromeUnlimited, roce.NAKSequence, roce.NAKSequence, rnrSyndrome, fatalSyndrome,
		}).Draw(t, "syndrome"),
	}
	p.qp.Receive(p.now, ackFrame(t, p.w.psn(m.packet), m.syndrome), nil)
	p.src.hear(p.w, m)
}

func ackFrame(t *rapid.T, psn roce.PSN, s roce.Syndrome) []byte {
	ip := roce.IPUDP{Src: receiverPeer.IP, Dst: sourcePeer.IP, HopLimit: 64, SrcPort: 0xC000}
	bth := roce.BTH{Opcode: roce.OpAck, PKey: roce.DefaultPKey, DestQPN: sourcePeer.QPN, PSN: psn}
	aeth := roce.AETH{Syndrome: s}
	b := roce.AppendEthernet(nil, sourcePeer.MAC, receiverPeer.MAC, ip.EtherType())
	b, err := roce.AppendICRC(aeth.Append(bth.Append(ip.Append(b, roce.BTHBytes+roce.AETHBytes))))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// timeout lets the timer that is running in the model expire.
func (p *pair) timeout(t *rapid.T) {
	switch deadline := p.qp.NextDeadline(); {
	case p.src.rnrWait:
		p.now += rnrTime
		p.src.goBack()
	case deadline == rnic.Never:
		t.Skip("no timer runs")
	default:
		p.now = deadline
		if int(p.src.unacked) < p.w.Packets && !p.src.idle && p.src.next > p.w.firstOf(p.src.unacked) {
			p.src.retry(p.w)
		}
	}
	p.qp.Tick(p.now)
}

// compare compares the completions that a program would get with the model.
func (p *pair) compare(t *rapid.T) {
	status := running
	for c, ok := p.qp.Poll(); ok; c, ok = p.qp.Poll() {
		switch c.Status {
		case rnic.Success:
			p.completed++
		case rnic.RemoteAccess:
			status = refused
		case rnic.RetryExceeded:
			status = exceeded
		}
	}
	if p.src.status != running {
		if diff := cmp.Diff(p.src.status, status); diff != "" {
			t.Fatal(diff)
		}
		t.SkipNow()
	}
	if p.qp.State() != rnic.StateReady {
		t.Fatalf("the queue pair is in %v, the model's source lives", p.qp.State())
	}
	if diff := cmp.Diff(int(p.w.complete[p.src.unacked]), p.completed); diff != "" {
		t.Fatalf("messages completed: %s", diff)
	}
}

func TestReceiverIsRXE(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, false)
		source, qp := newQP(t, w, sourcePeer, receiverPeer), newQP(t, w, receiverPeer, sourcePeer)
		post(t, w, source)
		var frames [maxPackets][]byte
		for i := range frames {
			frames[i] = source.Transmit(0, make([]byte, rnic.MaxFrameBytes))
		}
		r := &receiver{}
		hasWQE := false
		for range rapid.IntRange(1, 40).Draw(t, "packets") {
			packet := uint8(rapid.IntRange(0, min(int(r.expected)+2, maxPackets-1)).Draw(t, "packet"))
			how := takes
			if packet == r.expected && packet == w.firstOf(packet) && !hasWQE {
				if rapid.Bool().Draw(t, "WQE") {
					hasWQE = qp.PostRecv(0, make([]byte, maxPackets*mtuBytes)) == nil
				} else {
					how = notReady
				}
			}
			var buf [rnic.MaxFrameBytes]byte
			got, answers := decodeAnswer(t, w, qp.Receive(0, frames[packet], buf[:]))
			was := r.expected
			want, ok := r.take(w, packet, how)
			if r.expected != was && packet == w.lastOf(packet) {
				hasWQE = false
			}
			if !ok {
				want = answer{}
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" || ok != answers {
				t.Fatalf("packet %d: the model answers %v, the queue pair %v: %s", packet, ok, answers, diff)
			}
		}
	})
}

func decodeAnswer(t *rapid.T, w *World, frame []byte) (a answer, ok bool) {
	if frame == nil {
		return answer{}, false
	}
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		t.Fatal(err)
	}
	aeth := v.AETH(frame)
	return answer{packet: int8(w.packet(v.PSN(frame))), msn: uint8(aeth.MSN), syndrome: aeth.Syndrome}, true
}
