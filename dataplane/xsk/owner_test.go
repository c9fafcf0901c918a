package xsk

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/netns"
)

// A device is removed while chunks are on all rings of its socket, and another one of the same name
// comes.
func TestTheDeviceGoesAndComesBack(t *testing.T) {
	for _, discipline := range []Discipline{Lend, Give} {
		t.Run(discipline.String(), func(t *testing.T) {
			w := newWorld(t, 256)
			stays := w.port("1", portOptions{SocketConfig: SocketConfig{FillDescs: 32}})
			config := SocketConfig{FillDescs: 32, Discipline: discipline}
			near, far := netns.Veth(t, w.sw, "p0", w.host, "h0", netns.VethOptions{})
			s := w.open(near, 0, config)
			w.attach(near, portOptions{}, map[uint32]*Socket{0: s})
			newHost(t, far).send(framesOf(5, 100)...)
			w.eventually("5 frames", func() bool { return s.rx.available(5) == 5 })
			kept := w.receiveSome(s, 2)
			if s.Lost() {
				t.Error("lost while the device is there")
			}
			if _, err := w.sw.Exec("ip", "link", "del", "p0"); err != nil {
				t.Fatal(err)
			}
			w.eventually("the loss is seen", s.Lost)
			if !s.Lost() {
				t.Error("the loss is forgotten")
			}

			// In Lend the worker keeps the chunks it sends now; in Give Close takes them back.
			descs := w.load(framesOf(3, 100)...)
			s.Transmit(descs)
			withdrawn, err := s.Flush(patience)
			if !errors.Is(err, unix.ENXIO) || discipline == Lend && withdrawn != 3 {
				t.Errorf("flush: %d withdrawn, %v", withdrawn, err)
			}
			if discipline == Lend {
				w.free(descs)
			} else {
				w.held -= 3
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			checkConserved(t, w.umem, 2)
			if c := w.umem.Census(); c.Stranded != 0 || c.Free != c.Total-2-32 { // 32: the port that stays
				t.Errorf("closed, and %+v", c)
			}
			w.free(kept)

			near, far = netns.Veth(t, w.sw, "p0", w.host, "h0", netns.VethOptions{})
			again := w.open(near, 0, config)
			w.attach(near, portOptions{}, map[uint32]*Socket{0: again})
			sent := framesOf(4, 100)
			newHost(t, far).send(sent...)
			got := w.receive(again, 4)
			w.expect(got, sent)
			w.send(stays.Socket, got)
			stays.host.expect(sent...)
			w.recycle(again, got)
		})
	}
}

// One goroutine moves frames, as a worker does, while another one opens and closes sockets of the
// same UMEM. The race detector and the ledger find mistakes.
func TestSocketsComeAndGoFromAnotherGoroutine(t *testing.T) {
	w := newWorld(t, 256)
	carries := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 32}})
	near, _ := netns.Veth(t, w.sw, "p1", w.host, "h1", netns.VethOptions{})

	tasks, over := make(chan func()), make(chan struct{})
	var worker sync.WaitGroup
	worker.Go(func() {
		var batch [64]Desc
		for {
			select {
			case task := <-tasks:
				task()
			case <-over:
				return
			default:
				for _, d := range batch[:carries.Receive(batch[:])] {
					carries.Recycle(d.Addr)
				}
				carries.TopUp()
				var addrs [8]uint64
				w.umem.Free(addrs[:w.umem.Alloc(addrs[:])])
			}
		}
	})
	owner := func(f func()) {
		done := make(chan struct{})
		tasks <- func() { f(); close(done) }
		<-done
	}
	for range 20 {
		s, err := w.tryOpen(near, 0, SocketConfig{FillDescs: 64, Owner: owner})
		if err != nil {
			t.Error(err)
			break
		}
		if filled := s.filled; filled != 64 {
			t.Errorf("opened with %d chunks", filled)
		}
		carries.host.send(framesOf(10, 100)...)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	close(over)
	worker.Wait()
	checkConserved(t, w.umem, 0)
}
