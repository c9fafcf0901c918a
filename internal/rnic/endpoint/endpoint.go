package endpoint

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// burst is how many request frames one queue pair sends before the other queue pairs and the frames
// that have arrived get their turn.
const burst = 64

// spin is how long run does not wait for a packet that is due soon: the kernel may wake a thread
// later than the time between two packets.
const spin = time.Millisecond

// ErrClosed says that the endpoint was closed, or that its interface has gone.
var ErrClosed = errors.New("endpoint: closed")

// Endpoint is one host: an interface, an IP address on it, memory, and queue pairs.
type Endpoint struct {
	ip     netip.Addr
	link   *net.Interface
	start  time.Time
	socket *socket
	sink   *sink
	routes *resolver
	done   chan struct{} // run has returned

	closing sync.Once

	mu       sync.Mutex // guards what follows, and the queue pairs
	mac      roce.MAC
	memory   rnic.Memory
	pairs    []*QP
	stray    rnic.Counters // of frames that are for no queue pair
	runError error
	wanted   chan int // run locks its thread and sends the thread's ID here; nil: nobody asks
}

// Open starts an endpoint on the named interface, which must carry ip, in the network namespace of
// the calling thread. It needs CAP_NET_RAW.
func Open(ifName string, ip netip.Addr) (*Endpoint, error) {
	e, err := open(ifName, ip)
	if err != nil {
		return nil, fmt.Errorf("open endpoint %s on %s: %w", ip, ifName, err)
	}
	go e.run()
	return e, nil
}

func open(ifName string, ip netip.Addr) (*Endpoint, error) {
	link, err := net.InterfaceByName(ifName)
	if err != nil {
		return nil, err
	}
	if len(link.HardwareAddr) != len(roce.MAC{}) {
		return nil, fmt.Errorf("%s has no Ethernet address", ifName)
	}
	e := &Endpoint{ip: ip, mac: roce.MAC(link.HardwareAddr), link: link, start: time.Now(), done: make(chan struct{})}
	if e.sink, err = openSink(ip); err == nil {
		e.routes, err = openResolver(link.Index)
	}
	if err == nil {
		e.socket, err = openSocket(link.Index, ip.Is6())
	}
	if err != nil {
		e.release()
		return nil, err
	}
	return e, nil
}

func (e *Endpoint) release() {
	if e.socket != nil {
		e.socket.close()
	}
	if e.routes != nil {
		e.routes.close()
	}
	if e.sink != nil {
		e.sink.close()
	}
}

// Close stops the endpoint. Outstanding work is forgotten: its buffers belong to the caller again.
func (e *Endpoint) Close() error {
	e.closing.Do(func() {
		e.socket.close()
		<-e.done
		e.release()
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(e.runError, ErrClosed) {
		return nil
	}
	return e.runError
}

// MAC returns the address of the interface.
func (e *Endpoint) MAC() roce.MAC {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mac
}

// SetMAC follows an interface that was given another MAC: its NIC takes no frames to the old one.
func (e *Endpoint) SetMAC(mac roce.MAC) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mac = mac
	for _, q := range e.pairs {
		q.core.SetMAC(mac)
	}
}

// IP returns the address of the endpoint.
func (e *Endpoint) IP() netip.Addr { return e.ip }

// Register lets the peers of all queue pairs write to a region. From now on its bytes may change at
// any time: look at them inside Freeze.
func (e *Endpoint) Register(r rnic.Region) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.memory.Register(r)
}

// Deregister forgets a region. When it returns, no peer writes to the region any more: requests
// that name it are refused, the rest of a message that has begun too.
func (e *Endpoint) Deregister(rkey uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory.Deregister(rkey)
}

// Freeze calls f while no frame is taken or sent, so that f may look at registered memory and
// posted buffers. f must not call the endpoint.
func (e *Endpoint) Freeze(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// Counters returns the sum over all queue pairs, and the frames that were refused because they were
// for none.
func (e *Endpoint) Counters() rnic.Counters {
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := e.stray
	for _, q := range e.pairs {
		sum.Add(q.core.Counters())
	}
	return sum
}

// Drops returns how many frames were lost between this program and the interface: they arrived
// while the buffer of the socket was full, or the kernel did not take them for sending. A transfer
// survives that, but a test that counts frames needs 0.
func (e *Endpoint) Drops() (received, sent uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.socket.drops()
}

// OwnThread gives the endpoint a thread to itself from now on, and returns its ID, so that its CPU
// time can be read: what the soft NIC costs, apart from the programs that use it.
func (e *Endpoint) OwnThread() (int, error) {
	wanted := make(chan int, 1)
	e.mu.Lock()
	e.wanted = wanted
	e.socket.wake()
	e.mu.Unlock()
	select {
	case id := <-wanted:
		return id, nil
	case <-e.done:
		return 0, ErrClosed
	}
}

// run moves frames until the endpoint is closed.
func (e *Endpoint) run() {
	defer close(e.done)
	for {
		frames, err := e.socket.receive()
		e.mu.Lock()
		if err != nil {
			e.runError = err
			e.mu.Unlock()
			return
		}
		if e.wanted != nil {
			runtime.LockOSThread()
			e.wanted <- unix.Gettid()
			e.wanted = nil
		}
		now := time.Since(e.start)
		for i := range frames {
			e.dispatch(now, e.socket.frame(i))
		}
		e.socket.wakeAt(e.service(now))
		e.mu.Unlock()
	}
}

// dispatch hands a frame to its queue pair. The frame and the answer live in the socket's buffers.
func (e *Endpoint) dispatch(now time.Duration, frame []byte) {
	var v roce.View
	if err := v.Decode(frame, len(frame)); err != nil {
		e.stray.Count[rnic.RejectReason(err)]++
		return
	}
	q := e.pair(v.DestQPN(frame))
	if q == nil {
		e.stray.Count[rnic.RejectQPN]++
		return
	}
	if reply := q.core.ReceiveDecoded(now, &v, frame, e.socket.buffer()); reply != nil {
		e.socket.send(len(reply))
	}
	if notification := q.core.Notify(e.socket.buffer()); notification != nil {
		e.socket.send(len(notification))
	}
}

// pair finds a queue pair. A host of the tests has few of them.
func (e *Endpoint) pair(n roce.QPN) *QP {
	for _, q := range e.pairs {
		if q.core.QPN() == n {
			return q
		}
	}
	return nil
}

// service gives every queue pair its turn. It returns when the next one is due, zero for never, and
// whether to wait at all.
func (e *Endpoint) service(now time.Duration) (next time.Time, wait bool) {
	deadline, busy := rnic.Never, false
	for _, q := range e.pairs {
		if q.core.NextDeadline() <= now {
			q.core.Tick(now)
		}
		busy = e.transmit(now, q) || busy || q.core.Paced(now+spin)
		deadline = min(deadline, q.core.NextDeadline())
		q.announce()
	}
	e.socket.flush()
	if busy {
		return time.Time{}, false
	}
	if deadline == rnic.Never {
		return time.Time{}, true
	}
	return e.start.Add(deadline), true
}

// transmit sends at most one burst, and reports whether there may be more to send.
func (e *Endpoint) transmit(now time.Duration, q *QP) (more bool) {
	for range burst {
		frame := q.core.Transmit(now, e.socket.buffer())
		if frame == nil {
			return false
		}
		e.socket.send(len(frame))
	}
	return true
}
