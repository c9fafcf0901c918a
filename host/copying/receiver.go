package copying

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Receiver receives one copy.
type Receiver struct {
	Inbox  Inbox
	Target *Target   // nil: Output is written
	Output io.Writer // gets what is standard input at the source
	// Dial connects to the source, and to other receivers.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Member reports whether a host is another member of the group: Dial gets no other address.
	// nil: the source is believed.
	Member func(netip.Addr) bool
	Host   string // as the source names this host
	// Peers hears other receivers. This one gives them what they lack, and gets from them what it
	// lacks itself, with Dial; nil: all comes from the source. Its host is the one from which Dial
	// connects: the source names no other one.
	Peers net.Listener
	// Events hears what happens; it is called from several goroutines, one at a time.
	Events func(Event)

	mu      sync.Mutex // guards what follows, except for the counters
	line    *line
	token   [16]byte
	pass    uint32
	batch   batch
	through uint64 // batches of this pass that are complete
	// complete: nothing of the last pass is lacking.
	complete bool
	done     map[[32]byte][]int // batches that were verified, and which files of each were left out
	givers   map[string]*given  // other receivers, by their addresses
	leftOut  int
	bytes    atomic.Int64
	files    atomic.Int64
	work     atomic.Int64
	broken   string // why the multicast has ended; empty: it has not

	errand  *errand     // nil: none
	stopped atomic.Bool // nobody waits for the errand any more

	ctx     context.Context // of Run
	end     context.CancelCauseFunc
	tasks   sync.WaitGroup
	piece   []byte // of a stream, while it is written
	syncing atomic.Bool
}

// batch is what is copied at the moment.
type batch struct {
	number  uint64
	heard   bool  // its list from the beginning
	listed  bool  // and to the end
	skipped bool  // it was verified before
	through bool  // it is complete
	come    int64 // bytes of the present file
	entries []Entry
	states  []state
	digest  hash.Hash
	claims  map[int]claim
	hasher  hash.Hash // of a stream

	promises map[int]promise
	fetched  []int         // from other receivers, and not counted yet
	ended    chan struct{} // closed when everything was sent once
	over     bool          // it is closed
}

// omitted are the files that were left out.
func (x *batch) omitted() (list []int) {
	for i, s := range x.states {
		if s == leftOut {
			list = append(list, i)
		}
	}
	return list
}

type state byte

const (
	waits state = iota
	verified
	leftOut
)

// Received is what a receiver has at the end.
type Received struct {
	Bytes, Files int64
	LeftOut      int // files that the source could not send as they were
}

// errEnd is the end of a copy that all is well with.
var errEnd = errors.New("end")

// ErrSourceGone says that the source did not reach its end.
var ErrSourceGone = errors.New("the source has gone before everything was sent; --resume goes on from here")

// reportEvery is how often a receiver says how far it has come.
const reportEvery = 500 * time.Millisecond

// Run receives everything, and returns when the source has nothing more to send.
func (r *Receiver) Run(ctx context.Context) (Received, error) {
	var saying sync.Mutex
	say := r.Events
	r.Events = func(e Event) {
		saying.Lock()
		defer saying.Unlock()
		if say != nil {
			say(e)
		}
	}
	r.done, r.givers = map[[32]byte][]int{}, map[string]*given{}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.ctx, r.end = ctx, cancel
	if r.Target != nil {
		work := r.Target.work
		r.Target.work = func(n int) error {
			if err := work(n); err != nil {
				return err
			}
			return r.goOn(n)
		}
	}
	r.tasks.Go(func() { r.multicast(ctx) })
	if r.Peers != nil {
		r.tasks.Go(func() { r.serve(ctx) })
		defer context.AfterFunc(ctx, func() { _ = r.Peers.Close() })()
	}
	<-ctx.Done()
	err := context.Cause(ctx)
	if errors.Is(err, errEnd) {
		err = nil
	}
	r.mu.Lock()
	l := r.line
	r.line = nil
	r.mu.Unlock()
	if l != nil {
		last := report{Done: true}
		if err != nil {
			last = report{Error: err.Error()}
		}
		_ = l.report(report{Progress: r.progress()}) // the source may have gone
		_ = l.report(last)
		_ = l.conn.Close()
	}
	r.tasks.Wait()
	return Received{Bytes: r.bytes.Load(), Files: r.files.Load(), LeftOut: r.leftOut}, err
}

