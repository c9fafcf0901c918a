package softroce

import (
	"net"
	"testing"
	"time"

	"github.com/rocast/rocast/internal/testlab"
)

// What a lower device sent before it went down does not bring the answers back to it.
func TestABondCableForgetsALowerDevice(t *testing.T) {
	var near, far [2]net.Conn
	for i := range near {
		near[i], far[i] = net.Pipe()
	}
	c := newBondCable(near[0], near[1])
	defer c.Close()
	frame := make([]byte, 16)
	says := func(lower int) {
		t.Helper()
		if _, err := far[lower].Write([]byte{byte(lower)}); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(frame); n != 1 || err != nil || frame[0] != byte(lower) {
			t.Fatalf("%v, %v", frame[:n], err)
		}
	}
	goesTo := func(what string, lowers ...int) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Write([]byte("an answer"))
		}()
		for _, lower := range lowers {
			_ = far[lower].SetReadDeadline(time.Now().Add(testlab.Patience))
			if n, err := far[lower].Read(frame); n == 0 || err != nil {
				t.Fatalf("%s: nothing goes to lower device %d: %v", what, lower, err)
			}
		}
		<-done // it would wait for another lower device
	}
	goesTo("before it has heard", 0, 1)
	says(0)
	goesTo("when it has heard", 0)
	c.Plug(0, false)
	goesTo("when that one is unplugged", 1)
	says(0)
	goesTo("when a late frame has come", 1)
	says(1)
	c.Plug(0, true)
	goesTo("when it has heard from the other one", 1)
}
