package afxdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// The interface is removed and another one gets its name, several times. If chunks of closed
// sockets were lost, the number of free chunks would be smaller at the end.
func TestAnInterfaceGoesAndComesBack(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			w := newWorld(t)
			two := netns.VethOptions{Queues: 2}
			w.plug(1, two)
			w.plug(2, two)
			w.open(Config{Ports: []string{"p1", "p2"}, Workers: workers})
			free := w.sw.workers[0].umem.Census().Free
			for i := range 3 {
				w.arrives(1)
				w.arrives(2)
				before, index := w.port(2).RxFrames, w.port(2).IfIndex
				w.unplug(2)
				w.refresh()
				w.expect(2, dataplane.PortGone, "no interface has this name")
				w.arrives(1)
				w.plug(2, two)
				w.refresh()
				w.expect(2, dataplane.PortUp, "")
				if p := w.port(2); p.RxFrames != before || p.IfIndex == index || p.Opened != i+2 || p.Queues != 2 {
					t.Errorf("back as %+v", p)
				}
			}
			w.arrives(1)
			w.arrives(2)
			w.sw.Do(0, func() {
				if c := w.sw.workers[0].umem.Census(); c.Free < free {
					t.Errorf("%d chunks were free at the start, fewer are now: %+v", free, c)
				}
			})
		})
	}
}

// The interface comes back with its old index before Refresh is called. Its sockets have lost their
// device all the same.
func TestAnInterfaceThatWasAwayForAMomentIsOpenedAgain(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}})
	index := w.port(1).IfIndex
	elsewhere := netns.New(t)
	w.run(w.box, "ip", "link", "set", "p1", "netns", elsewhere.Name())
	w.run(elsewhere, "ip", "link", "set", "p1", "netns", w.box.Name())
	w.run(w.box, "ip", "link", "set", "p1", "up")
	w.refresh()
	if p := w.port(1); p.IfIndex != index || p.Opened != 2 {
		t.Errorf("the index was %d, now %+v", index, p)
	}
	w.arrives(1)
}

// Another interface gets the name. The old one still exists, and the classifier is detached from
// it.
func TestAPortIsItsName(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.plug(2, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}})
	index := w.port(1).IfIndex
	for _, names := range []string{"p1 old", "p2 p1"} {
		from, to, _ := strings.Cut(names, " ")
		w.run(w.box, "ip", "link", "set", from, "down")
		w.run(w.box, "ip", "link", "set", from, "name", to, "up")
	}
	w.refresh()
	if p := w.port(1); p.IfIndex == index || p.Opened != 2 {
		t.Errorf("its index was %d, now %+v", index, p)
	}
	if links, err := w.box.Exec("ip", "link", "show", "old"); err != nil || strings.Contains(links, "prog/xdp") {
		t.Errorf("the old one still has the classifier (%v):\n%s", err, links)
	}
	before := w.port(1).RxFrames
	w.send(2, 64)
	w.eventually("frames of the new one", func() bool { return w.port(1).RxFrames-before == 64 })
}

// Frames of a port that was opened again wake a worker that sleeps.
func TestTheWorkerWaitsForTheNewSockets(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}})
	w.unplug(1)
	w.plug(1, netns.VethOptions{})
	w.refresh()
	asleep, slept := make(chan struct{}), make(chan time.Duration)
	go w.sw.Do(0, func() {
		poller := w.sw.workers[0].poller
		close(asleep)
		start := time.Now()
		for woken := true; woken; {
			woken, _ = poller.Poll(patience)
		}
		slept <- time.Since(start)
	})
	<-asleep
	w.send(1, 1)
	if d := <-slept; d >= patience {
		t.Errorf("it slept for %v", d)
	}
}

