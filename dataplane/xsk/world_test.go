package xsk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// world is a switch whose ports are AF_XDP sockets over one UMEM. At the far end of each port's
// veth is a host that sends and receives raw frames.
//
//	switch namespace                        hosts namespace
//	  UMEM - socket - p0 =================== h0 - packet socket
//	       - socket - p1 =================== h1 - packet socket

const patience = testlab.Patience

type world struct {
	t    testing.TB
	umem *UMEM
	sw   *netns.NS
	host *netns.NS
	held int // chunks the test holds: what the conservation check at the end expects
}

type port struct {
	*Socket
	link netns.Link // the socket's end
	far  netns.Link
	host *host
}

func newWorld(t testing.TB, chunks int) *world {
	t.Helper()
	w := &world{t: t, sw: netns.New(t), host: netns.New(t), umem: newUMEM(t, chunks)}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		checkConserved(t, w.umem, w.held) // after the ports are closed: nothing is anywhere else
		if c := w.umem.Census(); c.Free+c.Held != c.Total {
			t.Errorf("chunks remain with closed sockets: %+v", c)
		}
	})
	return w
}

// checkConserved ends every scenario. It checks that no chunk is lost, and that the worker holds as
// many as it counted.
func checkConserved(t testing.TB, u *UMEM, held int) {
	t.Helper()
	if err := u.Audit(); err != nil {
		t.Error(err)
	}
	if c := u.Census(); c.Held != held {
		t.Errorf("the worker holds %d chunks, it should hold %d: %+v", c.Held, held, c)
	}
}

type portOptions struct {
	SocketConfig
	mtu     int
	queue   uint32
	queues  int
	program func(xsks *ebpf.Map) *ebpf.ProgramSpec // nil: redirect
}

// port makes a veth pair, a socket on its near end and, unless the socket only transmits, a program
// that redirects.
func (w *world) port(name string, o portOptions) *port {
	w.t.Helper()
	near, far := netns.Veth(w.t, w.sw, "p"+name, w.host, "h"+name, netns.VethOptions{MTU: o.mtu, Queues: o.queues})
	p := &port{link: near, far: far, host: newHost(w.t, far)}
	p.Socket = w.open(near, o.queue, o.SocketConfig)
	if !o.TxOnly {
		w.attach(near, o, map[uint32]*Socket{o.queue: p.Socket})
	}
	return p
}

func (w *world) tryOpen(on netns.Link, queue uint32, config SocketConfig) (s *Socket, err error) {
	err = on.NS.Do(func() (err error) { s, err = Open(w.umem, on.Index, queue, config); return err })
	return s, err
}

func (w *world) open(on netns.Link, queue uint32, config SocketConfig) *Socket {
	w.t.Helper()
	s, err := w.tryOpen(on, queue, config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

// attach puts a program on the device that sends each queue's frames to its socket.
func (w *world) attach(on netns.Link, o portOptions, sockets map[uint32]*Socket) {
	w.t.Helper()
	xsks, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 16})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { xsks.Close() })
	for queue, s := range sockets {
		if err := xsks.Put(queue, uint32(s.FD())); err != nil {
			w.t.Fatal(err)
		}
	}
	spec := redirect(xsks)
	if o.program != nil {
		spec = o.program(xsks)
	}
	if o.MultiBuffer {
		spec.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { program.Close() })
	flags := link.XDPDriverMode
	if o.Mode == ModeGeneric {
		flags = link.XDPGenericMode
	}
	attached, err := on.AttachXDP(program, flags)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { attached.Close() })
}

// redirect is bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS).
func redirect(xsks *ebpf.Map) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: redirectTail(xsks, asm.R1)}
}

func redirectTail(xsks *ebpf.Map, ctx asm.Register) asm.Instructions {
	const rxQueueIndex, xdpPass = 16, 2
	return asm.Instructions{
		asm.LoadMem(asm.R2, ctx, rxQueueIndex, asm.Word),
		asm.LoadMapPtr(asm.R1, xsks.FD()),
		asm.Mov.Imm(asm.R3, xdpPass),
		asm.FnRedirectMap.Call(),
		asm.Return(),
	}
}

// redirectWithMetadata writes 16 bytes of metadata, all 0xA5, in front of the frame before it
// redirects.
func redirectWithMetadata(xsks *ebpf.Map) *ebpf.ProgramSpec {
	const data, dataMeta = 0, 8
	head := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R2, -metadataBytes),
		asm.FnXdpAdjustMeta.Call(),
		asm.LoadMem(asm.R2, asm.R6, dataMeta, asm.Word),
		asm.LoadMem(asm.R3, asm.R6, data, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, metadataBytes),
		asm.JGT.Reg(asm.R4, asm.R3, "redirect"), // no room for metadata: the verifier wants this
		asm.LoadImm(asm.R5, -0x5A5A5A5A5A5A5A5B, asm.DWord),
		asm.StoreMem(asm.R2, 0, asm.R5, asm.DWord),
		asm.StoreMem(asm.R2, 8, asm.R5, asm.DWord),
	}
	tail := redirectTail(xsks, asm.R6)
	tail[0] = tail[0].WithSymbol("redirect")
	return &ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: append(head, tail...)}
}

const metadataBytes = 16

// host is the far end of a port: a packet socket that sees every frame but its own.
type host struct {
	t  testing.TB
	fd int
}

