package afxdp

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// speak sends a frame for the kernel by port n.
func (w *world) speak(n int) {
	w.t.Helper()
	err := w.host.Do(func() error {
		conn, err := net.Dial("udp4", w.via(n)+":9")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("a frame"))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// speakUntil lets the host send a frame before each look of control's at the ports, until the port
// is as it should be, and returns the warnings.
func (w *world) speakUntil(what string, is func(dataplane.PortInfo) bool) (told []string) {
	w.t.Helper()
	w.eventually(what, func() bool {
		w.speak(1)
		told = append(told, w.refresh()...)
		return is(w.port(1))
	})
	return told
}

func deafIn(modes ...bpf.AttachMode) func(*bpf.Port) bool {
	return func(p *bpf.Port) bool {
		for _, m := range modes {
			if p.Mode() == m {
				return false
			}
		}
		return p.Seen()
	}
}

// virtio_net without mergeable buffers takes the program and does not run it.
func TestADriverThatDoesNotRunTheProgramIsFound(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}, sees: deafIn(bpf.ModeNative)})
	told := w.speakUntil("the port is in generic mode", func(p dataplane.PortInfo) bool { return p.Attach == "generic" })
	const want = "p1: the port works in generic mode: its driver takes rocast's XDP program and does not run it"
	if len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q", told, want)
	}
	w.expect(1, dataplane.PortUp, "")
	w.arrives(1)
	w.speak(1)
	w.refresh()
	if p := w.port(1); p.Opened != 2 || p.Attach != "generic" || p.Fallback != notRun {
		t.Errorf("%+v", p)
	}
}

// Where generic mode does not help, or is not what the config says, the port has failed, and stays
// so as long as the interface is the same.
func TestAPortThatNeverHearsHasFailed(t *testing.T) {
	for _, c := range []struct {
		mode   Mode
		deaf   []bpf.AttachMode
		opened int
	}{
		{ModeCopy, []bpf.AttachMode{bpf.ModeNative, bpf.ModeGeneric}, 2},
		{ModeGeneric, []bpf.AttachMode{bpf.ModeGeneric}, 1},
	} {
		w := newWorld(t)
		w.plug(1, netns.VethOptions{})
		w.open(Config{Ports: []string{"p1"}, Mode: c.mode, sees: deafIn(c.deaf...)})
		w.speakUntil("the port has failed", func(p dataplane.PortInfo) bool { return p.State == dataplane.PortFailed })
		w.expect(1, dataplane.PortFailed, "its driver takes rocast's XDP program and does not run it")
		w.refresh()
		if got := w.port(1).Opened; got != c.opened {
			t.Errorf("mode %s: opened %d times", c.mode, got)
		}
		w.unplug(1)
		w.refresh()
		w.plug(1, netns.VethOptions{})
		w.refresh()
		w.expect(1, dataplane.PortUp, "")
	}
}

// A port that works is not taken for one that does not: neither without frames, nor with frames
// from before it was opened.
func TestAPortThatHearsIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1"}, sees: func(*bpf.Port) bool { return false }})
	w.speak(1)
	w.sw.interfaces[0].stack.since = time.Now().Add(-countAfter)
	for range 3 {
		w.refresh()
	}
	w.expect(1, dataplane.PortUp, "")
	if p := w.port(1); p.Opened != 1 || p.Attach != "native" {
		t.Errorf("%+v", p)
	}
	v := newWorld(t)
	v.plug(1, netns.VethOptions{})
	v.open(Config{Ports: []string{"p1"}})
	v.speakUntil("the classifier has seen a frame", func(dataplane.PortInfo) bool { return v.sw.interfaces[0].stack == nil })
	if p := v.port(1); p.Opened != 1 || p.Attach != "native" {
		t.Errorf("%+v", p)
	}
	v.arrives(1)
	for range 3 { // the second one sees that nothing came after the first one
		v.refresh()
	}
	if !v.sw.interfaces[0].hearing.since.IsZero() {
		t.Error("a port that has had frames and is idle is in doubt")
	}
}

// misdirect gives the classifier another port's socket for that of port 1: the kernel drops what is
// redirected to it, because it is bound to another device.
func (w *world) misdirect() {
	w.t.Helper()
	if err := w.sw.interfaces[0].xdp.SetSocket(0, w.sw.interfaces[1].sockets[0][0].FD()); err != nil {
		w.t.Fatal(err)
	}
}

// The kernel may drop what the classifier redirects, and no counter of a socket has it. The port is
// opened again in generic mode, or has failed where that does not help.
func TestAPortWhoseFramesTheKernelDropsIsFound(t *testing.T) {
	w := newWorld(t)
	w.plug(1, netns.VethOptions{})
	w.plug(2, netns.VethOptions{})
	w.open(Config{Ports: []string{"p1", "p2"}})
	w.arrives(1)
	w.refresh()
	w.misdirect()
	lost := func(what string, is func(dataplane.PortInfo) bool) (told []string) {
		t.Helper()
		w.eventually(what, func() bool {
			w.send(1, 8)
			told = append(told, w.refresh()...)
			return is(w.port(1))
		})
		return told
	}
	told := lost("the port is in generic mode", func(p dataplane.PortInfo) bool { return p.Attach == "generic" })
	if want := "p1: the port works in generic mode: " + notKept; len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q", told, want)
	}
	if p := w.port(1); p.Fallback != notKept || p.Opened != 2 || w.port(2).Fallback != "" {
		t.Errorf("%+v", p)
	}
	w.arrives(1)
	w.arrives(2)
	w.refresh()
	w.misdirect()
	lost("the port has failed", func(p dataplane.PortInfo) bool { return p.State == dataplane.PortFailed })
	w.expect(1, dataplane.PortFailed, notKept)
	w.arrives(2)
	if p := w.port(1); strings.Contains(p.Reason, "mode: generic") || p.Fallback != "" {
		t.Errorf("%+v", p)
	}
}

// A port is deaf only if frames were redirected before each of two looks that are far apart, and
// its sockets have heard none meanwhile.
func TestWhenAPortIsDeaf(t *testing.T) {
	type look struct {
		redirected bool
		heard      uint64
		after      time.Duration // since the look before
		deaf       bool
	}
	for name, looks := range map[string][]look{
		"idle":                    {{false, 0, 0, false}, {false, 0, time.Hour, false}},
		"lost":                    {{true, 0, 0, false}, {true, 0, lostFor, true}},
		"on their way":            {{true, 0, 0, false}, {true, 0, lostFor - 1, false}, {true, 0, 1, true}},
		"heard":                   {{true, 1, 0, false}, {true, 2, time.Hour, false}, {true, 3, time.Hour, false}},
		"heard late":              {{true, 0, 0, false}, {false, 1, time.Hour, false}, {true, 1, time.Hour, false}, {true, 1, lostFor, true}},
		"one frame":               {{true, 0, 0, false}, {false, 0, time.Hour, false}, {true, 0, time.Hour, true}},
		"one look of two is late": {{true, 7, 0, false}, {true, 7, time.Hour, false}, {true, 8, lostFor, false}, {true, 8, lostFor, false}},
	} {
		var h hearing
		now := time.Unix(1, 0)
		for i, l := range looks {
			now = now.Add(l.after)
			if got := h.look(l.redirected, l.heard, now); got != l.deaf {
				t.Errorf("%s: look %d: %t", name, i+1, got)
			}
		}
	}
}
