package main

import (
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/internal/testlab"
)

// gcPercent is the value of GOGC.
func gcPercent() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// A start with a group collects no garbage between its first port and its readiness.
func TestAStartWithAGroupCollectsNoGarbage(t *testing.T) {
	t.Setenv("GODEBUG", "gctrace=1")
	b := newBox(t)
	p := b.start(t)
	if _, err := client.New(b.socket).CreateGroup(t.Context(), []byte(owned)); err != nil {
		t.Fatal(err)
	}
	p.end(t, unix.SIGTERM)
	b.expectNotice(t, "STOPPING=1")
	p = b.start(t)
	p.log.until(t, "ready")
	log := p.log.String()
	opened, ready := strings.Index(log, "port opened"), strings.Index(log, "ready")
	if opened < 0 || ready < opened || strings.Contains(log[opened:ready], "gc ") || !strings.Contains(log, "group restored") {
		t.Error("the log shows a collection before the daemon is ready, or no restored group")
	}
}

// What a start puts off comes back when it is ready, and where the heap grows before.
func TestCollectionsComeBack(t *testing.T) {
	usual := gcPercent()
	back := putOffGC()
	if got := gcPercent(); got != gcAtStart {
		t.Errorf("at the start the percentage is %d", got)
	}
	if back(); gcPercent() != usual {
		t.Errorf("when the daemon is ready the percentage is %d, want %d", gcPercent(), usual)
	}
	putOffGC()
	runtime.GC() // as a heap of 64 MiB causes it
	testlab.Eventually(t, testlab.Patience, "the percentage is the usual one", func() bool { return gcPercent() == usual }, nil)
}
