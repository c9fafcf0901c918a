package copying

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Source sends one copy.
type Source struct {
	Sender    Sender
	Listener  net.Listener // hears the receivers
	Address   string       // of the listener, as receivers dial it
	Receivers int          // that are waited for at the beginning
	Paths     []string     // files and directories
	Input     io.Reader    // instead of Paths: what is sent as one stream
	// Patience is how long to wait for the receivers at the beginning, and for one that has work to
	// do and does not get on.
	Patience time.Duration
	Rate     int64       // most bytes a second on the source's link; 0: as fast as it goes
	Events   func(Event) // hears what happens, one call at a time

	header  header
	peers   *peers
	out     packer
	total   atomic.Int64
	batches uint64
	leftOut map[string]string
	greeted time.Time
	buffer  []byte // for hashing what is not sent
	unsent  int64  // bytes that were hashed and not sent since the last kindUpTo
	single  bool   // the messages go by the connections
	streams bool   // the stream has begun, and cannot begin once more
}

// Sent is how a copy has ended at its source.
type Sent struct {
	Bytes    int64             // that the receivers have, if they have everything
	Complete []string          // receivers that have everything
	Gone     map[string]string // receivers that may not, and why
	LeftOut  map[string]string // files that nobody has got, and why
}

// maxPasses bounds how often the files are read: one more for each receiver that comes late, and
// for each change of the way.
const maxPasses = 16

// Run sends everything, and returns when each receiver has it or takes no part any more.
func (s *Source) Run(ctx context.Context) (result Sent, err error) {
	if s.Events == nil {
		s.Events = func(Event) {}
	}
	s.leftOut = map[string]string{}
	s.header.address = s.Address
	if _, err := rand.Read(s.header.token[:]); err != nil {
		return Sent{}, err
	}
	if s.Input == nil {
		if err := s.measure(); err != nil {
			return Sent{}, err
		}
	}
	s.peers = newPeers(hex.EncodeToString(s.header.token[:]), s.Patience, s.Events)
	ctx, cancel := context.WithCancelCause(ctx)
	hearing := make(chan struct{})
	go func() { defer close(hearing); s.peers.listen(ctx, s.Listener) }()
	watching := make(chan struct{})
	go func() { defer close(watching); s.watch(ctx, cancel) }()
	defer func() {
		cancel(nil)
		_ = s.Listener.Close()
		s.peers.close()
		<-hearing
		<-watching
	}()
	s.sendBy(s.Sender, func() int { return 1 })
	if err := s.copy(ctx); err != nil {
		return s.result(), err
	}
	result = s.result()
	if len(result.Gone) == 0 && len(result.LeftOut) == 0 {
		s.peers.event(Event{Event: Done, Bytes: result.Bytes, Total: s.total.Load(), Files: int64(len(result.Complete))})
	}
	return result, nil
}

func (s *Source) result() Sent {
	complete, gone := s.peers.outcome()
	if n := s.Receivers - len(complete) - len(gone); n > 0 {
		gone[s.missing(n)] = s.silent()
	}
	return Sent{Bytes: s.total.Load(), Complete: complete, Gone: gone, LeftOut: s.leftOut}
}

// measure finds out how much there is, so that the time that is left can be said.
func (s *Source) measure() error {
	return walk(s.Paths, func(e *Entry) error {
		if e.Kind == File {
			s.total.Add(e.Size)
		}
		return nil
	}, func(string, string) {})
}

// watch reports the progress, and ends the copy when nobody is left: a Sender might wait for ever.
func (s *Source) watch(ctx context.Context, end context.CancelCauseFunc) {
	every := time.NewTicker(reportEvery)
	defer every.Stop()
	begin := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if s.peers.deserted() {
			end(errNobody)
		}
		least, who, any := s.peers.slowest()
		if least == 0 {
			begin = time.Now()
		}
		if !any {
			continue
		}
		e := Event{Event: Progress, Bytes: least, Total: s.total.Load(), Slowest: who}
		e.Rate = float64(least) / max(reportEvery, time.Since(begin)).Seconds()
		if e.Rate > 0 {
			e.Left = max(0, float64(e.Total-least)/e.Rate)
		}
		s.peers.event(e)
	}
}

