package afxdp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// A group whose packets may have several buffers is armed only where the driver of the port sends
// such frames, and gets two entries for each packet that is retained.
func TestTheKernelGetsAGroupWithALongPathMTU(t *testing.T) {
	f, b := retainingBench(t, 8*segmentEntries)
	b.Paths, b.PathMTU, b.Retain = b.Paths[:1], 4096, 2*segmentEntries
	d := *f.devices.Load()
	d.fans = map[ports]uint32{{0, 1}: 6}
	f.devices.Store(&d)
	if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != errNarrow {
		t.Fatalf("the driver sends no such frames: %v", err)
	}
	wide := d
	wide.wide[1] = true
	f.devices.Store(&wide)
	arm := func(want uint8, entries int) {
		t.Helper()
		if err := f.Arm(3, b, dataplane.FanWord{PSN: 9, Armed: true}, 100); err != nil {
			t.Fatal(err)
		}
		slot := f.kernel.Slot(3)
		if slot.Wide != want || int(slot.Mtu) != b.PathMTU || slot.RetainedPackets != 2*segmentEntries || f.memory.of(3).entries != entries {
			t.Errorf("path MTU %d: wide %d, %d packets are retained in %d entries", b.PathMTU, slot.Wide, slot.RetainedPackets, f.memory.of(3).entries)
		}
		f.Disarm(3)
	}
	arm(1, 4*segmentEntries)
	f.devices.Store(&d)
	b.PathMTU = 2048
	f.memory.give(3)
	arm(0, 2*segmentEntries)
}

// wideWorld is a box with one port for the source and one for receivers that share a leg, and what
// arrives at the receivers' port.
type wideWorld struct {
	*world
	data     hostFrame
	payload  []byte
	acks     []hostFrame
	naks     []hostFrame
	receives int // a packet socket at the receivers
	id       mft.GroupID
	psn      roce.PSN // of the next packet
}

const widePayload = 4096

