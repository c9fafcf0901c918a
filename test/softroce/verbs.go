package softroce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
)

// QPOptions says how a queue pair is made. The zero value is good for most stories.
type QPOptions struct {
	Addr        netip.Addr // invalid: the guest's IPv4 address
	PSN         roce.PSN   // the first that it sends
	RegionBytes int        // 0: 2 MiB
	VA          uint64     // address of the region; 0: the kernel chooses
	Spare       int        // QPs and MRs made before, so that QPNs and R_Keys of guests differ
}

// Local is what a peer, or the box, has to know about a queue pair.
type Local struct {
	QPN         roce.QPN   `json:"qpn"`
	PSN         roce.PSN   `json:"psn"`
	RKey        uint32     `json:"rkey"`
	VA          uint64     `json:"va"`
	RegionBytes int        `json:"bytes"`
	Addr        netip.Addr `json:"gid"`
}

// ConnectOptions are the attributes of the connection, in the units of ibv_qp_attr.
type ConnectOptions struct {
	MTU      int // bytes
	Timeout  int // 4.096 us * 2^Timeout
	Retry    int // 7: for ever, with rxe
	RNRRetry int // 7: for ever
	RNRTimer int
}

// DefaultConnect is what perftest uses, with path MTU 1024.
func DefaultConnect() ConnectOptions {
	return ConnectOptions{MTU: 1024, Timeout: 14, Retry: 7, RNRRetry: 7, RNRTimer: 12}
}

// QP is a queue pair in a guest. A process of the program in verbs/ holds it. Commands may be given
// while a transfer runs. One goroutine at a time may use a QP.
type QP struct {
	Local

	guest   *Guest
	process *control.Process
	events  *eventLog
}

// OpenQP starts the program and brings its queue pair to INIT.
func (g *Guest) OpenQP(ctx context.Context, o QPOptions) (*QP, error) {
	if !o.Addr.IsValid() {
		o.Addr = g.Addr
	}
	args := []string{image.VerbsProgram, "ip=" + o.Addr.String(), fmt.Sprintf("psn=%d", o.PSN),
		fmt.Sprintf("spare=%d", o.Spare), fmt.Sprintf("va=%d", o.VA)}
	if o.RegionBytes != 0 {
		args = append(args, fmt.Sprintf("bytes=%d", o.RegionBytes))
	}
	process, err := g.Start(args...)
	if err != nil {
		return nil, err
	}
	q := &QP{guest: g, process: process, events: newEventLog()}
	go q.collect()
	local, err := q.answer(ctx, "local")
	if err != nil {
		return nil, err
	}
	q.Local = local.Local
	q.Addr = q.Addr.Unmap()
	return q, nil
}

// collect stores the events of the program. It returns when the process ends.
func (q *QP) collect() {
	defer q.events.end()
	for {
		line, err := q.process.Stdout.ReadLine(context.Background())
		if err != nil {
			return
		}
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			e = Event{Kind: "error", Message: fmt.Sprintf("unreadable line %q: %v", line, err)}
		}
		q.events.add(e)
	}
}

// Connect brings the queue pair to RTS, with peer as its remote side. For a group the peer is the
// address and the QPN of the group.
func (q *QP) Connect(ctx context.Context, peer Local, o ConnectOptions) error {
	_, err := q.ask(ctx, "state", "connect ip=%s qpn=%d psn=%d mtu=%d timeout=%d retry=%d rnr_retry=%d rnr_timer=%d",
		peer.Addr, peer.QPN, peer.PSN, o.MTU, o.Timeout, o.Retry, o.RNRRetry, o.RNRTimer)
	return err
}

// Fill fills the region with random bytes. The same seed gives the same bytes.
func (q *QP) Fill(ctx context.Context, seed uint64) error {
	_, err := q.ask(ctx, "filled", "fill seed=%d", seed)
	return err
}

// Hash is the SHA-256 of the first bytes of the region, in hexadecimal.
func (q *QP) Hash(ctx context.Context, bytes int) (string, error) {
	e, err := q.ask(ctx, "hash", "hash bytes=%d", bytes)
	return e.SHA256, err
}

