package afxdp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// BenchmarkStick measures what a packet to receivers behind one port costs the box, with copies of
// their own and with shared ones, and apart from that what an answer of a receiver costs. The
// receive work of the box's ports is that of kernel threads, and the result is the CPU time of the
// threads and of the worker. Data and answers take turns: a round is a batch of packets, of which
// the last one asks, then an ACK of each receiver. A batch has 64 packets, or as many as have room
// in a veth device with all their copies. The far end of a port counts what arrives and drops it,
// in the sender's time. Packets of 4096 bytes take two buffers each; the kernel engine carries
// those of which one copy leaves.
func BenchmarkStick(b *testing.B) {
	for _, payload := range []int{1024, 4096} {
		for _, engine := range []string{"afxdp", "kernel"} {
			for _, receivers := range []int{1, 3, 16, 63} {
				for _, copies := range []string{"own", "shared"} {
					switch {
					case receivers == 1 && copies == "shared": // a share has two members
						continue
					case payload > mft.BlockPathMTU && engine == "kernel" && receivers > 1 && copies == "own":
						continue
					}
					b.Run(fmt.Sprintf("%dB/%s/%d/%s", payload, engine, receivers, copies), func(b *testing.B) {
						newStick(b, payload, receivers, copies == "shared", engine == "kernel").run(b)
					})
				}
			}
		}
	}
}

// stick is a box with one port for the source and one for all receivers.
type stick struct {
	box     *netns.NS
	sw      *Switch
	group   *mft.Group
	kernel  bool         // the kernel engine carries the packets
	data    [2]hostFrame // the second asks for an ACK
	batch   int
	acks    []hostFrame
	heard   *ebpf.Map // frames that have reached the source
	copies  *ebpf.Map // and the receivers
	id      mft.GroupID
	psn     roce.PSN // of the next packet
	each    uint64   // copies for each packet
	threads [2]int   // of the ports' receive work
	worker  int      // its thread
}

// vethFrames is how many frames a veth device has room for on their way to its far end.
const vethFrames = 256

func newStick(b *testing.B, payload, receivers int, shared, kernel bool) *stick {
	if runtime.NumCPU() < 2 {
		b.Skip("needs two CPUs: the hosts and the box take one each")
	}
	if err := pin(1); err != nil {
		b.Fatal(err)
	}
	s := &stick{group: stickGroup(payload, receivers, shared), kernel: kernel, each: uint64(receivers)}
	if shared {
		s.each = 1
	}
	s.batch = min(64, (vethFrames-1)/int(s.each))
	if payload > mft.BlockPathMTU {
		s.batch = max(s.batch/2, 2) // a batch of the worker has as many buffers at most
	}
	box, host := netns.New(b), netns.New(b)
	s.box = box
	var names []string
	var far [2]netns.Link
	for i := range far {
		near, end := netns.Veth(b, box, fmt.Sprintf("s%dp%d", os.Getpid()%10_000, i), host, fmt.Sprintf("s%dh%d", os.Getpid()%10_000, i), netns.VethOptions{MTU: payload + 500})
		names, far[i] = append(names, near.Name), end
	}
	ext := (&roce.RETH{VA: 0x10000, RKey: 0x77, DMABytes: uint32(payload)}).Append(nil)
	write := append(ext, make([]byte, payload)...)
	for i, asks := range []bool{false, true} {
		s.data[i] = newHostFrame(b, far[0], s.group.Source.Leg, roce.BTH{Opcode: roce.OpWriteOnly, AckReq: asks}, write)
	}
	for i := range s.group.Paths {
		ext := (&roce.AETH{Syndrome: roce.SyndromeUnlimited}).Append(nil)
		s.acks = append(s.acks, newHostFrame(b, far[1], s.group.Paths[i].Leg, roce.BTH{Opcode: roce.OpAck}, ext))
	}
	s.heard, s.copies = countArrivals(b, far[0]), countArrivals(b, far[1])
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	check(box.Do(func() (err error) {
		s.sw, err = Open(Config{Ports: names, RepairMemory: 64 << 20, FanOut: kernel})
		if err == nil {
			s.sw.Engage()
		}
		return err
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.sw.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-ended
		if err := s.sw.Close(); err != nil {
			b.Error(err)
		}
	})
	check(box.Do(func() (err error) { s.id, err = s.sw.Add(s.group); return err }))
	var err error
	s.sw.Do(0, func() { s.worker = unix.Gettid(); err = pin(0) })
	check(err)
	for i, name := range names {
		s.threads[i] = napiThread(b, box, name, 0)
	}
	return s
}

// stickGroup is a group of as many receivers behind port 1.
func stickGroup(pathMTU, receivers int, shared bool) *mft.Group {
	g := roundGroup(feedback.RepairLocal)
	one := g.Paths[0]
	g.Paths, g.Policy.RepairWindow, g.PathMTU = nil, 1024, pathMTU
	var members []mft.QP
	for i := range receivers {
		p := one
		p.Dst, p.DestQPN = netip.AddrFrom4([4]byte{10, 9, 1, byte(1 + i)}), roce.QPN(100+i)
		g.Paths, members = append(g.Paths, p), append(members, p.QP())
	}
	if shared {
		g.Shares = []mft.Share{g.Paths[0].Shared(netip.MustParseAddr("239.192.0.1"), 0x800001, members)}
	}
	return g
}

// countArrivals counts what arrives at the far end of a port, and drops it there.
func countArrivals(b *testing.B, far netns.Link) (count *ebpf.Map) {
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { count.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS, Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, count.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("drop"), // XDP_DROP
		asm.Return(),
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { program.Close() })
	attached, err := far.AttachXDP(program, link.XDPDriverMode)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { attached.Close() })
	return count
}

