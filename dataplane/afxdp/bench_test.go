package afxdp

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// BenchmarkWorker measures what a worker spends on a packet to three receivers, on veth and through
// this kernel: by itself, and in the system calls that send. Between two of these calls the kernel
// fills the caches with other things, which a benchmark without a kernel does not show.
//
// A round is a full batch and an ACK of each receiver. The result is that of the fastest tenth of
// the rounds, which no other program has interrupted. Compare two binaries in turns all the same.
func BenchmarkWorker(b *testing.B) {
	for _, payload := range []int{1024, 4096} {
		for _, repair := range []feedback.RepairPolicy{feedback.RepairOff, feedback.RepairLocal} {
			b.Run(fmt.Sprintf("%dB/repair-%v", payload, repair), func(b *testing.B) { newRounds(b, payload, repair).run(b) })
		}
	}
}

// roundReceivers is the number of receivers, which are behind ports of their own.
const roundReceivers = 3

// rounds makes a worker and the hosts around it take turns: while one works the other waits, each
// on a CPU of its own.
//
//	box namespace                  hosts namespace
//	  worker - p0 ================ h0 - the source
//	         - p1 to p3 ========== h1 to h3 - the receivers
type rounds struct {
	sw      *Switch
	group   *mft.Group
	packets int // of data in a round
	data    hostFrame
	acks    [roundReceivers]hostFrame
	asked   atomic.Int64 // rounds that the worker wants; below 0: no more
	sent    atomic.Int64 // rounds that the hosts have sent
}

func newRounds(b *testing.B, payload int, repair feedback.RepairPolicy) *rounds {
	if runtime.NumCPU() < 2 {
		b.Skip("needs two CPUs: the hosts and the worker take one each")
	}
	r := &rounds{packets: 64, group: roundGroup(repair)}
	if payload > xsk.FrameBytes-100 { // what the headers take
		r.packets /= 2 // a batch has as many buffers at most
	}
	box, host := netns.New(b), netns.New(b)
	var names []string
	for i := range 1 + roundReceivers {
		near, far := netns.Veth(b, box, fmt.Sprintf("p%d", i), host, fmt.Sprintf("h%d", i), netns.VethOptions{MTU: 5000})
		names = append(names, near.Name)
		if i == 0 {
			ext := (&roce.RETH{VA: 0x10000, RKey: 0x77, DMABytes: uint32(payload)}).Append(nil)
			r.data = newHostFrame(b, far, r.group.Source.Leg, roce.BTH{Opcode: roce.OpWriteOnly}, append(ext, make([]byte, payload)...))
			continue
		}
		ext := (&roce.AETH{Syndrome: roce.SyndromeUnlimited}).Append(nil)
		r.acks[i-1] = newHostFrame(b, far, r.group.Paths[i-1].Leg, roce.BTH{Opcode: roce.OpAck}, ext)
	}
	err := box.Do(func() (err error) {
		r.sw, err = Open(Config{Ports: names, RepairMemory: 64 << 20})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.sw.Close(); err != nil {
			b.Error(err)
		}
	})
	if _, err := r.sw.Add(r.group); err != nil {
		b.Fatal(err)
	}
	return r
}

func roundGroup(repair feedback.RepairPolicy) *mft.Group {
	memory := mft.MustMemory(mft.VirtualRegion{VA: 0x10000, Length: 1 << 20, RKey: 0x77})
	leg := func(i int) mft.Leg {
		l := mft.Leg{Port: mft.PortID(i), Src: groupIP, Dst: netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), DestQPN: roce.QPN(17 + i)}
		l.L2Bytes = uint8(copy(l.L2[:], roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, byte(i + 1)}, roce.MAC{2, 0, 0, 0, 0, 100}, 0x0800)))
		return l
	}
	g := &mft.Group{Name: "g", IP: groupIP, QPN: 1, PathMTU: 4096, Memory: memory, Source: mft.Source{Leg: leg(0)}}
	g.Policy.Repair = repair
	for i := range roundReceivers {
		g.Paths = append(g.Paths, mft.Path{
			Leg: leg(i + 1), RemoteQPN: g.QPN,
			Regions: memory.At(func(mft.VirtualRegion) mft.Region { return mft.Region{VA: uint64(i+1) << 32, RKey: uint32(i)} }),
		})
	}
	return g
}

