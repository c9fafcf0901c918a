//go:build softroce

package softroce

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/wire"
)

func testLoss(t *testing.T, ctx context.Context, l *Lab) {
	const bytes, count = 64 << 10, 32
	client, server := mustPair(t, ctx, l, QPOptions{}, mtu(1024))
	there, back := l.Guests[1].Wire, l.Guests[0].Wire
	there.SetFilter(wire.ToGuest, wire.RandomLoss(1, 0.01, wire.Requests))
	back.SetFilter(wire.ToGuest, wire.RandomLoss(2, 0.01, wire.Responses))
	t.Cleanup(func() {
		there.SetFilter(wire.ToGuest, nil)
		back.SetFilter(wire.ToGuest, nil)
	})
	before := there.Counts(wire.ToGuest).Dropped
	mustSucceed(t, ctx, client, Transfer{Op: "write", Peer: server.Local, Bytes: bytes, Count: count, Depth: 8})
	mustAgree(t, ctx, client, server, bytes*count)
	if there.Counts(wire.ToGuest).Dropped == before {
		t.Error("nothing was lost")
	}
}

func testLastACKLost(t *testing.T, ctx context.Context, l *Lab) {
	const count = 8
	client, server := mustPair(t, ctx, l, QPOptions{PSN: 100}, mtu(1024))
	back := l.Guests[0].Wire
	last := wire.Match(wire.Responses).WithPSN(client.PSN.Add(count - 1))
	back.SetFilter(wire.ToGuest, wire.First(1, wire.Drop, last))
	t.Cleanup(func() { back.SetFilter(wire.ToGuest, nil) })
	before := back.Counts(wire.ToGuest).Dropped
	mustSucceed(t, ctx, client, Transfer{Op: "write", Peer: server.Local, Bytes: 1000, Count: count, Depth: count})
	if dropped := back.Counts(wire.ToGuest).Dropped - before; dropped != 1 {
		t.Errorf("%d ACKs were lost, want the last one", dropped)
	}
}

func testWrongRKey(t *testing.T, ctx context.Context, l *Lab) {
	client, server := mustPair(t, ctx, l, QPOptions{}, mtu(1024))
	target := server.Local
	target.RKey ^= 0xFF
	result, err := client.Transfer(ctx, Transfer{Op: "write", Peer: target, Bytes: 100, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if result.Status != "remote access error" {
		t.Errorf("status %q", result.Status)
	}
	for _, q := range []*QP{client, server} {
		if state, err := q.State(ctx); err != nil || state != "ERR" {
			t.Errorf("queue pair in state %s, error %v", state, err)
		}
	}
}

func testMissingReceives(t *testing.T, ctx context.Context, l *Lab) {
	const bytes, count = 1000, 4
	client, server := mustPair(t, ctx, l, QPOptions{}, mtu(1024))
	watch, seen := wire.Watch(func(v *roce.View, frame []byte) bool {
		return v.Opcode == roce.OpAck && v.AETH(frame).Syndrome.IsRNR()
	})
	l.Guests[0].Wire.SetFilter(wire.ToGuest, watch)
	t.Cleanup(func() { l.Guests[0].Wire.SetFilter(wire.ToGuest, nil) })
	if err := client.StartTransfer(Transfer{Op: "send", Bytes: bytes, Count: count}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-seen:
	case <-ctx.Done():
		t.Fatal("no RNR NAK")
	}
	if err := server.PostReceives(ctx, count, bytes); err != nil {
		t.Fatal(err)
	}
	if result, err := client.AwaitTransfer(ctx); err != nil || result.Status != Success {
		t.Fatalf("result %+v, error %v", result, err)
	}
	mustAgree(t, ctx, client, server, bytes*count)
}

func testPause(t *testing.T, ctx context.Context, l *Lab) {
	connect := mtu(1024)
	connect.Timeout, connect.Retry = 12, 2
	client, server := mustPair(t, ctx, l, QPOptions{}, connect)
	if err := l.Guests[1].Pause(); err != nil {
		t.Fatal(err)
	}
	result, err := client.Transfer(ctx, Transfer{Op: "write", Peer: server.Local, Bytes: 100, Count: 1})
	if err := errors.Join(err, l.Guests[1].Resume()); err != nil {
		t.Fatal(err)
	}
	if result.Status != "transport retry counter exceeded" {
		t.Errorf("writing to a paused guest: %q", result.Status)
	}
	if state, err := server.State(ctx); err != nil || state != "RTS" {
		t.Errorf("after the pause the receiver is in state %s, error %v", state, err)
	}
}

func testPowerOff(t *testing.T, ctx context.Context, l *Lab) {
	_, server := mustPair(t, ctx, l, QPOptions{}, mtu(1024))
	guest := l.Guests[1]
	guest.PowerOff()
	if _, err := server.State(ctx); err == nil {
		t.Error("a guest that is off has answered")
	}
	if _, err := guest.Run(ctx, "true"); !errors.Is(err, ErrOff) {
		t.Errorf("command on a guest that is off: %v", err)
	}
	start := time.Now()
	if err := guest.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("booted again in %.1f s", time.Since(start).Seconds())
	testRead(t, ctx, l)
}

// testPanic lets the kernel of a guest panic. Whoever revives the guests learns which has died and
// why, and can use it again.
func testPanic(t *testing.T, ctx context.Context, l *Lab) {
	guest := l.Guests[1]
	exited := guest.machine().exited
	if _, err := guest.Run(ctx, "dash", "-c", "echo c >/proc/sysrq-trigger"); err == nil {
		t.Fatal("the kernel should panic, and the command returned")
	}
	select {
	case <-exited: // a little later than the guest's control stream ends
	case <-ctx.Done():
		t.Fatal("the kernel has panicked, and QEMU still runs")
	}
	err := l.Revive(ctx)
	if err == nil || !strings.Contains(err.Error(), "guest 2 has died") || !strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("guest 2 has died of a panic, and the error says: %v", err)
	}
	if err := l.Revive(ctx); err != nil {
		t.Errorf("all guests should be on: %v", err)
	}
	testRead(t, ctx, l)
}