func TestAnInterfaceThatIsMissingAtTheStartIsTakenWhenItComes(t *testing.T) {
	w := newWorld(t)
	w.plug(2, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1", "p2"}})
	w.expect(1, dataplane.PortGone, "no interface has this name")
	w.arrives(2)
	w.refresh()
	w.expect(1, dataplane.PortGone, "no interface has this name")
	w.plug(1, netns.VethOptions{MTU: 4200})
	w.refresh()
	w.expect(1, dataplane.PortUp, "")
	if p := w.port(1); p.MultiBuffer != hasMultiBuffer() || p.MTU != 4200 || p.ID != 0 {
		t.Errorf("opened as %+v", p)
	}
	w.arrives(1)
	w.arrives(2)
}

// hasMultiBuffer reports whether the kernel of this machine has the feature.
func hasMultiBuffer() bool { return xsk.MultiBuffer.Supported() == nil }

func TestAllInterfacesMayBeMissing(t *testing.T) {
	w := newWorld(t)
	w.open(Config{Ports: []string{"p1"}, Workers: 2})
	w.plug(1, netns.VethOptions{Queues: 2})
	w.refresh()
	w.arrives(1)
}

func TestQueuesThatComeLaterAreServed(t *testing.T) {
	for _, mode := range []Mode{ModeCopy, ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			w.plug(1, netns.VethOptions{Queues: 4})
			w.run(w.host, "ethtool", "-L", "h1", "rx", "2", "tx", "2")
			w.run(w.box, "ethtool", "-L", "p1", "rx", "2", "tx", "2")
			w.open(Config{Ports: []string{"p1"}, Mode: mode})
			w.arrives(1)

			w.run(w.box, "ethtool", "-L", "p1", "rx", "4", "tx", "4")
			w.run(w.host, "ethtool", "-L", "h1", "rx", "4", "tx", "4")
			// In native mode a veth does not run the program on queues that were added later.
			if mode == ModeGeneric {
				before := w.classified("pass_no_socket")
				w.send(1, 64)
				w.eventually("frames of the new queues go to the kernel", func() bool { return w.classified("pass_no_socket") > before })
			}
			w.refresh()
			if p := w.port(1); p.Queues != 4 || p.Opened != 2 {
				t.Errorf("with four queues: %+v", p)
			}
			before := w.classified("pass_no_socket")
			w.arrives(1)
			if now := w.classified("pass_no_socket"); now != before {
				t.Errorf("%d frames still go to the kernel", now-before)
			}
		})
	}
}

// Frames arrive on a queue without a socket. The operator is warned once.
func TestFramesWithoutASocketAreToldOnce(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{Queues: 2})
	w.open(Config{Ports: []string{"p1"}})
	if got := w.refresh(); len(got) != 0 {
		t.Errorf("before: %q", got)
	}
	f := w.sw.interfaces[0]
	second := f.sockets[0][1]
	f.sockets[0] = f.sockets[0][:1]
	w.sw.deal(f)
	if err := second.Close(); err != nil { // the classifier's map forgets it
		t.Fatal(err)
	}
	for i := range 2 {
		before := w.classified("pass_no_socket")
		w.send(1, 64)
		w.eventually("frames go to the kernel", func() bool { return w.classified("pass_no_socket") > before })
		got := strings.Join(w.refresh(), "\n")
		if told := strings.Contains(got, "a queue without a socket (classifier-pass_no_socket); `ethtool -l PORT`"); told != (i == 0) {
			t.Errorf("time %d: %q", i, got)
		}
	}
}

// The kernel drops frames that a worker sends through a TX queue that does not exist.
func TestMoreWorkersThanTXQueuesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{Queues: 2})
	w.plug(2, netns.VethOptions{Queues: 2})
	w.run(w.box, "ethtool", "-L", "p2", "rx", "2", "tx", "1")
	config := Config{Ports: []string{"p1", "p2"}, Workers: 2}
	want := "open port p2: it has 2 RX and 1 TX queues for 2 workers; `ethtool -L p2 combined 2` (or rx 2 tx 2) gives it more, or use fewer workers"
	if err := w.tryOpen(config); err == nil || err.Error() != want {
		t.Fatalf("\ngot  %v\nwant %s", err, want)
	}
	w.run(w.box, "ethtool", "-L", "p2", "rx", "2", "tx", "2")
	w.open(config)
	w.unplug(2)
	w.plug(2, netns.VethOptions{})
	w.refresh()
	w.expect(2, dataplane.PortFailed, "it has 1 RX and 1 TX queues for 2 workers; `ethtool -L p2 combined 2`")
	w.arrives(1) // the others go on
	w.unplug(2)
	w.plug(2, netns.VethOptions{Queues: 2})
	w.refresh()
	w.expect(2, dataplane.PortUp, "")
	w.arrives(2)
}

func TestALinkThatIsDownIsShown(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}})
	w.expect(1, dataplane.PortUp, "")
	w.run(w.box, "ip", "link", "set", "p1", "down")
	w.run(w.box, "ip", "link", "set", "p1", "mtu", "1400", "address", "02:00:00:00:00:77")
	w.refresh()
	w.expect(1, dataplane.PortDown, "")
	if p := w.port(1); p.MTU != 1400 || p.MAC != [6]byte{2, 0, 0, 0, 0, 0x77} || p.Opened != 1 {
		t.Errorf("now it is %+v", p)
	}
	w.run(w.box, "ip", "link", "set", "p1", "up")
	up := func() bool { w.refresh(); return w.port(1).State == dataplane.PortUp }
	w.eventually("it is up", up)
	w.arrives(1)

	// This is the state after a driver was loaded again.
	w.unplug(1)
	w.plug(1, netns.VethOptions{})
	w.run(w.box, "ip", "link", "set", "p1", "down")
	w.refresh()
	w.expect(1, dataplane.PortDown, "")
	w.run(w.box, "ip", "link", "set", "p1", "up")
	w.eventually("it is up again", up)
	w.arrives(1)
}

