package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A disk that takes long to sync one group's text delays no other group.
func TestTheTextOfAGroupWaitsForNoOtherGroup(t *testing.T) {
	s := open(t, t.TempDir())
	syncing, goOn := make(chan struct{}), make(chan struct{})
	var syncs atomic.Int32
	s.SyncDir = func(string) error {
		if syncs.Add(1) == 1 {
			close(syncing)
			<-goOn
		}
		return nil
	}
	slow, quick := make(chan error, 1), make(chan error, 1)
	go func() { slow <- s.Put("slow", []byte("1")) }()
	<-syncing
	go func() { quick <- s.Put("quick", []byte("2")) }()
	select {
	case err := <-quick:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a group waits for the disk to sync another one")
	}
	close(goOn)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

func TestATextIsWrittenByOneAtATime(t *testing.T) {
	var l textLocks
	const writers, times = 8, 1000
	busy, most := 0, 0 // no lock but that of the text guards them
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range times {
				unlock := l.lock("g1")
				busy++
				most = max(most, busy)
				l.lock("g2")() // another group's is free meanwhile
				busy--
				unlock()
			}
		})
	}
	writing.Wait()
	if busy != 0 || most != 1 || len(l.of) != 0 {
		t.Errorf("%d at most, %d at the end, and %d locks are left", most, busy, len(l.of))
	}
}
