package slow

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// cable is a cable between two hosts, and a socket of RoCE's port at each.
func cable(t *testing.T) (from, to netns.Link, sender, receiver net.PacketConn) {
	t.Helper()
	a, b := netns.New(t), netns.New(t)
	from, to = netns.Veth(t, a, "a", b, "b", netns.VethOptions{})
	testlab.Must(t, errors.Join(from.AddAddress("10.0.0.1/24"), to.AddAddress("10.0.0.2/24")))
	testlab.Must(t, b.Do(func() (err error) { receiver, err = net.ListenPacket("udp", "10.0.0.2:4791"); return err }))
	t.Cleanup(func() { receiver.Close() })
	testlab.Must(t, a.Do(func() (err error) { sender, err = net.ListenPacket("udp", "10.0.0.1:4791"); return err }))
	t.Cleanup(func() { sender.Close() })
	return from, to, sender, receiver
}

// An end can be shaped again and again. What leaves it without a limit is counted too, and so is
// what leaves it with another one. A limit that is set later holds.
func TestAnEndThatIsShapedAgain(t *testing.T) {
	testlab.NeedRoot(t)
	const (
		frames  = 30
		bytes   = 1000
		headers = 14 + 20 + 8
	)
	from, _, sender, receiver := cable(t)
	for _, rate := range []int{0, 2_000_000, 4_000_000, 0} {
		testlab.Must(t, Shape(from, rate))
		testlab.Must(t, receiver.SetReadDeadline(time.Now().Add(testlab.Patience)))
		began := time.Now()
		for range frames {
			_, err := sender.WriteTo(make([]byte, bytes), receiver.LocalAddr())
			testlab.Must(t, err)
		}
		for range frames {
			_, _, err := receiver.ReadFrom(make([]byte, bytes))
			testlab.Must(t, err)
		}
		const burst = 1600
		if took := time.Since(began); rate > 0 && took < time.Second*(frames*bytes-burst)*8/time.Duration(rate) {
			t.Errorf("at %d bit/s %d frames took %v", rate, frames, took)
		}
		if sent, err := Sent(from); err != nil || sent < frames*(headers+bytes) || sent > (frames+5)*(headers+bytes) {
			t.Errorf("at %d bit/s: %d bytes were sent, %v", rate, sent, err)
		}
	}
}

// Data does not get through faster than the rate, and an ACK passes the data that waits.
func TestAShapedLink(t *testing.T) {
	testlab.NeedRoot(t)
	const (
		rate   = 1_000_000
		frames = 50
		bytes  = 1000 // of a frame's UDP payload, and at least that on the link
		ack    = 0x11
		short  = 20 // bytes of an ACK
	)
	from, to, sender, receiver := cable(t)
	testlab.Must(t, Shape(from, rate))
	began := time.Now()
	for i := range frames + 1 {
		frame := make([]byte, bytes)
		if i == frames {
			frame = make([]byte, short)
			frame[0] = ack
		}
		if _, err := sender.WriteTo(frame, receiver.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	if err := receiver.SetReadDeadline(began.Add(testlab.Patience)); err != nil {
		t.Fatal(err)
	}
	before := -1 // frames that the ACK has let pass
	for i := range frames + 1 {
		frame := make([]byte, bytes)
		n, _, err := receiver.ReadFrom(frame)
		if err != nil {
			t.Fatalf("after %d frames: %v", i, err)
		}
		if n == short {
			before = i
		}
	}
	const burst = 1600
	if took, least := time.Since(began), time.Second*(frames*bytes-burst)*8/rate; took < least {
		t.Errorf("%d frames took %v, and the link needs %v", frames, took, least)
	}
	const headers = 14 + 20 + 8
	if sent, err := Sent(from); err != nil || sent < frames*(headers+bytes)+headers+short || sent > (frames+5)*(headers+bytes) {
		t.Errorf("%d bytes were sent, %v", sent, err)
	}
	if _, err := Sent(to); err == nil {
		t.Error("the other end is not shaped")
	}
	if before < 0 || before > frames/2 {
		t.Errorf("the ACK came after %d of %d frames", before, frames)
	}
}

// A slow link says how many bytes it has carried, with their Ethernet headers.
func TestWhatASlowLinkHasCarried(t *testing.T) {
	testlab.NeedRoot(t)
	const (
		frames  = 20
		bytes   = 1000
		headers = 14 + 20 + 8
	)
	_, to, sender, receiver := cable(t)
	link, err := Attach(to, 10_000_000)
	testlab.Must(t, err)
	before, err := link.Carried()
	testlab.Must(t, err)
	testlab.Must(t, receiver.SetReadDeadline(time.Now().Add(testlab.Patience)))
	for range frames {
		_, err := sender.WriteTo(make([]byte, bytes), receiver.LocalAddr())
		testlab.Must(t, err)
		_, _, err = receiver.ReadFrom(make([]byte, bytes))
		testlab.Must(t, err)
	}
	after, err := link.Carried()
	if sum := after - before; err != nil || sum < frames*(headers+bytes) || sum > (frames+5)*(headers+bytes) {
		t.Errorf("%d bytes, %v", sum, err)
	}
}
