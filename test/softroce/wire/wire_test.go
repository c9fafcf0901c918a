package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/roce"
	"golang.org/x/sys/unix"
)

// rig is a wire whose tap is one end of a datagram socket pair. As with a tap, one write is one
// frame.
type rig struct {
	*Wire
	box   net.Conn
	guest net.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Wire: New(os.NewFile(uintptr(fds[0]), "tap"))}
	far := os.NewFile(uintptr(fds[1]), "box")
	defer far.Close()
	if r.box, err = net.FileConn(far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		r.box.Close()
	})
	r.plug(t)
	return r
}

func (r *rig) plug(t *testing.T) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	r.guest = far
	r.Plug(Framed(near))
	for _, conn := range []net.Conn{r.box, r.guest} {
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) sendFromGuest(t *testing.T, frame []byte) {
	t.Helper()
	framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	if _, err := r.guest.Write(framed); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) receiveAtBox(t *testing.T) []byte {
	t.Helper()
	buffer := make([]byte, maxFrameBytes)
	n, err := r.box.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return buffer[:n]
}

// write is a WRITE ONLY of no bytes.
func write(t *testing.T, psn roce.PSN) []byte {
	t.Helper()
	bth := roce.BTH{Opcode: roce.OpWriteOnly, PKey: roce.DefaultPKey, DestQPN: 17, AckReq: true, PSN: psn}
	return packet(t, bth, (&roce.RETH{VA: 0x1000, RKey: 5}).Append(nil))
}

func ack(t *testing.T, psn roce.PSN) []byte {
	t.Helper()
	bth := roce.BTH{Opcode: roce.OpAck, PKey: roce.DefaultPKey, DestQPN: 18, PSN: psn}
	return packet(t, bth, (&roce.AETH{Syndrome: roce.SyndromeUnlimited}).Append(nil))
}

func packet(t *testing.T, bth roce.BTH, rest []byte) []byte {
	t.Helper()
	transport := append(bth.Append(nil), rest...)
	ip := roce.IPUDP{
		Src: netip.MustParseAddr("10.77.0.1"), Dst: netip.MustParseAddr("10.77.0.2"), HopLimit: 64, SrcPort: 0xC000,
	}
	b := roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, 1}, roce.MAC{2, 0, 0, 0, 0, 2}, ip.EtherType())
	b = ip.Append(b, len(transport))
	frame, err := roce.AppendICRC(append(b, transport...))
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestFramesPassUnchangedBothWays(t *testing.T) {
	r := newRig(t)
	sent := write(t, 1)
	r.sendFromGuest(t, sent)
	if got := r.receiveAtBox(t); !bytes.Equal(got, sent) {
		t.Errorf("the box got % x", got)
	}
	if _, err := r.box.Write(sent); err != nil {
		t.Fatal(err)
	}
	framed := make([]byte, lengthBytes+len(sent))
	if _, err := io.ReadFull(r.guest, framed); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(framed[lengthBytes:], sent) {
		t.Errorf("the guest got % x", framed)
	}
}