// napiThread moves the receive work of an interface to a thread of the kernel on a CPU, and returns
// its ID.
func napiThread(b *testing.B, ns *netns.NS, name string, cpu int) int {
	script := "echo 1 > /sys/class/net/" + name + "/threaded"
	if _, err := ns.Exec("ip", "netns", "exec", ns.Name(), "sh", "-ec", script); err != nil {
		b.Fatal(err)
	}
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range comms {
		var pid int
		comm, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(comm), "napi/"+name+"-") {
			continue
		}
		fmt.Sscanf(path, "/proc/%d/", &pid)
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(pid, &set); err != nil {
			b.Fatal(err)
		}
		return pid
	}
	b.Fatal("the receive work of " + name + " has no thread")
	return 0
}

// spent is the CPU time of the box until now.
func (s *stick) spent(b *testing.B) (sum time.Duration) {
	const scheduled, ofThread = 2, 4 // CPUCLOCK_SCHED, CPUCLOCK_PERTHREAD_MASK
	for _, clock := range []int32{
		int32(^s.threads[0])<<3 | scheduled, int32(^s.threads[1])<<3 | scheduled, int32(^s.worker)<<3 | scheduled | ofThread,
	} {
		var t unix.Timespec
		if err := unix.ClockGettime(clock, &t); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(t.Nano())
	}
	return sum
}

// sendData sends a batch of the source, and waits until the copies have left.
func (s *stick) sendData(b *testing.B) {
	s.until(b, s.copies, s.each*uint64(s.batch), func() error {
		for i := range s.batch {
			if err := s.data[i/(s.batch-1)].send(s.psn); err != nil {
				return err
			}
			s.psn = s.psn.Next()
		}
		return nil
	})
}

// sendACKs lets each receiver acknowledge the batch, and waits until the source has heard of it.
func (s *stick) sendACKs(b *testing.B) {
	s.until(b, s.heard, 1, func() error {
		for i := range s.acks {
			if err := s.acks[i].send(s.psn.Prev()); err != nil {
				return err
			}
		}
		return nil
	})
}

// until sends, and waits until a counter has grown.
func (s *stick) until(b *testing.B, count *ebpf.Map, more uint64, send func() error) {
	b.Helper()
	read := func() (n uint64) {
		if err := count.Lookup(uint32(0), &n); err != nil {
			b.Fatal(err)
		}
		return n
	}
	before := read()
	if err := send(); err != nil {
		b.Fatal(err)
	}
	for deadline := time.Now().Add(testlab.Patience); read() < before+more; runtime.Gosched() {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d frames have arrived", read()-before, more)
		}
	}
}

func (s *stick) engine(b *testing.B) dataplane.EngineState {
	st, ok := s.sw.GroupState(s.id)
	if !ok {
		b.Fatal("the group is gone")
	}
	return st.Engine
}

func (s *stick) run(b *testing.B) {
	for range 8 { // the engine takes over when the receivers have answered, and its ports are set up
		s.sendData(b)
		s.sendACKs(b)
		if err := s.box.Do(func() error { s.sw.Refresh(); return nil }); err != nil {
			b.Fatal(err)
		}
	}
	if e := s.engine(b); e.Kernel != s.kernel {
		b.Fatalf("the kernel engine has the group: %v, want %v: %s", e.Kernel, s.kernel, e.Reason)
	}
	carried := s.engine(b).Carried
	var data, answers time.Duration
	packets := 0
	for b.Loop() {
		before := s.spent(b)
		s.sendData(b)
		between := s.spent(b)
		s.sendACKs(b)
		data, answers, packets = data+between-before, answers+s.spent(b)-between, packets+s.batch
	}
	if e := s.engine(b); s.kernel && e.Carried-carried < uint64(packets)*9/10 {
		b.Errorf("the kernel engine carried %d of %d packets", e.Carried-carried, packets)
	}
	b.ReportMetric(float64(data.Nanoseconds())/float64(packets), "ns/packet")
	b.ReportMetric(float64(answers.Nanoseconds())/float64(packets/s.batch*len(s.acks)), "ns/answer")
	b.ReportMetric(0, "ns/op") // which has the hosts' time, too
}
