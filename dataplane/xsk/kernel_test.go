package xsk

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeKernel is the kernel's side of a socket in copy mode, with the device. It works on the same
// rings in the way of net/xdp/xsk.c: it reads the TX ring only when it is kicked, and after an
// invalid descriptor it advances the consumer index only together with the next frame, or when the
// ring is empty.
type fakeKernel struct {
	*Socket
	t testing.TB

	holds    int  // descriptors that the device keeps at most
	skipsAll bool // one kick steps over all withdrawn descriptors, as older kernels do
	errno    unix.Errno

	producer, consumer uint32 // of the TX ring, as the kernel has cached them
	device             []Desc // what it keeps, oldest first
	sent               []Desc // all that it was ever given
	completions        producerRing[uint64]
	received           producerRing[Desc]
	fills              consumerRing[uint64]

	kicks int
	clock time.Duration
}

const endless = 1 << 30

// kickTakes is the duration of a kick by the socket's clock.
const kickTakes = time.Microsecond

func newFakeKernel(t testing.TB, umem *UMEM, discipline Discipline, descs uint32) *fakeKernel {
	t.Helper()
	s := &Socket{umem: umem, fd: endless, txOptions: unix.XDP_PKT_CONTD, owner: func(f func()) { f() }}
	s.unsent = newUnsent(descs, descs)
	s.obtained = Obtained{Mode: ModeCopy, Discipline: discipline, MultiBuffer: true, KickDescs: defaultKickDescs}
	if err := umem.takeSlot(s); err != nil {
		t.Fatal(err)
	}
	s.receiveSide, s.transmitSide = receiveSide(s.slot), transmitSide(s.slot)
	k := &fakeKernel{t: t, Socket: s, holds: endless, producer: nearWrap, consumer: nearWrap}
	s.tx, _ = heapRing[Desc](descs, nearWrap)
	s.tx.flags.Store(unix.XDP_RING_NEED_WAKEUP)
	k.completions, s.completion = heapRing[uint64](descs, nearWrap)
	k.received, s.rx = heapRing[Desc](descs, nearWrap)
	s.fill, k.fills = heapRing[uint64](descs, nearWrap)
	s.level = descs
	s.sendto = k.sendto
	s.now = func() time.Time { return time.Time{}.Add(k.clock) }
	return k
}

func (k *fakeKernel) sendto(int) unix.Errno {
	k.kicks++
	k.clock += kickTakes
	if k.errno != 0 {
		return k.errno
	}
	sent := uint32(0)
	for {
		d, ok := k.peek()
		if !ok {
			break
		}
		if sent == k.obtained.KickDescs || len(k.device) == k.holds || k.completions.room(uint32(len(k.device)+1)) <= uint32(len(k.device)) {
			k.publish(sent)
			return unix.EAGAIN
		}
		k.consumer++
		sent++
		k.device, k.sent = append(k.device, d), append(k.sent, d)
	}
	k.publish(sent)
	return 0
}

// peek returns the next descriptor to send. After it has stepped over a withdrawn one, there is
// none in this kick.
func (k *fakeKernel) peek() (Desc, bool) {
	if k.producer == k.consumer {
		k.tx.consumer.Store(k.consumer)
		k.producer = k.tx.producer.Load()
	}
	for k.consumer != k.producer {
		d := k.tx.entries[k.consumer&k.tx.mask]
		if d.Addr+uint64(d.Len) <= uint64(len(k.umem.memory)) && k.valid(&d) {
			return d, true
		}
		k.consumer++
		if !k.skipsAll {
			break
		}
	}
	return Desc{}, false
}

func (k *fakeKernel) publish(sent uint32) {
	if sent > 0 {
		k.tx.consumer.Store(k.consumer)
	}
}

// complete lets the device send the n oldest descriptors.
func (k *fakeKernel) complete(n int) {
	for i, d := range k.device[:n] {
		k.completions.put(uint32(i), d.Addr)
	}
	k.completions.publish(uint32(n))
	k.device = k.device[n:]
}

// load makes a frame of this many descriptors. The caller holds its chunks.
func (k *fakeKernel) load(descs int) []Desc {
	k.t.Helper()
	addrs := make([]uint64, descs)
	if k.umem.Alloc(addrs) != descs {
		k.t.Fatal("no free chunk")
	}
	frame := make([]Desc, descs)
	for i := range frame {
		frame[i] = Desc{Addr: addrs[i], Len: 100, Options: unix.XDP_PKT_CONTD}
	}
	frame[descs-1].Options = 0
	return frame
}

// loads makes frames of one descriptor each.
func (k *fakeKernel) loads(frames int) (descs []Desc) {
	for range frames {
		descs = append(descs, k.load(1)...)
	}
	return descs
}
