package ways

import (
	"context"
	"errors"
	"testing"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
)

const (
	va, rkey = 0x1000, 0x77
	bytes    = 64
	room     = 1 << 14
)

// lab is a source and two receivers.
func lab(t *testing.T) (s Settings, memory [][]byte) {
	t.Helper()
	testlab.NeedRoot(t)
	b, err := bed.New(bed.Options{Hosts: 3})
	testlab.Permitted(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	s = Settings{Source: b.Hosts[0], Receivers: b.Hosts[1:], MTU: 1024, First: 0x10, Target: Target{VA: va, RKey: rkey, Bytes: room}}
	for _, h := range s.Receivers {
		m := make([]byte, room)
		memory = append(memory, m)
		if err := h.RNIC.Register(rnic.Region{VA: va, RKey: rkey, Access: rnic.RemoteWrite, Bytes: m}); err != nil {
			t.Fatal(err)
		}
	}
	return s, memory
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
	t.Cleanup(cancel)
	return ctx
}

// More messages than a queue pair holds get through, each to its place at each receiver, and what
// is heard grows by one.
func TestEachBringsAllMessagesToAll(t *testing.T) {
	s, memory := lab(t)
	ctx := limited(t)
	var heard []uint64
	w, err := Each(ctx, s, 2, func(n uint64) { heard = append(heard, n) })
	if err != nil {
		t.Fatal(err)
	}
	data := bed.Random(room, 1)
	for at := 0; at < room; at += bytes {
		n, err := w.Write(ctx, data[at:at+bytes], at)
		if err != nil || n != uint64(at/bytes) {
			t.Fatalf("message %d: %d, %v", at/bytes, n, err)
		}
	}
	if err := w.WaitFor(ctx, room/bytes); err != nil {
		t.Fatal(err)
	}
	for i, h := range s.Receivers {
		if !h.Has(memory[i], data) {
			t.Errorf("%v has other data", h.IP)
		}
	}
	if err := w.Drain(ctx); err != nil || w.Complete() != room/bytes {
		t.Errorf("%d messages are complete, %v", w.Complete(), err)
	}
	w.Close()
	for i, n := range heard {
		if n != uint64(i+1) {
			t.Fatalf("heard %v", heard)
		}
	}
	if len(heard) != room/bytes {
		t.Errorf("heard of %d messages", len(heard))
	}
}

// If one receiver does not answer, a message is complete when one is enough, and not when two are
// needed; and the way holds no more than its queue pairs do.
func TestEnoughAreEnough(t *testing.T) {
	s, _ := lab(t)
	ctx := limited(t)
	for _, c := range []struct {
		need int
		want uint64
	}{{1, 1}, {2, 0}} {
		s.First += 0x10
		w, err := Each(ctx, s, c.need, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Receivers[1].Destroy()
		if _, err := w.Write(ctx, make([]byte, bytes), 0); err != nil {
			t.Fatal(err)
		}
		if err := w.wait(ctx, func() bool { return w.done[0] == 1 }); err != nil {
			t.Fatal(err)
		}
		if got := w.Complete(); got != c.want {
			t.Errorf("%d are needed: %d messages are complete, want %d", c.need, got, c.want)
		}
		for range depth - 1 {
			if _, err := w.Write(ctx, make([]byte, bytes), 0); err != nil {
				t.Fatal(err)
			}
		}
		full, cancel := context.WithCancel(ctx)
		cancel()
		if err := w.wait(ctx, func() bool { return w.done[0] == w.posted }); err != nil || w.Drain(full) == nil {
			t.Errorf("one of two queue pairs has completed everything: %v", err)
		}
		if _, err := w.Write(full, make([]byte, bytes), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("one more than a queue pair holds: %v", err)
		}
		w.Close()
	}
}

// A refused message ends the way. What was complete before stays so.
func TestTheEndOfAWay(t *testing.T) {
	s, _ := lab(t)
	ctx := limited(t)
	w, err := Each(ctx, s, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Write(ctx, make([]byte, bytes), 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	s.Receivers[0].RNIC.Deregister(rkey)
	if _, err := w.Write(ctx, make([]byte, bytes), 0); err != nil {
		t.Fatal(err)
	}
	var ended *Ended
	if err := w.WaitFor(ctx, 2); !errors.As(err, &ended) || ended.Message != 1 || ended.Status != rnic.RemoteAccess {
		t.Errorf("the way says %v", err)
	}
	if err := w.WaitFor(ctx, 1); err != nil {
		t.Errorf("message 0 was complete: %v", err)
	}
}