func newWideWorld(t *testing.T, receivers int) *wideWorld {
	w := &wideWorld{world: newWorld(t)}
	for n := 1; n <= 2; n++ {
		w.plug(n, netns.VethOptions{MTU: 5000})
		w.run(w.host, "ethtool", "-K", w.far[n].Name, "gro", "on") // takes redirected frames
	}
	w.open(Config{Ports: []string{"p1", "p2"}, FanOut: true, RepairMemory: 64 << 20})
	if w.sw.fanOut.Load() == nil {
		t.Skip(w.sw.noFanOut)
	}
	if err := CheckSeveralBuffers(); err != nil {
		t.Skip(err)
	}
	g := stickGroup(widePayload, receivers, receivers > 1)
	for i := range widePayload {
		w.payload = append(w.payload, byte(i*i>>7))
	}
	ext := (&roce.RETH{VA: 0x10000 + 8, RKey: 0x77, DMABytes: widePayload}).Append(nil)
	w.data = newHostFrame(t, w.far[1], g.Source.Leg, roce.BTH{Opcode: roce.OpWriteOnly}, append(ext, w.payload...))
	for i := range g.Paths {
		leg := g.Paths[i].Leg
		w.acks = append(w.acks, newHostFrame(t, w.far[2], leg, roce.BTH{Opcode: roce.OpAck}, (&roce.AETH{Syndrome: roce.SyndromeUnlimited}).Append(nil)))
		w.naks = append(w.naks, newHostFrame(t, w.far[2], leg, roce.BTH{Opcode: roce.OpAck}, (&roce.AETH{Syndrome: roce.NAKSequence}).Append(nil)))
	}
	err := w.host.Do(func() (err error) {
		const all = 0x0300 // ETH_P_ALL in network order
		if w.receives, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err == nil {
			// A busy machine takes frames out late, and the usual room is for some twenty of them.
			err = unix.SetsockoptInt(w.receives, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		}
		if err == nil {
			err = unix.Bind(w.receives, &unix.SockaddrLinklayer{Protocol: all, Ifindex: w.far[2].Index})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(w.receives) })
	if err := w.sw.Remove(w.group.ID); err != nil { // it has the group's IP and QPN
		t.Fatal(err)
	}
	if err := w.box.Do(func() (err error) { w.id, err = w.sw.Add(g); return err }); err != nil {
		t.Fatal(err)
	}
	w.group = g
	return w
}

// arrived is a RoCE frame that has left by the receivers' port.
type arrived struct {
	psn   roce.PSN
	qpn   roce.QPN
	own   int // the receiver; -1: it is a shared copy
	right bool
}

// take returns the data that has arrived at the receivers since the last call.
func (w *wideWorld) take() (list []arrived) {
	b := make([]byte, 9000)
	for {
		n, from, err := unix.Recvfrom(w.receives, b, 0)
		if err != nil {
			return list
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue // what a receiver sends
		}
		var v roce.View
		frame := b[:n]
		if v.Decode(frame, n) != nil || !v.Opcode.IsRequest() {
			continue
		}
		a := arrived{psn: v.PSN(frame), qpn: v.DestQPN(frame), own: -1}
		want := mft.Region{VA: 0x10000, RKey: 0x77} // as the source has it
		for i := range w.group.Paths {
			if p := &w.group.Paths[i]; p.Dst == v.DstIP(frame) && p.DestQPN == a.qpn {
				a.own, want = i, mft.Region{VA: 1 << 32}
			}
		}
		reth := v.RETH(frame)
		a.right = v.Undamaged([][]byte{frame}) && bytes.HasSuffix(frame[:n-4], w.payload) && reth.VA == want.VA+8 && reth.RKey == want.RKey &&
			(a.own >= 0 || a.qpn == w.group.Shares[0].DestQPN && v.DstIP(frame) == w.group.Shares[0].Dst)
		list = append(list, a)
	}
}

// send sends that many packets.
func (w *wideWorld) send(n int) {
	w.t.Helper()
	for range n {
		if err := w.data.send(w.psn); err != nil {
			w.t.Fatal(err)
		}
		w.psn = w.psn.Next()
	}
}

// answer lets receivers say something about a packet.
func (w *wideWorld) answer(frames []hostFrame, psn roce.PSN) {
	w.t.Helper()
	for i := range frames {
		if err := frames[i].send(psn); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *wideWorld) engine() dataplane.EngineState {
	st, _ := w.sw.GroupState(w.id)
	return st.Engine
}

// arrive waits until a copy of each of these packets has come, and checks all that come. by is the
// receiver whose own leg they take, or -1 for one copy that all share. On a busy machine repair
// sends some twice, or to each receiver by its own leg, and a source that pauses is called back: it
// sends them again.
func (w *wideWorld) arrive(by int, want ...roce.PSN) {
	w.t.Helper()
	heard, has := w.calls(), map[roce.PSN]map[int]bool{}
	w.eventually("all copies", func() bool {
		if n := w.calls(); n != heard {
			heard, w.psn = n, want[0].Add(-2) // it may have been called to a packet in front of these
			w.send(2 + len(want))
		}
		for _, a := range w.take() {
			if !a.right || by >= 0 && a.own < 0 {
				w.t.Errorf("%+v", a)
			}
			if has[a.psn] == nil {
				has[a.psn] = map[int]bool{}
			}
			has[a.psn][a.own] = true
		}
		return !slices.ContainsFunc(want, func(psn roce.PSN) bool {
			owners := has[psn]
			return !owners[by] && (by >= 0 || len(owners) < len(w.group.Paths))
		})
	})
}

// carried lets the kernel engine take the group. On a busy machine the source may be called back to
// its newest packet meanwhile, as often as it pauses, and comes.
func (w *wideWorld) carried() {
	w.t.Helper()
	heard := uint64(0)
	w.eventually("the kernel has the group", func() bool {
		w.send(20) // more than the packets in a row that it waits for
		if n := w.calls(); n != heard {
			heard, w.psn = n, w.psn.Add(-2) // it may have been called to the packet in front of this one
			w.send(3)
		}
		testlab.Eventually(w.t, patience, "the copies", func() bool { return len(w.take()) > 0 }, nil)
		w.answer(w.acks, w.psn.Prev())
		w.refresh()
		return w.engine().Kernel
	})
}

// calls is how many NAKs have told the source to go back.
func (w *wideWorld) calls() (n uint64) {
	for _, c := range w.sw.Counters() {
		if c.Name == "nak-silent-source" || c.Name == "nak-unheard" {
			n += c.Value
		}
	}
	return n
}

// Frames of two buffers to receivers that share a leg, and to one receiver alone, are carried by
// the kernel. Each copy is right to the byte, and a packet that a receiver lost is sent again as it
// was.
func TestTheKernelCarriesFramesOfSeveralBuffers(t *testing.T) {
	for _, receivers := range []int{1, 3} {
		t.Run(fmt.Sprint(receivers), func(t *testing.T) {
			w := newWideWorld(t, receivers)
			w.carried()
			by := -1
			if receivers == 1 {
				by = 0
			}
			first, before, heard := w.psn, w.engine().Carried, w.calls()
			var want []roce.PSN
			for psn := first; psn != first.Add(20); psn = psn.Next() {
				want = append(want, psn)
			}
			w.send(20)
			w.arrive(by, want...)
			w.answer(w.acks, first.Add(9))
			if e := w.engine(); (!e.Kernel || e.Carried-before != 20) && w.calls() == heard {
				t.Errorf("%+v, and had carried %d", e, before)
			}
			lost := receivers - 1
			w.answer(w.naks[lost:], first.Add(15))
			w.arrive(lost, want[15:]...)
			w.answer(w.acks, first.Add(19))
			w.eventually("the box keeps nothing", func() bool { st, _ := w.sw.GroupState(w.id); return st.Retained == 0 })
			for _, c := range w.sw.Counters() {
				switch c.Name {
				case "fan-out-copy_malformed", "fan-out-copy_stale", "fan-out-disarmed_header", "fan-out-disarmed_retain", "repair-lost-damaged", "repair-lost-missing":
					if c.Value != 0 {
						t.Errorf("%s: %d", c.Name, c.Value)
					}
				}
			}
		})
	}
}

// The driver of a port tells whether it sends frames of several buffers.
func TestADriverTellsWhetherItSendsSeveralBuffers(t *testing.T) {
	w := newWorld(t)
	for n := 1; n <= 2; n++ {
		w.plug(n, netns.VethOptions{MTU: 5000})
	}
	w.run(w.host, "ethtool", "-K", w.far[2].Name, "gro", "on") // a veth sends none to a far end without GRO
	w.open(Config{Ports: []string{"p1", "p2"}, FanOut: true})
	if w.sw.fanOut.Load() == nil {
		t.Skip(w.sw.noFanOut)
	}
	if err := CheckSeveralBuffers(); err != nil {
		t.Skip(err)
	}
	if d := w.sw.fanOut.Load().devices.Load(); d.wide[0] || !d.wide[1] || d.wide[2] {
		t.Errorf("ports send frames of several buffers: %v", d.wide[:3])
	}
}