// goOn counts work, and ends what takes long if nobody waits for it.
func (r *Receiver) goOn(n int) error {
	r.work.Add(int64(n))
	if r.stopped.Load() {
		return errStopped
	}
	return context.Cause(r.ctx)
}

func (r *Receiver) progress() *progress {
	return &progress{Bytes: r.bytes.Load(), Files: r.files.Load(), Work: r.work.Load()}
}

// multicast takes the messages of the group. If the group ends, the source may go on by the
// connection.
func (r *Receiver) multicast(ctx context.Context) {
	for {
		m, err := r.Inbox.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		connected := r.line != nil
		r.mu.Unlock()
		switch {
		case err != nil && connected:
			r.mu.Lock()
			r.broken = err.Error()
			r.mu.Unlock()
			return
		case err != nil:
			r.end(err)
			return
		}
		if !connected {
			if err := r.connect(ctx, m); err != nil {
				r.end(err)
				return
			}
		}
		if err := r.take(m); err != nil {
			r.end(err)
			return
		}
	}
}

// connect reports to the source whose message this is.
func (r *Receiver) connect(ctx context.Context, m []byte) error {
	var h header
	if _, err := h.decode(m); err != nil {
		return err
	}
	conn, err := r.dial(ctx, h.address)
	if err != nil {
		return fmt.Errorf("report to the source: %w", err)
	}
	l := &line{conn: conn}
	own := &hello{Token: hex.EncodeToString(h.token[:]), Host: r.Host}
	if r.Peers != nil {
		own.Shares = r.Peers.Addr().String()
	}
	if err := l.report(report{Hello: own}); err != nil {
		return err
	}
	r.mu.Lock()
	r.line, r.token = l, h.token
	r.mu.Unlock()
	r.Events(Event{Event: Joined, Host: h.address})
	r.tasks.Go(func() {
		err := l.messages(r.take)
		if err == io.EOF || errors.Is(err, net.ErrClosed) || isNet(err) {
			err = ErrSourceGone
			r.mu.Lock()
			if r.broken != "" {
				err = fmt.Errorf("%w (the group: %s)", err, r.broken)
			}
			r.mu.Unlock()
		}
		r.end(err)
	})
	r.tasks.Go(func() {
		every := time.NewTicker(reportEvery)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				_ = conn.SetReadDeadline(time.Now()) // ends messages
				return
			case <-every.C:
				if r.syncing.Load() {
					r.work.Add(1)
				}
				_ = l.report(report{Progress: r.progress()}) // the reader notices that it has gone
				r.Events(Event{Event: Progress, Bytes: r.bytes.Load(), Files: r.files.Load()})
			}
		}
	})
	return nil
}

func isNet(err error) bool {
	var n net.Error
	return errors.As(err, &n)
}

// take does what a message says. A message of an earlier pass, or of another copy, has come too
// late.
func (r *Receiver) take(m []byte) error {
	var h header
	rest, err := h.decode(m)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.line == nil || h.token != r.token || h.pass < r.pass {
			return nil
		}
		if r.errand == nil || h.pass == r.pass && len(rest) == 0 { // a greeting waits for others
			break
		}
		r.stop()
	}
	if h.pass > r.pass {
		if r.pass > 0 && r.Target != nil {
			if err := r.Target.pause(); err != nil {
				return err
			}
		}
		r.pass, r.through, r.batch, r.complete = h.pass, 0, batch{}, false
		r.bytes.Store(0)
		r.files.Store(0)
	}
	return records(rest, func(k kind, b []byte) error {
		if r.errand != nil { // a source waits for the answer
			return errForeign
		}
		return r.record(k, b)
	})
}

// errand is what a receiver does for long while the source waits for its answer. It is done without
// the lock, and messages are taken meanwhile: a receiver that takes none for 30 s breaks the group.
type errand struct{ ended chan struct{} }

// errStopped is the end of an errand for which nobody waits.
var errStopped = errors.New("stopped")

