package afxdp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// stream is a long transfer through a group that the kernel carries, while something happens.
type stream struct {
	*group
	t    *testing.T
	data []byte
	sent int // WRITEs that were posted and have not completed
}

const (
	streamBytes = 16 << 20
	streamPart  = 256 << 10 // of one WRITE
)

// flow begins a transfer and returns when the kernel has carried some of it.
func (g *group) flow(t *testing.T) *stream {
	t.Helper()
	s := &stream{group: g, t: t, data: bed.Random(len(g.receivers[0].memory), 3)}
	before := g.engine(t).Carried
	for off := 0; off < len(s.data); off += streamPart {
		g.post(t, off, s.data[off:min(off+streamPart, len(s.data))])
		s.sent++
	}
	s.carriesMoreThan(before)
	return s
}

// carriesMoreThan waits until the kernel has carried so many packets of the group. Meanwhile the
// switch looks at its ports, as the daemon does, and makes the sets of ports that groups want.
func (s *stream) carriesMoreThan(packets uint64) {
	s.t.Helper()
	var e dataplane.EngineState
	testlab.Eventually(s.t, patience, "the kernel carries packets", func() bool {
		check(s.t, s.lab.Box.Do(func() error { s.lab.sw.Refresh(); return nil }))
		e = s.engine(s.t)
		return e.Carried > packets
	}, func() string { return fmt.Sprintf("%+v, counters %v", e, s.lab.sw.Counters()) })
}

// inFlight skips the test if the transfer is over already: then nothing was seen. That happens on a
// machine that runs the hosts and not the test.
func (s *stream) inFlight() {
	s.t.Helper()
	if s.over() {
		s.t.Skip("no verdict: the transfer was over before anything happened, because the machine had no time for the test")
	}
}

// over reports whether the switch has forwarded the whole transfer.
func (s *stream) over() bool {
	state, _ := s.lab.sw.GroupState(s.ID)
	return state.Sent == s.lastPSN()
}

func (s *stream) lastPSN() roce.PSN { return roce.PSN(sourcePSN).Add(int32(len(s.data)/1024 - 1)) }

// ends waits for the rest of the transfer.
func (s *stream) ends() {
	s.t.Helper()
	for ; s.sent > 0; s.sent-- {
		s.succeeds(s.t)
	}
}

// hold checks that these receivers have all data.
func (s *stream) hold(receivers ...*receiver) {
	s.t.Helper()
	for _, r := range receivers {
		r.rnic.Freeze(func() {
			if !bytes.Equal(r.memory, s.data) {
				s.t.Errorf("receiver %v lacks data", r.rnic.IP())
			}
		})
	}
	s.heardTruth(s.t)
}

// change publishes another version of the group, as control does.
func (s *stream) change(edit func(*mft.Group)) {
	s.t.Helper()
	next := *s.Group
	next.Paths = slices.Clone(s.Paths)
	edit(&next)
	check(s.t, s.lab.Box.Do(func() error { return s.lab.sw.Replace(s.ID, &next) }))
	s.Group = &next
}

func kernelLab(t *testing.T) *lab {
	t.Helper()
	return newLab(t, labOptions{Options: bed.Options{Hosts: 4}, fanOut: true})
}

// The next hop of every receiver changes in the middle of a transfer.
func TestTheKernelFollowsAMovedHost(t *testing.T) {
	s := kernelLab(t).addGroup(t, groupOptions{memory: streamBytes}).flow(t)
	s.inFlight()
	s.change(func(g *mft.Group) {
		for i := range g.Paths {
			g.Paths[i].L2[6] ^= 2 // the address that copies come from
		}
	})
	s.carriesMoreThan(s.engine(t).Carried)
	s.ends()
	s.hold(s.receivers...)
	if n := counter(t, s.lab.sw, "fan-out-armed"); n < 2 {
		t.Errorf("the group was armed %d times", n)
	}
}

// One receiver leaves and comes back in the middle of a transfer: it has a whole number of messages
// from its new beginning on.
func TestTheKernelCarriesWhileMembersChange(t *testing.T) {
	s := kernelLab(t).addGroup(t, groupOptions{memory: streamBytes}).flow(t)
	s.inFlight()
	leaver, path := s.receivers[2], s.Paths[2]
	s.change(func(g *mft.Group) { g.Paths = g.Paths[:2] })
	s.carriesMoreThan(s.engine(t).Carried)

	qp := open(t, leaver.rnic, groupOptions{pathMTU: s.PathMTU}, path.DestQPN+50, 0)
	path.DestQPN, path.FirstPSN = path.DestQPN+50, 0xFFFFF0
	dialReceiver(t, qp, &path)
	s.inFlight()
	s.change(func(g *mft.Group) { g.Paths = append(g.Paths, path) })
	s.ends()
	s.hold(s.receivers[0], s.receivers[1])
	e := s.engine(t)
	leaver.rnic.Freeze(func() {
		last := len(s.data) - streamPart
		if !bytes.Equal(leaver.memory[last:], s.data[last:]) {
			t.Errorf("the receiver that joined lacks the last message; %+v", e)
		}
	})
	state, _ := s.lab.sw.GroupState(s.ID)
	if state.Paths[2].Part != feedback.PartActive {
		t.Errorf("the receiver that joined is %v", state.Paths[2].Part)
	}
	// Each time that the kernel loses the group, the bytes of the newest packet may not be counted.
	if n := state.Traffic.Bytes; n > streamBytes || n < streamBytes-streamBytes/100 || state.Traffic.CopyBytes < 2*n {
		t.Errorf("%d bytes came and %d left, of a stream of %d", n, state.Traffic.CopyBytes, streamBytes)
	}
}