func TestFirstDropsThenPasses(t *testing.T) {
	r := newRig(t)
	r.SetFilter(ToBox, First(2, Drop, Match(Requests).WithPSN(7)))
	for _, frame := range [][]byte{write(t, 7), ack(t, 7), write(t, 7), write(t, 7), write(t, 8)} {
		r.sendFromGuest(t, frame)
	}
	for _, want := range [][]byte{ack(t, 7), write(t, 7), write(t, 8)} {
		if got := r.receiveAtBox(t); !bytes.Equal(got, want) {
			t.Errorf("the box got % x, want % x", got, want)
		}
	}
	if got, want := r.Counts(ToBox), (Counts{Passed: 3, Dropped: 2}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

func TestDuplicateGoesOutTwiceAndIsCapturedTwice(t *testing.T) {
	r := newRig(t)
	var pcap bytes.Buffer
	stop, err := r.Capture(&pcap)
	if err != nil {
		t.Fatal(err)
	}
	r.SetFilter(ToBox, First(1, Duplicate, Responses))
	r.sendFromGuest(t, ack(t, 3))
	for range 2 {
		if got := r.receiveAtBox(t); !bytes.Equal(got, ack(t, 3)) {
			t.Errorf("the box got % x", got)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if want := 24 + 2*(16+len(ack(t, 3))); pcap.Len() != want {
		t.Errorf("%d bytes captured, want %d", pcap.Len(), want)
	}
}

func TestInjectedFrameReachesTheBoxPastTheFilter(t *testing.T) {
	r := newRig(t)
	var pcap bytes.Buffer
	stop, err := r.Capture(&pcap)
	if err != nil {
		t.Fatal(err)
	}
	r.SetFilter(ToBox, First(1, Drop, Responses))
	if err := r.Inject(ack(t, 3)); err != nil {
		t.Fatal(err)
	}
	if got := r.receiveAtBox(t); !bytes.Equal(got, ack(t, 3)) {
		t.Errorf("the box got % x", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if want := 24 + 16 + len(ack(t, 3)); pcap.Len() != want {
		t.Errorf("%d bytes captured, want %d", pcap.Len(), want)
	}
}

func TestRandomLossRepeatsForASeedAndSparesOtherTraffic(t *testing.T) {
	const frames = 2000
	arp := append(make([]byte, 12), 0x08, 0x06)
	pattern := func(seed uint64) (lost []int) {
		filter := RandomLoss(seed, 0.1, Requests)
		for i := range frames {
			if filter(arp) != Pass || filter(ack(t, 1)) != Pass {
				t.Fatal("dropped what does not match")
			}
			if filter(write(t, roce.PSN(i))) == Drop {
				lost = append(lost, i)
			}
		}
		return lost
	}
	first, again, other := pattern(1), pattern(1), pattern(2)
	if len(first) < frames/20 || len(first) > frames/5 {
		t.Errorf("%d of %d frames lost at 10 %%", len(first), frames)
	}
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Error("the loss is not a function of the seed")
	}
}

func TestGuestCanBeUnpluggedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w, box := New(Framed(near)), Framed(far)
		defer w.Close()
		near, guest := net.Pipe()
		w.Plug(Framed(near))
		guest.Close()
		synctest.Wait() // the relay notices the end of the stream
		if _, err := box.Write(write(t, 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.Counts(ToGuest).Unplugged; n != 1 {
			t.Errorf("%d frames met no guest, want 1", n)
		}
		near, guest = net.Pipe()
		w.Plug(Framed(near))
		if _, err := Framed(guest).Write(write(t, 2)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, maxFrameBytes)
		if n, err := box.Read(got); err != nil || !bytes.Equal(got[:n], write(t, 2)) {
			t.Errorf("the box got % x, %v", got[:n], err)
		}
	})
}

func TestFramedPortCarriesWholeFrames(t *testing.T) {
	near, far := net.Pipe()
	sender, receiver := Framed(near), Framed(far)
	t.Cleanup(func() { receiver.Close() })
	frames := [][]byte{write(t, 1), ack(t, 2), make([]byte, maxFrameBytes)}
	go func() {
		defer sender.Close()
		for _, frame := range frames {
			if _, err := sender.Write(frame); err != nil {
				t.Error(err)
			}
		}
		sender.Write(make([]byte, maxFrameBytes+1))
	}()
	buffer := make([]byte, maxFrameBytes)
	for i, want := range frames {
		n, err := receiver.Read(buffer)
		if err != nil || !bytes.Equal(buffer[:n], want) {
			t.Fatalf("frame %d has %d bytes, want %d; error %v", i, n, len(want), err)
		}
	}
	if _, err := receiver.Read(buffer); err == nil {
		t.Error("a frame is accepted that is longer than any frame")
	}
}