// aside begins an errand: do is called without the lock, and then with it. With a stream nothing
// takes long.
func (r *Receiver) aside(do, then func() error) error {
	if r.Target == nil {
		if err := do(); err != nil {
			return err
		}
		return then()
	}
	e := &errand{ended: make(chan struct{})}
	r.errand = e
	r.tasks.Go(func() {
		defer close(e.ended)
		err := do()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errand = nil
		switch {
		case r.stopped.Swap(false):
			r.batch = batch{} // it comes in a further pass
			return
		case r.line == nil: // all has ended
			return
		case err == nil:
			err = then()
		}
		if err != nil {
			r.end(err)
		}
	})
	return nil
}

// stop ends the errand, because the source goes on: with another pass, or without the answer of a
// receiver that came when the question was put.
func (r *Receiver) stop() {
	e := r.errand
	r.stopped.Store(true)
	r.mu.Unlock()
	<-e.ended
	r.mu.Lock()
}

func (r *Receiver) record(k kind, b []byte) error {
	r.work.Add(1) // a greeting has no record
	switch k {
	case kindBatch:
		r.batch = batch{heard: true, digest: sha256.New(), ended: make(chan struct{})}
		_, err := takeNumbers(b, &r.batch.number)
		return err
	case kindEntry:
		return r.entry(b)
	case kindListed:
		return r.listed(b)
	case kindData, kindHole, kindUpTo, kindGivers, kindFileEnd, kindLeftOut, kindAgain:
		if !r.batch.listed || r.batch.skipped {
			return nil
		}
		return r.fileRecord(k, b)
	case kindBatchEnd:
		var number uint64
		if _, err := takeNumbers(b, &number); err != nil {
			return err
		}
		return r.batchEnd(number)
	case kindPassEnd:
		var batches uint64
		if _, err := takeNumbers(b, &batches); err != nil {
			return err
		}
		r.complete = r.through == batches
		return r.report(report{Pass: &passed{Pass: r.pass, Complete: r.complete}})
	case kindEnd:
		if !r.complete { // the connection brings the reason
			return nil
		}
		if r.Target == nil {
			return errEnd
		}
		return r.sync(r.Target.sync())
	case kindRefused:
		return errors.New(string(b))
	}
	return nil
}

// sync waits until the disk has everything, and then the copy ends. Nothing can be said of how far
// the disk is.
func (r *Receiver) sync(wait func() error) error {
	return r.aside(func() error {
		r.syncing.Store(true)
		defer r.syncing.Store(false)
		_, err := unlessEnded(r.ctx, func() (int, error) { return 0, wait() })
		return err
	}, func() error { return errEnd })
}

// report fails only if the source has gone, which its reader notices.
func (r *Receiver) report(what report) error {
	_ = r.line.report(what)
	return nil
}

// maxEntries bounds what a receiver keeps of a list.
const maxEntries = 1 << 16

func (r *Receiver) entry(b []byte) error {
	if !r.batch.heard || r.batch.listed {
		return nil
	}
	if len(r.batch.entries) == maxEntries {
		return errForeign
	}
	var e Entry
	if err := e.decode(b); err != nil {
		return err
	}
	switch {
	case r.Target != nil && e.Kind == Stream:
		return errors.New("the source sends its standard input, which has no name: receive it with -")
	case r.Target == nil && e.Kind != Stream:
		return errors.New("the source sends files: name a directory for them instead of -")
	}
	r.batch.digest.Write(b)
	r.batch.entries = append(r.batch.entries, e)
	return nil
}

func (r *Receiver) listed(b []byte) error {
	x := &r.batch
	if !x.heard || x.listed || !bytes.Equal(x.digest.Sum(nil), b) {
		return nil // it came in the middle of the list
	}
	x.listed = true
	x.states = make([]state, len(x.entries))
	answer := &have{Pass: r.pass, Batch: x.number}
	var omitted []int
	if omitted, x.skipped = r.done[[32]byte(b)]; x.skipped {
		for i := range x.entries {
			if _, missing := slices.BinarySearch(omitted, i); missing {
				x.states[i] = leftOut
				continue
			}
			x.states[i] = verified
			r.count(&x.entries[i])
		}
		answer.All = true
		return r.report(report{Have: answer})
	}
	x.hasher = sha256.New()
	var claims map[int]claim
	return r.aside(func() (err error) {
		claims, err = r.claim(x.entries)
		return said(err)
	}, func() error {
		x.claims, answer.Files = claims, claims
		return r.report(report{Have: answer})
	})
}