// vmxnet3 of 6.12 has native XDP without metadata, which shows only when a frame arrives.
func TestAPortWithoutRoomForMetadataWorksInGenericMode(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.plug(2, netns.VethOptions{})
	var first *bpf.Port
	w.open(Config{Ports: []string{"p1", "p2"}, noRoom: func(p *bpf.Port) bool {
		if first == nil {
			first = p
		}
		return p == first
	}})
	if got := w.port(1).Attach; got != "native" {
		t.Fatalf("opened in %s mode", got)
	}
	want := "p1: the port works in generic mode: its driver leaves no room for metadata in front of a frame"
	if got := w.refresh(); len(got) != 1 || got[0] != want {
		t.Errorf("told %q, want %q", got, want)
	}
	w.expect(1, dataplane.PortUp, "")
	for i, mode := range []string{"generic", "native"} {
		if got := w.port(i + 1).Attach; got != mode {
			t.Errorf("port %d is in %s mode, want %s", i+1, got, mode)
		}
		w.arrives(i + 1)
	}
	if got := w.refresh(); len(got) != 0 || w.port(1).Opened != 2 {
		t.Errorf("told again: %q; opened %d times", got, w.port(1).Opened)
	}
}

// A mode that the config names stays.
func TestAPortInANamedModeKeepsIt(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}, Mode: ModeGeneric, noRoom: func(*bpf.Port) bool { return true }})
	if got := w.refresh(); len(got) != 0 || w.port(1).Opened != 1 {
		t.Errorf("told %q; opened %d times", got, w.port(1).Opened)
	}
}

// A device that answers "invalid argument" to zero-copy, as virtio_net does without
// VIRTIO_F_ACCESS_PLATFORM, gives the same answer to every start. A busy queue may be free later,
// and in another mode the same answer means something else.
func TestADeviceThatRefusesZeroCopyDoesNotFitTheConfig(t *testing.T) {
	for _, c := range []struct {
		mode   Mode
		refuse error
		want   bool
	}{
		{ModeZeroCopy, unix.EOPNOTSUPP, true}, {ModeZeroCopy, unix.EINVAL, true}, {ModeZeroCopy, unix.EBUSY, false},
		{ModeCopy, unix.EINVAL, false},
	} {
		w := newWorld(t)
		w.plug(1, netns.VethOptions{})
		err := w.tryOpen(Config{Ports: []string{"p1"}, Mode: c.mode, openSocket: func(*xsk.UMEM, int, uint32, xsk.SocketConfig) (*xsk.Socket, error) {
			return nil, c.refuse
		}})
		if !errors.Is(err, c.refuse) || errors.Is(err, ErrConfig) != c.want {
			t.Errorf("mode %s: %v; it is ErrConfig: %v, want %v", c.mode, err, errors.Is(err, ErrConfig), c.want)
		}
	}
}

// On kernels before 6.6 the port works for a path MTU of up to 2048. If the probe cannot run, the
// first socket shows whether the kernel has the feature.
func TestAKernelWithoutMultiBufferOpensAllTheSame(t *testing.T) {
	for name, c := range map[string]struct{ probe, want error }{
		"probed":   {fmt.Errorf("multi-buffer (kernel >= 6.6): %w", errors.ErrUnsupported), errors.New("this kernel lacks multi-buffer (kernel >= 6.6): unsupported operation")},
		"unprobed": {unix.EPERM, errors.New("this kernel refuses multi-buffer sockets (rocast features; invalid argument)")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.plug(1, netns.VethOptions{MTU: 9000})
			w.open(Config{
				Ports: []string{"p1", "p2"}, multiBuffer: func() error { return c.probe },
				openSocket: func(u *xsk.UMEM, ifIndex int, queue uint32, config xsk.SocketConfig) (*xsk.Socket, error) {
					if config.MultiBuffer {
						return nil, unix.EINVAL
					}
					return xsk.Open(u, ifIndex, queue, config)
				},
			})
			if p := w.port(1); p.MultiBuffer || p.State != dataplane.PortUp {
				t.Errorf("opened as %+v", p)
			}
			want := "p1: the port's MTU allows longer frames than rocastd carries: each frame has one buffer, which is enough for path MTU 2048: " + c.want.Error()
			if got := w.refresh(); len(got) != 1 || got[0] != want {
				t.Errorf("told %q, want %q", got, want)
			}
			if got := w.refresh(); len(got) != 0 {
				t.Errorf("told again: %q", got)
			}
			w.arrives(1)

			if !hasMultiBuffer() {
				return // the driver drops longer frames, and no socket counts them
			}
			// Longer frames are dropped and counted. The counter outlives the interface.
			w.sendBytes(1, 3, 5000)
			dropped := func() uint64 { return w.port(1).Kernel[0].Value }
			w.eventually("frames are dropped", func() bool { return dropped() == 3 })
			w.unplug(1)
			w.refresh()
			w.expect(1, dataplane.PortGone, "no interface has this name")
			if n := dropped(); n != 3 {
				t.Errorf("%d frames were dropped by the port that is gone", n)
			}
		})
	}
}