func (s *Source) copy(ctx context.Context) error {
	if err := s.gather(ctx); err != nil {
		return err
	}
	for s.header.pass = 1; ; s.header.pass++ {
		err := s.passOnce(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var way *wayError
		switch {
		case errors.As(err, &way):
			if err := s.fallBack(way); err != nil {
				return err
			}
		case err != nil:
			return err
		case s.peers.allComplete():
			return s.end(ctx)
		case s.streams:
			s.peers.refuse(s.header, "the source sends its standard input, and it has sent the beginning without this receiver")
			return s.end(ctx)
		}
		if s.header.pass == maxPasses {
			return fmt.Errorf("some receivers do not have everything after %d passes", maxPasses)
		}
	}
}

// gather waits for the receivers. Each learns from a message where to report.
func (s *Source) gather(ctx context.Context) error {
	end := time.Now().Add(s.Patience)
	for {
		n := s.peers.count()
		if n >= s.Receivers {
			return nil
		}
		if time.Now().After(end) && n == 0 {
			return fmt.Errorf("no receiver has reported to %s within %v: can they connect to it?", s.Address, s.Patience)
		}
		if time.Now().After(end) {
			s.peers.event(Event{Event: Gone, Host: s.missing(s.Receivers - n), Reason: s.silent()})
			return nil
		}
		if err := s.greet(ctx); err != nil {
			return err
		}
		if err := s.peers.wait(ctx, greetEvery); err != nil {
			return err
		}
	}
}

// missing and silent are the name and the reason of receivers that nobody knows.
func (s *Source) missing(n int) string { return fmt.Sprintf("%d of %d receivers", n, s.Receivers) }

func (s *Source) silent() string {
	return fmt.Sprintf("not reported to %s within %v", s.Address, s.Patience)
}

// greetEvery is how often a source that waits sends a message without records.
const greetEvery = 200 * time.Millisecond

// greet brings the receivers a message. However much they report, it is no more often.
func (s *Source) greet(ctx context.Context) error {
	if time.Since(s.greeted) < greetEvery {
		return nil
	}
	s.greeted = time.Now()
	return s.out.flush(ctx)
}

var errNobody = errors.New("no receiver is left")

// wayError says that the way of the messages has ended.
type wayError struct{ error }

// fallBack goes on by the connections of the receivers that are left.
func (s *Source) fallBack(why *wayError) error {
	switch {
	case s.single:
		return why.error
	case s.streams:
		return fmt.Errorf("%w; what was read of the standard input cannot be read again", why.error)
	}
	s.single = true
	s.peers.event(Event{Event: Way, Reason: "single connections, because the group does not work: " + why.Error()})
	s.sendBy(newFanOut(s.peers), s.peers.count)
	return nil
}

// sendBy sends messages from now on by a Sender that puts so many copies on the link.
func (s *Source) sendBy(sender Sender, copies func() int) {
	if s.Rate > 0 {
		sender = &pace{Sender: sender, rate: s.Rate, copies: copies}
	}
	s.out = packer{sender: sender, header: &s.header}
}

// slowestDisk is how many bytes a second a receiver's disk reads or writes at least.
const slowestDisk = 1 << 20

// longest bounds an answer: for it a receiver reads all its files at most, and all that an earlier
// receiver has left.
func (s *Source) longest() time.Duration {
	return s.Patience + time.Duration(min(2*(s.total.Load()/slowestDisk), 1<<32))*time.Second
}

// flushTime is what a receiver has beyond longest for the disk at its end: it waits for what other
// programs wrote, however little was copied.
const flushTime = 10 * time.Minute

// await waits until all receivers that were there when the question was put have answered. The
// others need not wait for one that has gone. A greeting takes a buffer of a receiver, and one that
// reads for long what it has gives none back: the group would count as broken. So there are
// greetings only while a receiver is missing, which may come yet.
func (s *Source) await(ctx context.Context, asked []*peer, answered func(*peer) bool) error {
	begun := s.peers.begin(asked)
	for {
		switch pending := s.peers.pending(asked, begun, s.longest(), answered); {
		case s.peers.count() == 0:
			return errNobody
		case pending == 0:
			return nil
		}
		if err := s.peers.wait(ctx, greetEvery); err != nil {
			return err
		}
		if s.peers.count() >= s.Receivers {
			continue
		}
		if err := s.greet(ctx); err != nil {
			return err
		}
	}
}

// passOnce goes through all files once.
func (s *Source) passOnce(ctx context.Context) error {
	s.batches = 0
	s.peers.reset()
	if err := s.out.add(ctx, kindPass); err != nil {
		return err
	}
	if s.Input != nil {
		s.streams = true
		if err := s.sendBatch(ctx, []Entry{{Kind: Stream}}); err != nil {
			return err
		}
	} else if err := s.walkBatches(ctx); err != nil {
		return err
	}
	asked := s.peers.living()
	if err := s.question(ctx, kindPassEnd, numbers(s.batches)); err != nil {
		return err
	}
	pass := s.header.pass
	return s.await(ctx, asked, func(p *peer) bool { return p.passed != nil && p.passed.Pass == pass })
}

// question sends what is answered, and waits until everybody has it.
func (s *Source) question(ctx context.Context, k kind, body []byte) error {
	if err := s.out.add(ctx, k, body); err != nil {
		return err
	}
	return s.out.flush(ctx)
}

// Bounds of a batch: whatever comes first ends it.
const (
	batchEntries = 4096
	batchText    = 1 << 20 // of all names
	batchUnits   = 2 * maxUnits
)

func (s *Source) walkBatches(ctx context.Context) error {
	var entries []Entry
	var text, units int64
	flush := func() error {
		if len(entries) == 0 {
			return nil
		}
		err := s.sendBatch(ctx, entries)
		entries, text, units = nil, 0, 0
		return err
	}
	err := walk(s.Paths, func(e *Entry) error {
		entries = append(entries, *e)
		text += int64(len(e.Path) + len(e.Target))
		units += 1 + e.Size/unitBytes(e.Size)
		if len(entries) >= batchEntries || text >= batchText || units >= batchUnits {
			return flush()
		}
		return nil
	}, s.omit)
	if err != nil {
		return err
	}
	return flush()
}

func (s *Source) omit(path, why string) {
	if _, known := s.leftOut[path]; !known {
		s.leftOut[path] = why
		s.peers.event(Event{Event: LeftOut, Path: path, Reason: why})
	}
}

// attempts is how often a file is sent that does not arrive as it was sent.
const attempts = 3

func (s *Source) sendBatch(ctx context.Context, entries []Entry) error {
	number := s.batches
	s.batches++
	pass := s.header.pass
	asked := s.peers.living()
	if err := s.list(ctx, number, entries); err != nil {
		return err
	}
	err := s.await(ctx, asked, func(p *peer) bool { return p.have != nil && p.have.Pass == pass && p.have.Batch == number })
	if err != nil {
		return err
	}
	plan := s.peers.plan(asked, entries)
	s.peers.relay(asked, entries, plan, s.leftOut)
	for attempt := 1; ; attempt++ {
		if err := s.sendFiles(ctx, entries, plan); err != nil {
			return err
		}
		s.peers.forgetLacks()
		if err := s.question(ctx, kindBatchEnd, numbers(number)); err != nil {
			return err
		}
		err := s.await(ctx, asked, func(p *peer) bool { return p.lacks != nil && p.lacks.Pass == pass && p.lacks.Batch == number })
		if err != nil {
			return err
		}
		lacking := s.peers.lacking(asked)
		if len(lacking) == 0 {
			return nil
		}
		if attempt == attempts {
			s.peers.giveUp(s.header, asked, fmt.Sprintf("a file has come %d times with a wrong SHA-256", attempts))
			return nil
		}
		again := map[int]wanted{}
		for i := range lacking {
			again[i] = wanted{again: true}
			if w := plan[i].instead; w != nil && w.holes { // the parts are still there
				again[i] = *w
			}
		}
		plan = again
	}
}

// list sends the entries of a batch.
func (s *Source) list(ctx context.Context, number uint64, entries []Entry) error {
	digest := sha256.New()
	if err := s.out.add(ctx, kindBatch, numbers(number)); err != nil {
		return err
	}
	var text []byte
	for i := range entries {
		text = entries[i].append(text[:0])
		digest.Write(text)
		if err := s.out.add(ctx, kindEntry, text); err != nil {
			return err
		}
	}
	return s.question(ctx, kindListed, digest.Sum(nil))
}

// end says that there is nothing more, and waits until all receivers have closed what they have.
// All messages before were answered, so this one goes by the connections: what becomes of the group
// does not matter any more.
func (s *Source) end(ctx context.Context) error {
	asked := s.peers.living()
	s.sendBy(newFanOut(s.peers), s.peers.count)
	if err := s.question(ctx, kindEnd, nil); err != nil {
		return err
	}
	begun := s.peers.begin(asked)
	for s.peers.pending(asked, begun, s.longest()+flushTime, func(p *peer) bool { return p.done }) > 0 {
		if err := s.peers.wait(ctx, greetEvery); err != nil {
			return err
		}
	}
	return nil
}

// packer puts records into messages.
type packer struct {
	sender  Sender
	header  *header
	message []byte // nil: none has begun
}

// room returns a message to which n bytes can be appended.
func (p *packer) room(ctx context.Context, n int) error {
	if p.message != nil && cap(p.message)-len(p.message) >= n {
		return nil
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	b, err := p.sender.Buffer(ctx)
	if err != nil {
		return wrapWay(ctx, err)
	}
	p.message = p.header.append(b[:0:MessageBytes])
	return nil
}

func (p *packer) add(ctx context.Context, k kind, parts ...[]byte) error {
	n := recordHeader
	for _, part := range parts {
		n += len(part)
	}
	if err := p.room(ctx, n); err != nil {
		return err
	}
	p.message = appendRecord(p.message, k, parts...)
	return nil
}

func (p *packer) send(ctx context.Context) error {
	m := p.message
	p.message = nil
	if m == nil {
		return nil
	}
	return wrapWay(ctx, p.sender.Send(ctx, m))
}

// flush sends what has been put together, or a message without records if there is nothing, and
// waits until it has arrived.
func (p *packer) flush(ctx context.Context) error {
	if err := p.room(ctx, 0); err != nil {
		return err
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	return wrapWay(ctx, p.sender.Flush(ctx))
}

func wrapWay(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &wayError{err}
}
