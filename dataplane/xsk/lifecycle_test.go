package xsk

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

func TestQueueCanBeOpenedAgainAtOnce(t *testing.T) {
	for _, discipline := range []Discipline{Lend, Give} {
		t.Run(discipline.String(), func(t *testing.T) {
			w := newWorld(t, 128)
			near, far := netns.Veth(t, w.sw, "p0", w.host, "h0", netns.VethOptions{})
			host := newHost(t, far)
			for i := range 10 {
				s, err := w.tryOpen(near, 0, SocketConfig{FillDescs: 32, Discipline: discipline})
				if err != nil {
					t.Fatal(err)
				}
				checkConserved(t, w.umem, 0)
				sent := framesOf(5, 100+i)
				descs := w.load(sent...)
				w.send(s, descs)
				host.expect(sent...)
				if discipline == Lend {
					w.free(descs)
				} else {
					w.held = 0 // Close gets them back
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				checkConserved(t, w.umem, 0)
				if c := w.umem.Census(); c.Free != c.Total {
					t.Fatalf("closed, and %+v", c)
				}
			}
		})
	}
}

func TestCloseTwice(t *testing.T) {
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseReturnsWhatIsOnTheRings(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 64, Discipline: Give}})
	p.host.send(framesOf(20, 100)...)
	w.eventually("20 frames", func() bool { return p.rx.available(20) == 20 })
	kept := w.receiveSome(p.Socket, 5)      // with the worker: Close does not touch them
	p.Transmit(w.load(framesOf(3, 100)...)) // on the TX ring, not kicked
	w.held -= 3                             // given
	if c := w.umem.Census(); c.Receive != 59 || c.Transmit != 3 || c.Held != 5 {
		t.Errorf("before: %+v", c)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if c := w.umem.Census(); c.Free != 123 || c.Held != 5 {
		t.Errorf("after: %+v", c)
	}
	w.free(kept)
}

func (w *world) receiveSome(s *Socket, want int) []Desc {
	w.t.Helper()
	batch := make([]Desc, want)
	if n := s.Receive(batch); n != want {
		w.t.Fatalf("received %d, want %d", n, want)
	}
	w.held += want
	return batch
}

func TestPortsComeAndGoWhileOthersCarryFrames(t *testing.T) {
	w := newWorld(t, 256)
	first := w.port("0", portOptions{SocketConfig: SocketConfig{FillDescs: 32}})
	second := w.port("1", portOptions{SocketConfig: SocketConfig{FillDescs: 32}})
	if err := first.Close(); err != nil { // the one that registered the UMEM
		t.Fatal(err)
	}
	third := w.port("2", portOptions{SocketConfig: SocketConfig{FillDescs: 32}})
	if third.slot != 0 {
		t.Errorf("the closed socket's number was not used again: %d", third.slot)
	}
	sent := framesOf(10, 100)
	for _, p := range []*port{second, third} {
		p.host.send(sent...)
		descs := w.receive(p.Socket, 10)
		w.expect(descs, sent)
		w.send(second.Socket, descs)
		second.host.expect(sent...)
		w.recycle(p.Socket, descs)
	}
	checkConserved(t, w.umem, 0)
}