// A batch that is not sent is lost and counted by its reason.
func TestWhatIsNotSentIsCountedByItsReason(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{Queues: 2})
	w.run(w.box, "ethtool", "-L", "p1", "rx", "2", "tx", "1")
	w.open(Config{Ports: []string{"p1"}})
	send := func() (sent int) {
		w.onWorker(1, 100, func(worker *worker, out []dataplane.Outgoing) { sent = worker.ports[0].Send(out) })
		return sent
	}
	expect := func(sent int, reason string) {
		t.Helper()
		before := w.losses(1)
		if got := send(); got != sent {
			t.Errorf("%s: %d frames sent, want %d", reason, got, sent)
		}
		for name, n := range w.losses(1) {
			if grew := n - before[name]; grew != 0 && name != reason || grew != 1 && name == reason {
				t.Errorf("%s: %s grew by %d", reason, name, grew)
			}
		}
	}
	expect(1, "none")
	sockets := w.sw.interfaces[0].sockets[0]
	w.sw.Do(0, func() { w.sw.workers[0].use(0, sockets[1:]) })
	expect(0, "tx-stalled") // this TX queue does not exist
	w.sw.Do(0, func() { w.sw.workers[0].use(0, sockets) })
	w.run(w.box, "ip", "link", "set", "p1", "down")
	expect(0, "tx-link-down")
	w.unplug(1)
	expect(0, "tx-device-gone")
	w.refresh()
	expect(0, "none") // the port's state shows why
}

// losses returns port n's counters of batches that were not sent.
func (w *world) losses(n int) map[string]uint64 {
	counts := map[string]uint64{}
	for _, c := range w.port(n).Kernel {
		if strings.HasPrefix(c.Name, "tx-") && c.Name != "tx-withdrawn" { // the kernel counts it later
			counts[c.Name] = c.Value
		}
	}
	return counts
}

// The port works, and the operator is warned once.
func TestASmallSendBufferIsToldOnce(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}, openSocket: func(u *xsk.UMEM, ifIndex int, queue uint32, config xsk.SocketConfig) (s *xsk.Socket, err error) {
		err = testlab.WithoutCapability(unix.CAP_NET_ADMIN, func() (err error) { s, err = xsk.Open(u, ifIndex, queue, config); return err })
		return s, err
	}})
	if n := w.sw.interfaces[0].sockets[0][0].Obtained().BacklogDescs; n >= queueDescs {
		t.Skipf("net.core.wmem_max allows %d frames", n)
	}
	got := strings.Join(w.refresh(), "\n")
	if !strings.HasPrefix(got, "p1: ") || !strings.HasSuffix(got, "frames instead of 2048") || !strings.Contains(got, "raise net.core.wmem_max") {
		t.Errorf("told %q", got)
	}
	if got := w.refresh(); len(got) != 0 {
		t.Errorf("told again: %q", got)
	}
	w.arrives(1)
}

// A group works all the same on a kernel that lacks fan-out, and names the missing feature.
func TestAKernelWithoutFanOutOpensAllTheSame(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{
		Ports: []string{"p1"}, FanOut: true,
		loadFanOut: func(*bpf.Classifier, bpf.Tables, int) (*bpf.FanOut, error) { return nil, unix.EINVAL },
	})
	const want = "kernel-fan-out is not available (rocast features): invalid argument"
	if got := w.refresh(); len(got) != 1 || !strings.HasSuffix(got[0], want) {
		t.Errorf("told %q, want one that ends with %q", got, want)
	}
	if got := w.refresh(); len(got) != 0 {
		t.Errorf("told again: %q", got)
	}
	w.arrives(1)
	if state, ok := w.sw.GroupState(w.group.ID); !ok || state.Engine.Reason != want {
		t.Errorf("the group's reason is %q, want %q", state.Engine.Reason, want)
	}
}