// Fence takes the peer's access to the region away: by "key", the region gets another one, or by
// "qp".
func (q *QP) Fence(ctx context.Context, by string) error {
	_, err := q.ask(ctx, "fenced", "fence by=%s", by)
	return err
}

// State is the state of the queue pair, such as "RTS" or "ERR".
func (q *QP) State(ctx context.Context) (string, error) {
	e, err := q.ask(ctx, "state", "state")
	return e.State, err
}

// PostReceives posts count work requests, each for a message of at most bytes. They use slots of
// this size side by side in the region. A call with the same size continues behind the slots of the
// last call.
func (q *QP) PostReceives(ctx context.Context, count, bytes int) error {
	_, err := q.ask(ctx, "posted", "recv count=%d bytes=%d", count, bytes)
	return err
}

// Transfer is a number of messages of one kind. Message i uses slot i of both regions. A slot is as
// large as a message. After the last slot the first slot is used again.
type Transfer struct {
	Op    string  // "write", "send", "read" or "fetch_add"
	Peer  Local   // its VA and RKey are used, except for "send"
	Bytes int     // of each message
	Count int     // of messages
	Depth int     // how many messages may be outstanding; 0: 1
	Imm   *uint32 // nil: WRITE or SEND without immediate
	Last  string  // Op of the last message; "": as the others
}

// Result is how a transfer ended.
type Result struct {
	Count, OK int // completed messages; completed with success
	Status    string
	Duration  time.Duration
}

// Success is the Status of a transfer or of a completion without an error.
const Success = "success"

// StartTransfer posts the first messages and returns. The program posts the other messages.
func (q *QP) StartTransfer(t Transfer) error {
	line := fmt.Sprintf("%s va=%d rkey=%d bytes=%d count=%d depth=%d", t.Op, t.Peer.VA, t.Peer.RKey, t.Bytes, t.Count,
		max(t.Depth, 1))
	if t.Imm != nil {
		line += fmt.Sprintf(" imm=%d", *t.Imm)
	}
	if t.Last != "" {
		line += " last=" + t.Last
	}
	return q.send(line)
}

// AwaitTransfer waits for the end of the transfer that was started.
func (q *QP) AwaitTransfer(ctx context.Context) (Result, error) {
	e, err := q.answer(ctx, "done")
	return Result{e.Count, e.OK, e.Status, time.Duration(e.Microseconds) * time.Microsecond}, err
}

// Transfer runs a transfer to its end. A failed message is in the result. It is not an error.
func (q *QP) Transfer(ctx context.Context, t Transfer) (Result, error) {
	if err := q.StartTransfer(t); err != nil {
		return Result{}, err
	}
	return q.AwaitTransfer(ctx)
}

// AwaitReceives waits until n receive work requests have completed since the start, and returns
// their completions.
func (q *QP) AwaitReceives(ctx context.Context, n int) ([]Event, error) {
	received, err := q.events.await(ctx, func(e Event) bool { return e.Kind == "completion" && e.Queue == "recv" }, n)
	if err != nil {
		err = fmt.Errorf("guest %d: %d of %d messages received: %w", q.guest.Number, len(received), n, err)
	}
	return received, err
}

// Close ends the program, and with it the queue pair.
func (q *QP) Close(ctx context.Context) error {
	if err := q.send("quit"); err != nil {
		return err
	}
	_, err := q.process.Wait(ctx)
	return err
}

func (q *QP) send(line string) error {
	_, err := fmt.Fprintln(q.process, line)
	return err
}

func (q *QP) ask(ctx context.Context, kind, format string, args ...any) (Event, error) {
	if err := q.send(fmt.Sprintf(format, args...)); err != nil {
		return Event{}, err
	}
	return q.answer(ctx, kind)
}

// answer returns the next event of a kind. If the program reports an error first, answer returns
// this error.
func (q *QP) answer(ctx context.Context, kind string) (Event, error) {
	e, err := q.events.next(ctx, kind, "error")
	switch {
	case err == nil && e.Kind == "error":
		err = errors.New(e.Message)
	case errors.Is(err, errEnded):
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(q.process.Stderr.String()))
	}
	if err != nil {
		err = fmt.Errorf("guest %d: await %s: %w", q.guest.Number, kind, err)
	}
	return e, err
}