func TestUMEMServesAgainAfterItsLastSocketClosed(t *testing.T) {
	w := newWorld(t, 64)
	for _, name := range []string{"0", "1"} {
		p := w.port(name, portOptions{SocketConfig: SocketConfig{FillDescs: 32}})
		sent := framesOf(4, 100)
		p.host.send(sent...)
		descs := w.receive(p.Socket, 4)
		w.expect(descs, sent)
		w.recycle(p.Socket, descs)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUMEMWithOpenSocketDoesNotClose(t *testing.T) {
	w := newWorld(t, 64)
	w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	if err := w.umem.Close(); err == nil || !strings.Contains(err.Error(), "queue 0 of interface") {
		t.Errorf("got %v", err)
	}
}

// An Open that fails says why, leaves no file open and loses no chunk.
func TestOpenRefused(t *testing.T) {
	for name, row := range map[string]struct {
		config  SocketConfig
		queue   uint32
		ifindex int // 0: the world's
		want    error
		words   string
	}{
		"no zero-copy on veth":   {config: SocketConfig{Mode: ModeZeroCopy}, want: unix.EOPNOTSUPP, words: "no zero-copy"},
		"no such queue":          {queue: 7, want: unix.EINVAL, words: "no such queue"},
		"no such interface":      {ifindex: 4711, want: unix.ENODEV, words: "interface 4711"},
		"ring of three":          {config: SocketConfig{TxDescs: 3}, words: "ring size 3 is not a power of two"},
		"give, no such queue":    {config: SocketConfig{Discipline: Give}, queue: 7, want: unix.EINVAL},
		"multi-buffer, no queue": {config: SocketConfig{MultiBuffer: true}, queue: 7, want: unix.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 64)
			near, _ := netns.Veth(t, w.sw, "p0", w.host, "h0", netns.VethOptions{})
			if row.ifindex != 0 {
				near.Index = row.ifindex
			}
			before := testlab.OpenFiles(t)
			s, err := w.tryOpen(near, row.queue, row.config)
			if s != nil || err == nil {
				t.Fatal("opened")
			}
			if row.want != nil && !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.words) {
				t.Errorf("got %v", err)
			}
			if opened := before.Since(t); len(opened) > 0 {
				t.Errorf("%q stay open", opened)
			}
			if c := w.umem.Census(); c.Free != c.Total {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestOpenCloseLeavesNoFile(t *testing.T) {
	w := newWorld(t, 64)
	near, _ := netns.Veth(t, w.sw, "p0", w.host, "h0", netns.VethOptions{})
	before := testlab.OpenFiles(t)
	for _, discipline := range []Discipline{Lend, Give} {
		s, err := w.tryOpen(near, 0, SocketConfig{Discipline: discipline})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if opened := before.Since(t); len(opened) > 0 {
		t.Errorf("%q stay open", opened)
	}
}

func TestTakenQueueIsRefusedWithItsReason(t *testing.T) {
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	other := newUMEM(t, 1)
	err := w.sw.Do(func() error {
		s, err := newSocket(other, p.link.Index, 0, probeRings(SocketConfig{}))
		if err != nil {
			return err
		}
		err = bindPatiently(s.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(p.link.Index)}, 10*time.Millisecond)
		return errors.Join(explainBind(err, SocketConfig{}, false), s.discard())
	})
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "another AF_XDP socket has the queue") {
		t.Errorf("got %v", err)
	}
}

func TestFirstSocketDecidesForTheUMEM(t *testing.T) {
	w := newWorld(t, 64)
	w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	near, _ := netns.Veth(t, w.sw, "p1", w.host, "h1", netns.VethOptions{})
	if _, err := w.tryOpen(near, 0, SocketConfig{Mode: ModeZeroCopy}); err == nil || !strings.Contains(err.Error(), "copies") {
		t.Errorf("zero-copy beside copy: %v", err)
	}
	if _, err := w.tryOpen(near, 0, SocketConfig{MultiBuffer: true}); err == nil || !strings.Contains(err.Error(), "multi-buffer") {
		t.Errorf("multi-buffer beside none: %v", err)
	}
	s := w.open(near, 0, SocketConfig{Mode: ModeGeneric})
	if got := s.Obtained().String(); got != "generic, lend" {
		t.Errorf("obtained %q", got)
	}
}

func TestObtainedShowsWhatWasAsked(t *testing.T) {
	needMultiBuffer(t)
	w := newWorld(t, 64)
	p := w.port("0", portOptions{mtu: jumboMTU, SocketConfig: SocketConfig{TxOnly: true, MultiBuffer: true}})
	if got := p.Obtained().String(); got != "copy, lend, multi-buffer" {
		t.Errorf("obtained %q", got)
	}
	if got := p.Obtained().KickDescs; (got == wantKickDescs) != (KickBudget.Supported() == nil) {
		t.Errorf("a kick sends %d descriptors, kick budget: %v", got, KickBudget.Supported())
	}
}

// Chunks must not be lent to a driver whose skbs point into the UMEM. The test only reads the
// driver's name.
func TestDriversThatSendByReference(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if sendsByReference(fd, loopback) {
		t.Error("loopback")
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		driver, _ := os.Readlink("/sys/class/net/" + link.Name() + "/device/driver")
		if !strings.HasSuffix(driver, "/virtio_net") {
			continue
		}
		ifindex, err := interfaceIndex(link.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !sendsByReference(fd, ifindex) {
			t.Errorf("%s is virtio_net", link.Name())
		}
		return
	}
	t.Skip("needs a virtio_net interface")
}

// If the queue is still in use after Close, the device may still use the chunks of the closed
// socket. They are not used again.
func TestChunksOfAQueueNotReleasedAreStranded(t *testing.T) {
	w := newWorld(t, 64)
	near, _ := netns.Veth(t, w.sw, "p0", w.host, "h0", netns.VethOptions{})
	s, err := w.tryOpen(near, 0, SocketConfig{FillDescs: 16, Discipline: Give})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.closeKernelSide(); err != nil {
		t.Fatal(err)
	}
	squatter := &world{t: t, umem: newUMEM(t, 16), sw: w.sw, host: w.host}
	squatter.open(near, 0, SocketConfig{TxOnly: true})
	if err := s.awaitRelease(10 * time.Millisecond); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "16 chunks stranded") {
		t.Errorf("got %v", err)
	}
	if c := w.umem.Census(); c.Stranded != 16 || c.Free != 48 {
		t.Errorf("%+v", c)
	}
	if err := w.umem.Audit(); err != nil {
		t.Error(err)
	}
	w.umem.slots[s.slot].detach() // for the check at the end
}

// A virtio_net that the kernel addresses past the DMA API answers EINVAL, as a missing queue does.
func TestRefusedZeroCopyNamesWhatVirtioNeeds(t *testing.T) {
	err := explainBind(unix.EINVAL, SocketConfig{Mode: ModeZeroCopy}, false)
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "VIRTIO_F_ACCESS_PLATFORM") {
		t.Error(err)
	}
	if err := explainBind(unix.EINVAL, SocketConfig{Mode: ModeCopy}, false); strings.Contains(err.Error(), "zero-copy") {
		t.Error(err)
	}
}
