package xsk

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/slow"
)

// hold makes the link behind a port keep the frames it gets, as a paused NIC does.
func (w *world) hold(p *port) *slow.Link {
	w.t.Helper()
	l, err := slow.Attach(p.far, slow.Paused)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// The kernel charges a frame to the socket until the device has sent it. No frame is lost while the
// device keeps fewer than a full ring.
func TestADeviceMayHoldAFullRingOfFrames(t *testing.T) {
	needMultiBuffer(t)
	for _, frameBytes := range []int{60, 1100, FrameBytes, 4170} {
		t.Run(fmt.Sprint(frameBytes, " bytes"), func(t *testing.T) {
			w := newWorld(t, DefaultDescs)
			p := w.port("0", portOptions{mtu: jumboMTU, SocketConfig: SocketConfig{TxOnly: true, MultiBuffer: true}})
			w.hold(p)
			perFrame := (frameBytes + FrameBytes - 1) / FrameBytes
			sent := framesOf(DefaultDescs/perFrame, frameBytes)
			descs := w.load(sent...)
			w.send(p.Socket, descs)
			p.host.expect(sent...)
			w.free(descs)
		})
	}
}

func TestAMissingCapNetRawIsNamed(t *testing.T) {
	w := newWorld(t, 64)
	near, _ := netns.Veth(t, w.sw, "p1", w.host, "h1", netns.VethOptions{})
	err := w.sw.Do(func() error {
		return testlab.WithoutCapability(unix.CAP_NET_RAW, func() error {
			_, err := Open(w.umem, near.Index, 0, SocketConfig{})
			return err
		})
	})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "needs CAP_NET_RAW, run it as root or grant that capability") {
		t.Error(err)
	}
}

func TestWithoutCapNetAdminTheBacklogIsWhatTheSystemAllows(t *testing.T) {
	w := newWorld(t, 64)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	if got := p.Obtained().BacklogDescs; got != DefaultDescs {
		t.Errorf("with the capability, the device may keep %d descriptors, want %d", got, DefaultDescs)
	}
	text, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	want := uint32(min(2*allowed/skbBytes, DefaultDescs))
	near, _ := netns.Veth(t, w.sw, "p1", w.host, "h1", netns.VethOptions{})
	err = w.sw.Do(func() error {
		return testlab.WithoutCapability(unix.CAP_NET_ADMIN, func() error {
			s, err := Open(w.umem, near.Index, 0, SocketConfig{TxOnly: true})
			if err != nil {
				return err
			}
			if got := s.Obtained().BacklogDescs; got != want {
				t.Errorf("without it, %d, want %d", got, want)
			}
			return s.Close()
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// On this kernel, too, a socket is stalled while its device keeps all frames, and sends again after
// that.
func TestADeviceThatTakesNothingIsStalledUntilItTakesSomething(t *testing.T) {
	w := newWorld(t, 128)
	p := w.port("0", portOptions{SocketConfig: SocketConfig{TxOnly: true}})
	held := w.hold(p)
	if err := unix.SetsockoptInt(p.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 16*1100); err != nil {
		t.Fatal(err)
	}
	kicks := 0
	p.Socket.sendto = func(fd int) unix.Errno { kicks++; return sendto(fd) }
	descs := w.load(framesOf(64, 1100)...)
	w.eventually("the device takes nothing more", func() bool { // on a busy machine some are still on their way
		taken := p.Transmit(descs)
		withdrawn, err := p.Flush(stallPatience)
		return withdrawn == taken && errors.Is(err, ErrStalled)
	})
	kicks = 0
	const flushes = 100
	for range flushes {
		taken := p.Transmit(descs)
		if withdrawn, err := p.Flush(stallPatience); withdrawn != taken || !errors.Is(err, ErrStalled) {
			t.Fatalf("%d of %d frames withdrawn, %v", withdrawn, taken, err)
		}
	}
	if limit := len(descs) + 2*flushes; kicks > limit {
		t.Errorf("%d kicks for %d flushes, want %d at most", kicks, flushes, limit)
	}
	if err := held.Drop(); err != nil {
		t.Fatal(err)
	}
	w.eventually("the stall ends", func() bool {
		p.Transmit(descs[:1])
		_, err := p.Flush(stallPatience)
		return err == nil
	})
	for p.host.waits() {
		p.host.receive()
	}
	w.send(p.Socket, descs)
	p.host.expect(framesOf(64, 1100)...)
	w.free(descs)
}