// A receiver falls silent and is evicted. The kernel carries the rest for the others.
func TestTheKernelCarriesAfterAnEviction(t *testing.T) {
	l := kernelLab(t)
	g := l.addGroup(t, groupOptions{memory: streamBytes, edit: func(g *mft.Group) {
		// Long beside what a receiver takes to answer under the race detector, on a busy machine.
		g.Policy.SilentAfter, g.Policy.Evict = 2*time.Second, true
	}})
	s := g.flow(t)
	s.inFlight()
	_, err := l.Hosts[3].NS.Exec("ip", "link", "set", "eth0", "down")
	check(t, err)
	s.ends()
	s.hold(s.receivers[:2]...)
	state, _ := l.sw.GroupState(g.ID)
	if state.Paths[2].Part != feedback.PartGone {
		t.Errorf("the silent receiver is %v", state.Paths[2].Part)
	}
	s.carriesAfter(state.Engine.Carried)
	s.hold(s.receivers[:2]...)
}

// A receiver becomes the source. The kernel carries its packets too, and then those of the first
// source again.
func TestTheKernelFollowsASourceSwitch(t *testing.T) {
	const sends = roce.PSN(0xFFFF00)
	g := kernelLab(t).addGroup(t, groupOptions{
		memory: 4 << 20, edit: func(g *mft.Group) { g.Paths[0].Sends, g.Paths[0].SendPSN = true, sends },
		rnic: func(c *rnic.Config) {
			if c.QPN == 101 {
				c.SendPSN = sends
			}
		},
	})
	s := g.flow(t)
	s.ends()
	s.hold(s.receivers...)
	before := g.engine(t).Carried

	first, b := g.source, g.receivers[0]
	g.source = b.qp
	own := bytes.Clone(b.memory)
	s.data = g.write(t, streamPart)
	s.carriesAfter(before)
	s.hold(g.receivers[1:]...)
	if !bytes.Equal(b.memory, own) {
		t.Error("the source got its own packets")
	}
	before = g.engine(t).Carried
	g.source = first
	s.data = g.write(t, streamPart)
	s.carriesAfter(before)
	s.hold(g.receivers...)
}

// carriesAfter writes the group's memory again until the kernel has carried more packets than that.
func (s *stream) carriesAfter(packets uint64) {
	s.t.Helper()
	testlab.Eventually(s.t, patience, "the kernel carries packets", func() bool {
		check(s.t, s.lab.Box.Do(func() error { s.lab.sw.Refresh(); return nil }))
		s.data = s.write(s.t, streamPart)
		return s.engine(s.t).Carried > packets
	}, func() string { return fmt.Sprintf("%+v", s.engine(s.t)) })
}

// Somebody captures on every port: the group stays with the kernel.
func TestACaptureDoesNotDisturbTheKernel(t *testing.T) {
	l := kernelLab(t)
	s := l.addGroup(t, groupOptions{memory: streamBytes}).flow(t)
	s.inFlight()
	for i := range l.Hosts {
		capture(t, l, i)
	}
	s.ends()
	s.carriesAfter(s.engine(t).Carried)
	s.hold(s.receivers...)
}

// capture opens what tcpdump opens.
func capture(t *testing.T, l *lab, port int) {
	t.Helper()
	const allProtocols = 0x0300 // ETH_P_ALL in network order
	check(t, l.Box.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, allProtocols)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		ifindex := l.Hosts[port].Port.Index
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: ifindex}); err != nil {
			return err
		}
		mreq := unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC}
		return unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &mreq)
	}))
}

// Several receivers are behind the port of the source, and the kernel sends to them by that port.
func TestTheKernelSendsByTheSourcesPort(t *testing.T) {
	l := kernelLab(t)
	g := l.addGroup(t, groupOptions{memory: 1 << 20, edit: func(g *mft.Group) {
		for i := range 2 {
			p := &g.Paths[i]
			p.Leg, p.RemoteQPN = l.leg(0, p.DestQPN, p.Src), g.QPN+roce.QPN(10+i)
		}
	}})
	data := g.write(t, streamPart)
	g.holds(t, data)
	if e := g.engine(t); e.Carried == 0 {
		t.Errorf("the kernel carried nothing (%s)", e.Reason)
	}
}
