package hosts

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/dataplane/xsk"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

// ringDescs is the size of a NIC's rings: the whole window, in frames of two descriptors.
const ringDescs = 2 * Window

// completionDescs is more than the number of frames that can be on their way into the box: the
// kernel sends nothing while the ring has no room for completions.
const completionDescs = 4 * ringDescs

// sendBuffer is large enough for all unacknowledged packets of the source. The kernel charges a
// frame to the socket until the other end of the veth pair has taken it, and its default is less
// than a window.
const sendBuffer = 16 << 20

// nic is one host's interface: an XDP program, and an AF_XDP socket on each queue for the frames
// that the program hands up and for the frames that the host sends.
type nic struct {
	objects responderObjects
	link    link.Link
	sockets []*xsk.Socket
	// Memory of the maps that the program writes.
	flows, queues *ebpf.Memory
}

// openSource opens the interface of the source.
func openSource(u *xsk.UMEM, end netns.Link, queues int, multiBuffer bool) (*nic, error) {
	return openNIC(u, end, queues, multiBuffer, nil)
}

// openReceiver opens the interface of receiver r. Its flows expect copies of a forwarder with this
// rewriting.
func openReceiver(u *xsk.UMEM, end netns.Link, queues int, multiBuffer bool, w *workload.Workload, level workload.Rewriting, r int) (*nic, error) {
	first := make([]uint32, w.Groups)
	for g := range first {
		first[g] = uint32(level.FirstPSN(g, r))
	}
	return openNIC(u, end, queues, multiBuffer, &responder{firstQPN: level.FirstQPN(r), firstPSNs: first})
}

type responder struct {
	firstQPN  roce.QPN
	firstPSNs []uint32
}

func openNIC(u *xsk.UMEM, end netns.Link, queues int, multiBuffer bool, as *responder) (*nic, error) {
	n := &nic{}
	err := n.load(as)
	if err == nil {
		err = end.NS.Do(func() error { return n.attach(u, end, queues, multiBuffer, as != nil) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", end.Name, err), n.close())
	}
	return n, nil
}

func (n *nic) load(as *responder) error {
	spec, err := loadResponder()
	if err != nil {
		return err
	}
	if as != nil {
		spec.Maps[responderMapFlows].MaxEntries = uint32(len(as.firstPSNs))
		if err := errors.Join(
			spec.Variables[responderVarFirstQpn].Set(uint32(as.firstQPN)),
			spec.Variables[responderVarFlowCount].Set(uint32(len(as.firstPSNs)))); err != nil {
			return err
		}
	}
	if err := spec.LoadAndAssign(&n.objects, nil); err != nil {
		return err
	}
	if n.flows, err = n.objects.Flows.Memory(); err != nil {
		return err
	}
	if n.queues, err = n.objects.Queues.Memory(); err != nil {
		return err
	}
	if as == nil {
		return nil
	}
	for g, psn := range as.firstPSNs {
		if _, err := n.flows.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(psn)), int64(g)*flowBytes); err != nil {
			return err
		}
	}
	return nil
}

// attach runs in the host's namespace.
func (n *nic) attach(u *xsk.UMEM, end netns.Link, queues int, multiBuffer, receiver bool) error {
	for q := range queues {
		s, err := xsk.Open(u, end.Index, uint32(q), xsk.SocketConfig{
			Mode: xsk.ModeCopy, MultiBuffer: multiBuffer,
			RxDescs: ringDescs, TxDescs: ringDescs, FillDescs: ringDescs, CompletionDescs: completionDescs,
		})
		if err != nil {
			return err
		}
		n.sockets = append(n.sockets, s)
		if err := unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer); err != nil {
			return fmt.Errorf("raise the send buffer: %w", err)
		}
		if err := n.objects.Sockets.Put(uint32(q), uint32(s.FD())); err != nil {
			return err
		}
	}
	program := n.objects.Listen
	if receiver {
		program = n.objects.Respond
	}
	var err error
	n.link, err = end.AttachXDP(program, link.XDPDriverMode)
	return err
}

// Sizes of struct flow and struct seen in responder.c.
const (
	flowBytes = 8
	seenBytes = 40
)

// expected returns the PSN that the responder's flow waits for.
func (n *nic) expected(flow int) roce.PSN {
	var b [4]byte
	if _, err := n.flows.ReadAt(b[:], int64(flow)*flowBytes); err != nil {
		panic("hosts: " + err.Error()) // the index comes from the responder, which checks it
	}
	return roce.PSN(binary.NativeEndian.Uint32(b[:]))
}

// seen returns the responder's counters, summed over all queues. Any goroutine may call it.
func (n *nic) seen() (sum responderSeen) {
	for q := range n.sockets {
		var b [seenBytes]byte
		if _, err := n.queues.ReadAt(b[:], int64(q)*seenBytes); err != nil {
			panic("hosts: " + err.Error())
		}
		word := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
		sum.Taken += word(0)
		sum.Repeated += word(1)
		sum.Beyond += word(2)
		sum.Strange += word(3)
		sum.Arrived = max(sum.Arrived, word(4))
	}
	return sum
}

// Modes of the responder: see responder.c.
const (
	modeAllUp = 1 << iota
	modeStamp
)

func (n *nic) setMode(mode uint32) error { return n.objects.Mode.Set(mode) }

func (n *nic) close() error {
	var errs []error
	if n.link != nil {
		errs = append(errs, n.link.Close())
	}
	for _, s := range n.sockets {
		errs = append(errs, s.Close())
	}
	if n.objects.Flows != nil {
		errs = append(errs, n.objects.Close())
	}
	return errors.Join(errs...)
}