// claim makes the directories of a batch, and reads what there is of its files.
func (r *Receiver) claim(entries []Entry) (map[int]claim, error) {
	claims := map[int]claim{}
	if r.Target != nil {
		clear(r.Target.touched)
	}
	next := upcoming{entries: entries, open: func(e *Entry) (*os.File, error) { return r.Target.openSame(e.Path) }}
	for i := range entries {
		e := &entries[i]
		if err := r.goOn(1); err != nil {
			return nil, err
		}
		if r.Target != nil && r.Target.use {
			next.announce(i, func(int) bool { return true })
		}
		switch e.Kind {
		case Directory:
			if err := r.Target.directory(e); err != nil {
				return nil, err
			}
		case File:
			c, err := r.Target.has(e)
			if err != nil {
				return nil, err
			}
			if c.Whole != nil || c.Units != nil {
				claims[i] = r.seal(c)
			}
		}
	}
	return claims, nil
}

// seal is a claim as the source gets it.
func (r *Receiver) seal(c claim) claim {
	if c.Whole != nil {
		c.Whole = sealed(r.token, c.Whole)
	}
	for i, unit := range c.Units {
		if len(unit) > 0 {
			c.Units[i] = sealed(r.token, unit)
		}
	}
	return c
}

// said is an error of the file system as a sentence.
func said(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return fmt.Errorf("%s %q: %w", verb(at.Op), at.Path, at.Err)
	}
	return err
}

func verb(op string) string {
	if len(op) > 2 && op[len(op)-2:] == "at" { // openat, mkdirat
		return op[:len(op)-2]
	}
	return op
}

func (r *Receiver) fileRecord(k kind, b []byte) error {
	x := &r.batch
	var number uint64
	rest, err := takeNumbers(b, &number)
	if err != nil {
		return err
	}
	if number >= uint64(len(x.entries)) {
		return errForeign
	}
	i := int(number)
	e := &x.entries[i]
	if k == kindLeftOut {
		return r.omit(i, string(rest))
	}
	if x.states[i] != waits {
		return nil
	}
	if e.Kind == Stream {
		return r.stream(k, rest)
	}
	if e.Kind != File {
		return errForeign
	}
	return said(r.file(k, i, rest))
}

func (r *Receiver) file(k kind, i int, rest []byte) error {
	x := &r.batch
	e := &x.entries[i]
	whole := x.claims[i].Whole
	var at, length uint64
	switch {
	case k == kindAgain:
		delete(x.claims, i)
		delete(x.promises, i)
		r.bytes.Add(-x.come)
		x.come = 0
		return r.Target.again(e)
	case whole != nil && k != kindFileEnd: // it waits for the SHA-256
		return nil
	case k == kindGivers:
		list, err := takeGivers(rest)
		if err == nil && r.Peers != nil {
			if x.promises == nil {
				x.promises = map[int]promise{}
			}
			x.promises[i] = promise{givers: list}
		}
		return err
	case k == kindFileEnd && x.promises[i].givers != nil && len(rest) != sha256.Size:
		return errForeign
	case k == kindFileEnd && x.promises[i].givers != nil:
		p := x.promises[i]
		p.sum = bytes.Clone(rest)
		x.promises[i] = p
		return nil
	case k == kindUpTo:
		if _, err := takeNumbers(rest, &at); err != nil {
			return err
		}
		return r.Target.upTo(e, int64(at))
	case k == kindData:
		rest, err := takeNumbers(rest, &at)
		if err != nil {
			return err
		}
		r.bytes.Add(int64(len(rest)))
		x.come += int64(len(rest))
		return r.Target.data(e, int64(at), rest)
	case k == kindHole:
		if _, err := takeNumbers(rest, &at, &length); err != nil {
			return err
		}
		return r.Target.hole(e, int64(at), int64(length))
	}
	r.bytes.Add(-x.come)
	x.come = 0
	ok, err := bytes.Equal(whole, sealed(r.token, rest)), error(nil)
	switch {
	case whole != nil && ok:
		ok, err = r.Target.keeps(e, x.claims[i].info)
	case whole == nil:
		ok, err = r.Target.complete(e, rest)
	}
	if err == nil && ok {
		x.states[i] = verified
		r.count(e)
	}
	return err
}

// count adds a file that is here, in whatever way it came.
func (r *Receiver) count(e *Entry) {
	if e.Kind == File {
		r.bytes.Add(e.Size)
		r.files.Add(1)
	}
}

