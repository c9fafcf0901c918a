//go:build softroce

package softroce

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/wire"
)

// testInsertedWrite shows a fault of rxe between two hosts. rocast has no part in it. A requester
// that sends a message again is told in the middle that all of it has arrived. Then it hears
// nothing until its timer runs out. It goes back behind the message, finds no bytes left of it, and
// sends that as an empty WRITE. The empty WRITE takes a PSN, so the packets behind it have other
// PSNs than when they were sent first, and the responder ends the connection. The network has lost
// ACKs, and packets behind the message.
//
// See docs/wire.md#requester. A kernel with which this test fails has been mended.
func testInsertedWrite(t *testing.T, ctx context.Context, l *Lab) {
	const attempts = 20 // the requester may have sent all of the message again before it hears the ACK
	for n := range attempts {
		w, result := insertWrite(t, ctx, l)
		if !w.inserted {
			continue
		}
		if result.Status != remoteInvalid {
			t.Errorf("%d messages done, status %q", result.OK, result.Status)
		}
		t.Logf("attempt %d: %d messages done, then %q", n+1, result.OK, result.Status)
		return
	}
	t.Errorf("no empty WRITE in %d attempts", attempts)
}

func insertWrite(t *testing.T, ctx context.Context, l *Lab) (*insertingWires, Result) {
	const packets, pathMTU = 128, 4096 // as many packets as rxe sends without an ACK
	client, server := mustPair(t, ctx, l, QPOptions{PSN: 100}, mtu(pathMTU))
	w := &insertingWires{first: client.PSN, next: client.PSN.Add(packets), told: make(chan struct{})}
	cable := l.Guests[0].Wire
	cable.SetFilter(wire.ToBox, w.request)
	cable.SetFilter(wire.ToGuest, w.response)
	defer func() {
		cable.SetFilter(wire.ToBox, nil)
		cable.SetFilter(wire.ToGuest, nil)
	}()
	result, err := client.Transfer(ctx, Transfer{Op: "write", Peer: server.Local, Bytes: packets * pathMTU, Count: 2, Depth: 2})
	must(t, err)
	return w, result
}

// insertingWires lose the ACKs of the first message and what is behind it, until the requester
// begins again. Then one ACK passes, and the second packet of the message waits for that. Behind
// the message one packet passes. Everything passes when the requester begins once more.
type insertingWires struct {
	mu          sync.Mutex
	first, next roce.PSN // of the first message, and behind it
	rounds      int      // how often the message has begun
	began       int      // how often what is behind it has begun since
	inserted    bool     // by an empty WRITE
	told        chan struct{}
	isTold      bool
	waited      bool
}

// takes is more than a guest takes to hear an ACK.
const takes = 50 * time.Millisecond

func (w *insertingWires) request(frame []byte) wire.Verdict {
	var v roce.View
	if v.Decode(frame, len(frame)) != nil || !v.Opcode.IsRequest() {
		return wire.Pass
	}
	psn := v.PSN(frame)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case psn == w.first:
		w.rounds++
	case psn == w.first.Next() && w.rounds > 1 && !w.waited:
		w.waited = true
		w.mu.Unlock()
		select {
		case <-w.told:
			time.Sleep(takes) // nothing shows when the guest has heard it; another attempt follows
		case <-time.After(time.Second):
		}
		w.mu.Lock()
	case psn.Before(w.next) || w.began > 1:
	case psn == w.next && w.rounds > 1:
		w.began++
		w.inserted = v.Opcode == roce.OpWriteOnly
	default:
		return wire.Drop
	}
	return wire.Pass
}

func (w *insertingWires) response(frame []byte) wire.Verdict {
	var v roce.View
	if v.Decode(frame, len(frame)) != nil || !v.Opcode.IsResponse() {
		return wire.Pass
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.began > 1:
		return wire.Pass
	case w.rounds > 1 && !w.isTold && v.PSN(frame) == w.next.Prev():
		w.isTold = true
		close(w.told)
		return wire.Pass
	}
	return wire.Drop
}