// hostFrame is a frame that a host sends again and again, with another PSN each time.
type hostFrame struct {
	frame []byte
	view  roce.View
	fd    int // a packet socket
}

// newHostFrame makes a frame of the host of a leg, with what is behind its BTH.
func newHostFrame(b testing.TB, from netns.Link, l mft.Leg, bth roce.BTH, body []byte) (h hostFrame) {
	ip := roce.IPUDP{Src: l.Dst, Dst: l.Src, HopLimit: 64, SrcPort: 0xC123}
	bth.PKey, bth.DestQPN = 0xFFFF, 1
	frame := roce.AppendEthernet(nil, roce.MAC{2, 0, 0, 0, 0, 100}, roce.MAC(l.L2[:6]), ip.EtherType())
	frame = append(bth.Append(ip.Append(frame, roce.BTHBytes+len(body))), body...)
	h.frame = append(frame, 0, 0, 0, 0) // send writes the ICRC
	err := h.view.Decode(h.frame, len(h.frame))
	if err == nil {
		err = from.NS.Do(func() (err error) {
			if h.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
				err = unix.Bind(h.fd, &unix.SockaddrLinklayer{Ifindex: from.Index})
			}
			return err
		})
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(h.fd) })
	return h
}

func (h *hostFrame) send(psn roce.PSN) error {
	fragments := [][]byte{h.frame}
	h.view.SetPSN(h.frame, psn)
	h.view.PutICRC(fragments, h.view.ComputeICRC(fragments))
	_, err := unix.Write(h.fd, h.frame)
	return err
}

// pin keeps the goroutine on a thread of its own, which ends with it, and the thread on a CPU.
func pin(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// hosts sends a round each time when the worker asks for it.
func (r *rounds) hosts() error {
	defer r.sent.Store(math.MaxInt64) // the worker waits no more
	if err := pin(1); err != nil {
		return err
	}
	var psn roce.PSN // all members begin with PSN 0
	for round := int64(1); ; round++ {
		for r.asked.Load() != round {
			if r.asked.Load() < 0 {
				return nil
			}
		}
		for i := range r.acks {
			if err := r.acks[i].send(psn.Prev()); err != nil { // of the round before
				return err
			}
		}
		for range r.packets {
			if err := r.data.send(psn); err != nil {
				return err
			}
			psn = psn.Next()
		}
		r.sent.Store(round)
	}
}

// timed measures the system calls of a socket.
type timed struct {
	txSocket
	spent *time.Duration
}

func (t timed) Flush(patience time.Duration) (withdrawn int, err error) {
	begun := time.Now()
	withdrawn, err = t.txSocket.Flush(patience)
	*t.spent += time.Since(begun)
	return withdrawn, err
}

func (r *rounds) run(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	ended, failed := make(chan struct{}), make(chan error)
	go func() { defer close(ended); r.sw.Run(ctx) }()
	go func() { failed <- r.hosts() }()
	var own, kernel []time.Duration // of each round
	r.sw.Do(0, func() {
		if err := pin(0); err != nil {
			b.Error(err)
		}
		var spent time.Duration
		for _, p := range r.sw.workers[0].ports {
			p.out = timed{p.out, &spent}
		}
		w, polls := r.sw.Workers()[0], int64(0)
		for b.Loop() {
			polls++
			r.asked.Store(polls)
			for r.sent.Load() < polls {
			}
			spent = 0
			begun := time.Now()
			n := w.Poll()
			all := time.Since(begun)
			own, kernel = append(own, all-spent), append(kernel, spent)
			if n != r.packets+roundReceivers {
				b.Errorf("a round has %d frames, want %d", n, r.packets+roundReceivers)
				break
			}
		}
		r.asked.Store(-1)
	})
	if err := <-failed; err != nil {
		b.Error(err)
	}
	cancel()
	<-ended
	for unit, times := range map[string][]time.Duration{"own-ns/packet": own, "kernel-ns/packet": kernel} {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/10].Nanoseconds())/float64(r.packets), unit)
	}
	b.ReportMetric(0, "ns/op") // which has the hosts' time, too
}