const (
	// outputPatience is how long the standard output may take for a piece. It is shorter than the
	// time after which the group counts as broken, because a stream cannot go on by another way.
	outputPatience = 20 * time.Second
	pieceBytes     = 64 << 10 // of a stream: what a pipe holds
)

// write writes to the standard output. However slow its reader is, this receiver goes on reporting,
// and its user can end it.
func (r *Receiver) write(b []byte) error {
	if r.piece == nil {
		r.piece = make([]byte, pieceBytes)
	}
	for len(b) > 0 {
		n := copy(r.piece, b) // b goes when the membership ends, and a write may still be under way
		ctx, cancel := context.WithTimeoutCause(r.ctx, outputPatience, fmt.Errorf("it has not taken %d bytes within %v", n, outputPatience))
		_, err := unlessEnded(ctx, func() (int, error) { return r.Output.Write(r.piece[:n]) })
		cancel()
		if err != nil {
			return fmt.Errorf("write the standard output: %s", plain(err))
		}
		r.work.Add(1)
		b = b[n:]
	}
	return nil
}

// stream passes on what is standard input at the source.
func (r *Receiver) stream(k kind, rest []byte) error {
	x := &r.batch
	switch k {
	case kindData:
		rest, err := takeNumbers(rest, new(uint64))
		if err != nil {
			return err
		}
		x.hasher.Write(rest)
		r.bytes.Add(int64(len(rest)))
		return r.write(rest)
	case kindFileEnd:
		if !bytes.Equal(x.hasher.Sum(nil), rest) {
			return errors.New("what has come is not what the source has sent: its SHA-256 differs")
		}
		x.states[0] = verified
		r.files.Add(1)
	}
	return nil
}

// omit forgets a file that the source could not send as it was when it was listed.
func (r *Receiver) omit(i int, why string) error {
	x := &r.batch
	e := &x.entries[i]
	if x.states[i] == leftOut {
		return nil
	}
	x.states[i] = leftOut
	r.leftOut++
	r.Events(Event{Event: LeftOut, Path: e.Path, Reason: why})
	if e.Kind == Stream {
		return fmt.Errorf("the source could not read its standard input: %s", why)
	}
	return said(r.Target.again(e))
}

func (r *Receiver) batchEnd(number uint64) error {
	x := &r.batch
	if x.listed && x.number == number && !x.over {
		close(x.ended)
		x.over = true
	}
	if x.listed && x.number == number && len(x.promises) > 0 {
		return r.aside(func() error { return said(r.fetch(x)) }, func() error {
			for _, i := range x.fetched {
				x.states[i] = verified
				r.count(&x.entries[i])
			}
			x.promises, x.fetched = nil, nil
			return r.batchHere(number)
		})
	}
	return r.batchHere(number)
}

// batchHere answers the end of a batch of which nothing comes from other receivers any more.
func (r *Receiver) batchHere(number uint64) error {
	x := &r.batch
	answer := &lacks{Pass: r.pass, Batch: number, Refuses: r.refused()}
	answer.Alone = len(answer.Refuses) >= maxRefused
	switch {
	case !x.listed || x.number != number:
		answer.All = true
		return r.report(report{Lacks: answer})
	case x.through:
		return r.report(report{Lacks: answer})
	case x.skipped:
	default:
		for i := range x.entries {
			if k := x.entries[i].Kind; (k == File || k == Stream) && x.states[i] == waits {
				answer.Files = append(answer.Files, i)
			}
		}
		if answer.Files == nil {
			return r.aside(func() error { return said(r.finish(x)) }, func() error {
				r.done[[32]byte(x.digest.Sum(nil))] = x.omitted()
				return r.isThrough(answer)
			})
		}
	}
	if answer.Files == nil {
		return r.isThrough(answer)
	}
	return r.report(report{Lacks: answer})
}

func (r *Receiver) isThrough(answer *lacks) error {
	r.through++
	r.batch.through = true
	return r.report(report{Lacks: answer})
}

// finish does what comes when all files of a batch are here.
func (r *Receiver) finish(x *batch) error {
	for i := range x.entries {
		if x.entries[i].Kind == Stream {
			continue
		}
		if err := r.goOn(1); err != nil {
			return err
		}
		if err := r.Target.finish(&x.entries[i]); err != nil {
			return err
		}
	}
	return nil
}
