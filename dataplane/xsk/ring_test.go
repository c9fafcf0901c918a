package xsk

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// nearWrap is a start value from which a ring's indexes wrap at 2^32 after a few entries.
const nearWrap = ^uint32(0) - 2

func TestRingCarriesEntriesInOrderAcrossTheWrap(t *testing.T) {
	producer, consumer := heapRing[uint64](8, nearWrap)
	random := rand.New(rand.NewPCG(1, 2))
	var next, expect uint64
	for range 1000 {
		n := min(random.Uint32N(10), producer.room(8))
		for i := range n {
			producer.put(i, next)
			next++
		}
		producer.publish(n)
		out := make([]uint64, random.IntN(10))
		m := consumer.peek(out)
		for _, got := range out[:m] {
			if got != expect {
				t.Fatalf("got entry %d, want %d", got, expect)
			}
			expect++
		}
		consumer.release(uint32(m))
		if in := uint32(next - expect); producer.pending() != in {
			t.Fatalf("%d pending, want %d", producer.pending(), in)
		}
	}
	if expect == 0 {
		t.Fatal("nothing was carried")
	}
}

func TestFullRingHasNoRoomUntilReleased(t *testing.T) {
	producer, consumer := heapRing[Desc](4, nearWrap)
	for i := range uint32(4) {
		producer.put(i, Desc{Addr: uint64(i)})
	}
	producer.publish(4)
	if room := producer.room(1); room != 0 {
		t.Errorf("a full ring has room for %d", room)
	}
	consumer.available(1)
	consumer.release(3)
	if room := producer.room(1); room != 3 {
		t.Errorf("room for %d after 3 were released", room)
	}
}

func TestEntriesAreInvisibleBeforePublish(t *testing.T) {
	producer, consumer := heapRing[uint64](4, 0)
	producer.put(0, 7)
	if n := consumer.available(1); n != 0 {
		t.Errorf("%d available before publish", n)
	}
	producer.publish(1)
	if out := make([]uint64, 2); consumer.peek(out) != 1 || out[0] != 7 {
		t.Errorf("got %v", out)
	}
}

func TestPeekLeavesEntriesOnTheRing(t *testing.T) {
	producer, consumer := heapRing[uint64](4, 0)
	producer.put(0, 7)
	producer.publish(1)
	var out [4]uint64
	if first, second := consumer.peek(out[:]), consumer.peek(out[:]); first != 1 || second != 1 {
		t.Errorf("peeked %d, then %d", first, second)
	}
	if producer.pending() != 1 {
		t.Error("peek released the entry")
	}
}

// Under the race detector this test proves that the loads and stores of the indexes order the
// entries.
func TestRingBetweenTwoThreads(t *testing.T) {
	const entries = 20_000
	producer, consumer := heapRing[Desc](64, nearWrap)
	go func() {
		for sent := uint64(0); sent < entries; {
			n := uint32(min(uint64(producer.room(1)), entries-sent))
			for i := range n {
				producer.put(i, Desc{Addr: sent, Len: uint32(sent)})
				sent++
			}
			producer.publish(n)
			runtime.Gosched()
		}
	}()
	var batch [32]Desc
	for expect := uint64(0); expect < entries; {
		n := consumer.peek(batch[:])
		for _, d := range batch[:n] {
			if d.Addr != expect || d.Len != uint32(expect) {
				t.Fatalf("got %+v, want %d", d, expect)
			}
			expect++
		}
		consumer.release(uint32(n))
		runtime.Gosched()
	}
}

func TestRingAllocatesNothing(t *testing.T) {
	producer, consumer := heapRing[Desc](64, nearWrap)
	var batch [64]Desc
	if allocs := testing.AllocsPerRun(100, func() { roundTrip(&producer, &consumer, batch[:]) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func roundTrip(producer *producerRing[Desc], consumer *consumerRing[Desc], batch []Desc) {
	n := min(producer.room(uint32(len(batch))), uint32(len(batch)))
	for i := range n {
		producer.put(i, batch[i])
	}
	producer.publish(n)
	consumer.release(uint32(consumer.peek(batch)))
}

// BenchmarkRing measures a batch of 64 descriptors put on a ring and read from it.
func BenchmarkRing(b *testing.B) {
	producer, consumer := heapRing[Desc](2048, 0)
	var batch [64]Desc
	for b.Loop() {
		roundTrip(&producer, &consumer, batch[:])
	}
}
