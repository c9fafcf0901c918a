package replicate

import (
	"context"
	"net/netip"

	"github.com/rocast/rocast/roce"
)

// Device is an RDMA device of a host. A program makes it of its verbs library.
type Device interface {
	IP() netip.Addr
	// Open makes an RC queue pair in the state INIT.
	Open(Settings) (QueuePair, error)
}

// Settings are those of a queue pair.
type Settings struct {
	QPN     roce.QPN
	PSN     roce.PSN // of the first packet that it sends
	MTU     int      // path MTU, bytes
	Retries uint8    // after timeouts of 67 ms; 7: for ever
	Depth   int      // receives that may be posted
}

// Peer is what a queue pair has to know of the other end.
type Peer struct {
	IP  netip.Addr
	QPN roce.QPN
	PSN roce.PSN // of the first packet that comes from there
}

// QueuePair is an RC queue pair. Its methods may be called from any goroutine.
type QueuePair interface {
	Connect(ctx context.Context, to Peer) error // to the state RTS
	State() string
	Send(ctx context.Context, text []byte) error // returns when the peer has acknowledged it
	Post(id uint64, buffer []byte) error         // a receive
	// Receive returns a receive that is complete, and how many bytes it has. It returns an error
	// when the queue pair is destroyed and empty.
	Receive(ctx context.Context) (id uint64, bytes int, err error)
	Destroy()
}
