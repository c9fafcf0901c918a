//go:build softroce

package softroce

import (
	"context"
	"testing"
	"time"
)

// mustPair opens a QP in each of the first two guests and connects them. The client sends, and the
// server has the memory.
func mustPair(t *testing.T, ctx context.Context, l *Lab, options QPOptions, connect ConnectOptions) (client, server *QP) {
	t.Helper()
	open := func(guest *Guest, spare int) *QP {
		o := options
		o.Spare = spare
		if o.Addr.Is6() {
			o.Addr = guest.Addr6
		}
		q, err := guest.OpenQP(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = q.Close(ctx) // fails if the guest is off
		})
		return q
	}
	client, server = open(l.Guests[0], 1), open(l.Guests[1], 2)
	for _, end := range []struct{ q, peer *QP }{{client, server}, {server, client}} {
		if err := end.q.Connect(ctx, end.peer.Local, connect); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Fill(ctx, 1); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func mtu(bytes int) ConnectOptions {
	o := DefaultConnect()
	o.MTU = bytes
	return o
}

// mustSucceed runs a transfer and logs its speed. All messages have to arrive.
func mustSucceed(t *testing.T, ctx context.Context, q *QP, transfer Transfer) {
	t.Helper()
	result, err := q.Transfer(ctx, transfer)
	if err != nil {
		t.Fatal(err)
	}
	if result.Status != Success || result.OK != transfer.Count {
		t.Fatalf("%d of %d messages succeeded, status %q", result.OK, transfer.Count, result.Status)
	}
	bits := float64(transfer.Bytes) * float64(transfer.Count) * 8
	t.Logf("%s: %d x %d bytes in %v, %.2f Gb/s", transfer.Op, transfer.Count, transfer.Bytes,
		result.Duration.Round(time.Millisecond), bits/result.Duration.Seconds()/1e9)
}

func mustHash(t *testing.T, ctx context.Context, q *QP, bytes int) string {
	t.Helper()
	hash, err := q.Hash(ctx, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func mustAgree(t *testing.T, ctx context.Context, a, b *QP, bytes int) {
	t.Helper()
	if mustHash(t, ctx, a, bytes) != mustHash(t, ctx, b, bytes) {
		t.Error("the two regions differ")
	}
}

func testWrite(t *testing.T, ctx context.Context, l *Lab) {
	client, server := mustPair(t, ctx, l, QPOptions{}, mtu(4096))
	for _, bytes := range []int{1, 4097, 400 << 10, 1 << 20} {
		if err := server.Fill(ctx, 2); err != nil {
			t.Fatal(err)
		}
		mustSucceed(t, ctx, client, Transfer{Op: "write", Peer: server.Local, Bytes: bytes, Count: 2, Depth: 2})
		mustAgree(t, ctx, client, server, 2*bytes)
	}
}

func testSend(t *testing.T, ctx context.Context, l *Lab) {
	const bytes, count = 3000, 100
	client, server := mustPair(t, ctx, l, QPOptions{}, mtu(1024))
	if err := server.PostReceives(ctx, 2*count, bytes); err != nil {
		t.Fatal(err)
	}
	imm := uint32(0xCAFE)
	mustSucceed(t, ctx, client, Transfer{Op: "send", Bytes: bytes, Count: count, Depth: 8})
	mustAgree(t, ctx, client, server, count*bytes)
	mustSucceed(t, ctx, client, Transfer{Op: "write", Peer: server.Local, Bytes: bytes, Count: count, Depth: 8, Imm: &imm})
	received, err := server.AwaitReceives(ctx, 2*count)
	if err != nil {
		t.Fatal(err)
	}
	if got := received[count]; got.Opcode != "write" || got.Imm != imm || got.Status != Success {
		t.Errorf("the first WRITE with immediate was received as %+v", got)
	}
}

func testRead(t *testing.T, ctx context.Context, l *Lab) {
	const bytes, count = 10000, 50
	client, server := mustPair(t, ctx, l, QPOptions{}, mtu(4096))
	if err := server.Fill(ctx, 3); err != nil {
		t.Fatal(err)
	}
	mustSucceed(t, ctx, client, Transfer{Op: "read", Peer: server.Local, Bytes: bytes, Count: count, Depth: 4})
	mustAgree(t, ctx, client, server, bytes*count)
}

func testPSNWrap(t *testing.T, ctx context.Context, l *Lab) {
	const bytes, count = 8192, 32
	client, server := mustPair(t, ctx, l, QPOptions{PSN: 0xFFFFF0}, mtu(1024))
	mustSucceed(t, ctx, client, Transfer{Op: "write", Peer: server.Local, Bytes: bytes, Count: count, Depth: 8})
	mustAgree(t, ctx, client, server, bytes*count)
}

func testIPv6(t *testing.T, ctx context.Context, l *Lab) {
	const bytes, count = 5000, 20
	client, server := mustPair(t, ctx, l, QPOptions{Addr: l.Guests[0].Addr6}, mtu(4096))
	mustSucceed(t, ctx, client, Transfer{Op: "write", Peer: server.Local, Bytes: bytes, Count: count, Depth: 4})
	mustAgree(t, ctx, client, server, bytes*count)
}

func testMTU1024(t *testing.T, ctx context.Context, l *Lab) {
	if err := l.SetMTU(ctx, MTU1024); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.SetMTU(context.WithoutCancel(ctx), MTU4096); err != nil {
			t.Error(err)
		}
	})
	client, server := mustPair(t, ctx, l, QPOptions{}, mtu(1024))
	mustSucceed(t, ctx, client, Transfer{Op: "write", Peer: server.Local, Bytes: 64 << 10, Count: 16, Depth: 4})
	mustAgree(t, ctx, client, server, 1<<20)
	if err := client.Connect(ctx, server.Local, mtu(4096)); err == nil {
		t.Error("path MTU 4096 was accepted on an interface of MTU 1500")
	}
}