func newHost(t testing.TB, on netns.Link) *host {
	t.Helper()
	h := &host{t: t, fd: -1}
	err := on.NS.Do(func() (err error) {
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if h.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		limit := unix.NsecToTimeval(int64(patience))
		return errors.Join(
			unix.SetsockoptInt(h.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(h.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.SetsockoptTimeval(h.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
			unix.Bind(h.fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: on.Index}))
	})
	t.Cleanup(func() { unix.Close(h.fd) })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) send(frames ...[]byte) {
	h.t.Helper()
	for _, frame := range frames {
		if _, err := unix.Write(h.fd, frame); err != nil {
			h.t.Fatalf("host sends %d bytes: %v", len(frame), err)
		}
	}
}

// receive waits for one frame.
func (h *host) receive() []byte {
	h.t.Helper()
	frame := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(h.fd, frame, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			h.t.Fatalf("host receives nothing: %v", err)
		}
		return frame[:n]
	}
}

// waits reports whether a frame waits to be received.
func (h *host) waits() bool {
	_, _, err := unix.Recvfrom(h.fd, make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return err == nil
}

func (h *host) expect(frames ...[]byte) {
	h.t.Helper()
	for i, want := range frames {
		if got := h.receive(); !bytes.Equal(got, want) {
			h.t.Fatalf("frame %d of %d: host received %d bytes %x, want %d bytes %x",
				i, len(frames), len(got), head(got), len(want), head(want))
		}
	}
}

func head(frame []byte) []byte { return frame[:min(len(frame), 32)] }

// frame makes an Ethernet frame; no part of it is equal to a part of another one. EtherType 0x88B5
// is for experiments.
func frame(number, frameBytes int) []byte {
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5}
	for i := 0; len(f) < frameBytes; i++ {
		f = binary.BigEndian.AppendUint32(f, uint32(number)<<16|uint32(i))
	}
	return f[:frameBytes]
}

func framesOf(count, frameBytes int) [][]byte {
	frames := make([][]byte, count)
	for i := range frames {
		frames[i] = frame(i, frameBytes)
	}
	return frames
}

// receive waits until exactly want descriptors have arrived.
func (w *world) receive(s *Socket, want int) []Desc {
	w.t.Helper()
	var descs []Desc
	var batch [64]Desc
	w.eventually(fmt.Sprintf("%d descriptors at %v", want, s), func() bool {
		descs = append(descs, batch[:s.Receive(batch[:])]...)
		return len(descs) >= want
	})
	if len(descs) != want {
		w.t.Fatalf("received %d descriptors, want %d", len(descs), want)
	}
	w.held += want
	return descs
}

// recycle gives chunks back to a socket, and shows them to the kernel.
func (w *world) recycle(s *Socket, descs []Desc) {
	w.recycleUnseen(s, descs)
	s.TopUp()
}

func (w *world) recycleUnseen(s *Socket, descs []Desc) {
	for _, d := range descs {
		s.Recycle(d.Addr)
	}
	w.held -= len(descs)
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	testlab.Eventually(w.t, patience, what, done, nil)
}

// load puts frames into chunks that the test holds, each in as many descriptors as it needs.
func (w *world) load(frames ...[]byte) []Desc {
	w.t.Helper()
	var descs []Desc
	for _, f := range frames {
		for len(f) > 0 {
			var addr [1]uint64
			if w.umem.Alloc(addr[:]) != 1 {
				w.t.Fatal("no free chunk")
			}
			w.held++
			d := Desc{Addr: addr[0] + HeadroomBytes, Len: uint32(min(len(f), FrameBytes))}
			copy(w.umem.Bytes(d.Addr, d.Len), f)
			f = f[d.Len:]
			if len(f) > 0 {
				d.Options = unix.XDP_PKT_CONTD
			}
			descs = append(descs, d)
		}
	}
	return descs
}

func (w *world) free(descs []Desc) {
	for _, d := range descs {
		w.umem.Free([]uint64{d.Addr})
	}
	w.held -= len(descs)
}

// frames returns the frames that received descriptors describe.
func (w *world) frames(descs []Desc) (frames [][]byte) {
	for len(descs) > 0 {
		var f []byte
		n := FrameDescs(descs)
		for _, d := range descs[:n] {
			f = append(f, w.umem.Bytes(d.Addr, d.Len)...)
		}
		frames, descs = append(frames, f), descs[n:]
	}
	return frames
}

func (w *world) expect(descs []Desc, want [][]byte) {
	w.t.Helper()
	got := w.frames(descs)
	if len(got) != len(want) {
		w.t.Fatalf("received %d frames, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			w.t.Fatalf("frame %d: received %d bytes %x, want %d bytes %x",
				i, len(got[i]), head(got[i]), len(want[i]), head(want[i]))
		}
	}
}

// send transmits all descriptors and fails unless the kernel consumes them.
func (w *world) send(s *Socket, descs []Desc) {
	w.t.Helper()
	if n := s.Transmit(descs); n != len(descs) {
		w.t.Fatalf("transmitted %d of %d descriptors", n, len(descs))
	}
	if withdrawn, err := s.Flush(patience); withdrawn != 0 || err != nil {
		w.t.Fatalf("flush: %d frames withdrawn, %v", withdrawn, err)
	}
}

func (w *world) stats(s *Socket) Stats {
	w.t.Helper()
	stats, err := s.Stats()
	if err != nil {
		w.t.Fatal(err)
	}
	return stats
}
