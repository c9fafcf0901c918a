package scale

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// The reduced responder answers like a queue pair, request by request, where requests are lost,
// doubled, sent again and marked.
func TestResponderAnswersLikeAQueuePair(t *testing.T) {
	const interval = 50 * time.Microsecond
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		n, err := New(Config{Shape: OneSwitch(2), Rate: 1e9, MTUBytes: 256, MessageBytes: 3000, QueueBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		c, err := n.newConn(0, 64)
		if err != nil {
			t.Fatal(err)
		}
		qp := peerOf(t, interval)
		var reduced = responder{psn: firstPSN}
		var frames [][]byte
		var packets []packet
		for i := range 60 {
			n.post(c, i*97%3000)
			for f := c.qp.Transmit(0, n.buf[:]); f != nil; f = c.qp.Transmit(0, n.buf[:]) {
				frames, packets = append(frames, append([]byte(nil), f...)), append(packets, n.request(c, f))
				if p := &packets[len(packets)-1]; p.ackReq { // so that the window moves
					c.qp.Receive(0, n.buildAnswer(&packet{psn: p.psn, syndrome: roce.SyndromeUnlimited}), nil)
				}
			}
			for _, ok := c.qp.Poll(); ok; _, ok = c.qp.Poll() {
			}
		}
		var counts [4]int // answers: none, ACK, NAK, notification
		now := time.Duration(0)
		for at := 0; at < len(frames); {
			now += time.Duration(random.IntN(20_000))
			frame, p := append([]byte(nil), frames[at]...), packets[at]
			if p.marked = random.IntN(4) == 0; p.marked {
				frame = markFrame(t, frame)
			}
			reply := qp.Receive(now, frame, make([]byte, 256))
			psn, syndrome, answers := reduced.receive(&p)
			checkAnswer(t, reply, psn, syndrome, reduced.msn, answers)
			notified := qp.Notify(make([]byte, 256)) != nil
			if notifies := reduced.notify(Time(now)*Nanosecond, Time(interval)*Nanosecond, &p); notifies != notified {
				t.Fatalf("seed %d: notification %v, a queue pair: %v", seed, notifies, notified)
			}
			switch {
			case !answers:
				counts[0]++
			case syndrome == roce.NAKSequence:
				counts[2]++
			default:
				counts[1]++
			}
			if notified {
				counts[3]++
			}
			switch random.IntN(12) {
			case 0:
				at += 2 // a loss
			case 1: // the same again
			case 2:
				at = max(0, int(reduced.psn.Sub(firstPSN))-random.IntN(5)) // the requester goes back
			default:
				at++
			}
			if at >= len(frames) && reduced.psn.Sub(firstPSN) < int32(len(frames)) {
				at = int(reduced.psn.Sub(firstPSN))
			}
		}
		for i, k := range counts {
			if k == 0 {
				t.Errorf("seed %d: no answer of kind %d was compared", seed, i)
			}
		}
	}
}

// peerOf returns a whole queue pair for the requests of a conn.
func peerOf(t *testing.T, interval time.Duration) *rnic.QP {
	t.Helper()
	var memory rnic.Memory
	if err := memory.Register(rnic.Region{VA: remoteVA, RKey: remoteRKey, Access: rnic.RemoteWrite, Bytes: make([]byte, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	qp, err := rnic.NewQP(rnic.Config{
		MAC: responderMAC, IP: responderIP, QPN: responderQPN, MTUBytes: 256, SendDepth: 1, RecvDepth: 1, CNPInterval: interval,
	}, &memory)
	if err == nil {
		err = qp.Connect(rnic.Peer{MAC: requesterMAC, IP: requesterIP, QPN: requesterQPN, PSN: firstPSN})
	}
	if err != nil {
		t.Fatal(err)
	}
	return qp
}

// markFrame sets the mark of congestion, which the ICRC does not cover.
func markFrame(t *testing.T, frame []byte) []byte {
	t.Helper()
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		t.Fatal(err)
	}
	const experienced = 3
	v.SetECN(frame, experienced)
	return frame
}

func checkAnswer(t *testing.T, reply []byte, psn roce.PSN, s roce.Syndrome, msn roce.MSN, answers bool) {
	t.Helper()
	if (reply != nil) != answers {
		t.Fatalf("an answer: %v, of a queue pair: %v", answers, reply != nil)
	}
	if reply == nil {
		return
	}
	var v roce.View
	if err := v.Decode(reply, len(reply)); err != nil {
		t.Fatal(err)
	}
	if aeth := v.AETH(reply); v.PSN(reply) != psn || aeth.Syndrome != s || aeth.MSN != msn {
		t.Fatalf("answer %v of %#x, %d messages; of a queue pair: %v of %#x, %d", s, psn, msn, aeth.Syndrome, v.PSN(reply), aeth.MSN)
	}
	if len(reply) != answerBytes {
		t.Fatalf("an answer has %d bytes, and %d are counted", len(reply), answerBytes)
	}
}
