package copying

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// pipes are connections in memory, so that a test has a clock of its own.
type pipes struct {
	calls  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	near, far := pipe()
	select {
	case p.calls <- &addressed{far, mutePeers{}.Addr()}:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// clocked calls test with a clock that goes on when everybody waits, and with the bench of a source
// that waits for so many receivers.
func clocked(t *testing.T, receivers int, test func(b *bench)) {
	t.Helper()
	paths := []string{filepath.Join(t.TempDir(), "f")}
	write(t, paths[0], random(2*BlockBytes))
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, receivers, paths...)
		_ = b.source.Listener.Close()
		p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
		b.source.Listener, b.dial, b.source.Patience = p, p.dial, 30*time.Second
		test(b)
	})
}

// outcome is that of a source that ends within an hour.
func (b *bench) outcome() (Sent, error) {
	ctx, cancel := context.WithTimeoutCause(b.t.Context(), time.Hour, errors.New("the source does not end"))
	defer cancel()
	return b.source.Run(ctx)
}

// puppet is a receiver whose reports are the test's: it takes all messages, and calls does with
// each, which says something or nothing.
func (b *bench) puppet(does func(message []byte, say func(report))) *member {
	m := b.hub.join()
	go func() {
		var l *line
		for {
			message, err := m.Next(b.t.Context())
			if err != nil {
				return
			}
			if l == nil {
				var h header
				if _, err := h.decode(message); err != nil {
					b.t.Error(err)
					return
				}
				conn, err := b.dial(b.t.Context(), "")
				if err != nil {
					return
				}
				l = &line{conn: conn}
				_ = l.report(report{Hello: &hello{Token: hex.EncodeToString(h.token[:]), Host: "puppet"}})
				go func() {
					_, _ = io.Copy(io.Discard, conn) // until the source has enough of it
					m.leave()
				}()
			}
			does(message, func(r report) { _ = l.report(r) })
		}
	}()
	return m
}

// goneBut returns why a receiver has gone, where all others are complete.
func (b *bench) goneBut(complete int) (why string) {
	b.t.Helper()
	sent, err := b.outcome()
	if err != nil || len(sent.Complete) != complete || len(sent.Gone) != 1 {
		b.t.Fatalf("%+v, %v", sent, err)
	}
	for _, why = range sent.Gone {
	}
	return why
}

// A receiver that reports more and more work and never answers does not hold up the others.
func TestAReceiverThatNeverAnswers(t *testing.T) {
	clocked(t, 2, func(b *bench) {
		h := b.hosts(1)[0]
		works := false
		b.puppet(func(_ []byte, say func(report)) {
			if works {
				return
			}
			works = true
			go func() {
				for work := int64(1); ; work++ {
					say(report{Progress: &progress{Work: work}})
					select {
					case <-b.t.Context().Done():
						return
					case <-time.After(time.Second): // of the test's clock
					}
				}
			}()
		})
		if why := b.goneBut(1); !strings.HasPrefix(why, "it has not answered for 3") {
			t.Error(why)
		}
		<-h.ends
		if h.err != nil {
			t.Error(h.err)
		}
	})
}

// A receiver that reads for long what it has gives no buffer back meanwhile: if nobody is missing,
// nothing is sent that needs one.
func TestABusyReceiverGetsNoGreetings(t *testing.T) {
	clocked(t, 1, func(b *bench) {
		var messages atomic.Int64
		b.hub.fault = func() { messages.Add(1) }
		b.puppet(func(message []byte, say func(report)) {
			var h header
			rest, err := h.decode(message)
			if err != nil {
				t.Error(err)
				return
			}
			_ = records(rest, func(k kind, _ []byte) error {
				switch k {
				case kindListed:
					before := messages.Load()
					time.Sleep(25 * time.Second) // of the test's clock
					if more := messages.Load() - before; more > 0 {
						t.Errorf("%d messages", more)
					}
					say(report{Have: &have{Pass: h.pass, Batch: 0}})
				case kindBatchEnd:
					say(report{Lacks: &lacks{Pass: h.pass, Batch: 0}})
				case kindPassEnd:
					say(report{Pass: &passed{Pass: h.pass, Complete: true}})
					time.Sleep(time.Second) // until the source has seen that nobody lacks anything
					say(report{Done: true})
				}
				return nil
			})
		})
		if sent, err := b.outcome(); err != nil || len(sent.Complete) != 1 {
			t.Errorf("%+v, %v", sent, err)
		}
	})
}

// Each name of a list is work, and so is what is done at the end of a batch: on a slow file system
// many directories take longer than a receiver may do nothing.
func TestEachNameIsWork(t *testing.T) {
	b := newBench(t, 1)
	h := b.receiver(t.TempDir(), false)
	near, far := pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }() // until the test closes its end
	h.line, h.done, h.ctx = &line{conn: near}, map[[32]byte][]int{}, t.Context()
	const directories = 50
	m := appendRecord(new(header).append(nil), kindBatch, numbers(0))
	digest := sha256.New()
	for i := range 2 * directories {
		e := Entry{Kind: Directory, Mode: 0o777, Path: fmt.Sprint("d", i/2)}
		if i%2 == 1 {
			e.Kind = DirectoryEnd
		}
		text := e.append(nil)
		digest.Write(text)
		m = appendRecord(m, kindEntry, text)
	}
	if err := h.take(m); err != nil || h.work.Load() < 2*directories {
		t.Fatalf("work %d, %v", h.work.Load(), err)
	}
	for _, what := range []struct {
		kind kind
		body []byte
	}{{kindListed, digest.Sum(nil)}, {kindBatchEnd, numbers(0)}} {
		before := h.work.Load()
		if err := h.take(appendRecord(new(header).append(nil), what.kind, what.body)); err != nil {
			t.Fatal(err)
		}
		h.tasks.Wait()
		if work := h.work.Load() - before; work < directories {
			t.Errorf("kind %d: work %d", what.kind, work)
		}
	}
	if err := errors.Join(h.Target.Close(), near.Close()); err != nil {
		t.Error(err)
	}
}

// Greetings, which only wait for the others, are no work: a receiver with nothing else to do has
// not got on.
func TestAGreetingIsNoWork(t *testing.T) {
	b := newBench(t, 1)
	h := b.receiver(t.TempDir(), false)
	h.line = &line{}
	greeting := new(header).append(nil)
	if err := h.take(greeting); err != nil || h.work.Load() != 0 {
		t.Errorf("work %d, %v", h.work.Load(), err)
	}
	if err := h.take(appendRecord(greeting, kindPass)); err != nil || h.work.Load() != 1 {
		t.Errorf("work %d, %v", h.work.Load(), err)
	}
	if err := h.Target.Close(); err != nil {
		t.Error(err)
	}
}

// A source that reads an idle pipe ends when its user or all receivers have ended.
func TestAnIdlePipeEnds(t *testing.T) {
	for name, want := range map[string]error{"the user": context.Canceled, "the receivers": errNobody} {
		clocked(t, 1, func(b *bench) {
			idle, never := io.Pipe()
			h := &host{member: b.hub.join(), ends: make(chan struct{})}
			h.Receiver = &Receiver{Inbox: h.member, Output: io.Discard, Host: "h", Dial: b.dial}
			h.start(b.t.Context())
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Hour)
			defer cancel()
			b.source.Paths = nil
			b.source.Input = readerFunc(func(p []byte) (int, error) {
				if want == errNobody {
					h.stop()
				} else {
					cancel()
				}
				return idle.Read(p)
			})
			if _, err := b.source.Run(ctx); !errors.Is(err, want) {
				t.Errorf("%s: %v, %v", name, err, h.err)
			}
			h.stop()
			<-h.ends
			_ = never.Close()
		})
	}
}

// blocked is a standard output that nobody reads from.
type blocked struct{ free chan struct{} }

func (w blocked) Write(b []byte) (int, error) {
	<-w.free
	return len(b), nil
}

// A receiver whose standard output takes nothing says so and ends, and the others get everything.
// Until then it reports that it lives, and its user can end it.
func TestNobodyReadsTheStandardOutput(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		clocked(t, 2, func(b *bench) {
			b.source.Paths, b.source.Input = nil, bytes.NewReader(random(8*BlockBytes))
			out := blocked{make(chan struct{})}
			var hosts []*host
			for _, w := range []io.Writer{io.Discard, out} {
				h := &host{member: b.hub.join(), ends: make(chan struct{})}
				h.Receiver = &Receiver{Inbox: h.member, Output: w, Host: "h", Dial: b.dial}
				hosts = append(hosts, h.start(b.t.Context()))
			}
			if stopped {
				time.AfterFunc(5*time.Second, hosts[1].stop)
			}
			begin := time.Now()
			why := b.goneBut(1)
			<-hosts[0].ends
			<-hosts[1].ends
			took := time.Since(begin)
			close(out.free)
			want, most := "write the standard output: it has not taken 65536 bytes within 20s", 21*time.Second
			if stopped {
				want, most = context.Canceled.Error(), 6*time.Second
			}
			if why != want || hosts[0].err != nil || took > most {
				t.Errorf("%v, after %v: %q, %v, %v", stopped, took, why, hosts[0].err, hosts[1].err)
			}
		})
	}
}

// Where messages go by single connections, a receiver that takes none is named, the others go on,
// and the user can end the source meanwhile.
func TestAConnectionThatTakesNothing(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		clocked(t, 2, func(b *bench) {
			b.hub.fault = func() {
				if b.source.header.pass == 1 {
					b.hub.mu.Lock()
					b.hub.broken = errors.New("the box is gone")
					b.hub.mu.Unlock()
				}
			}
			h := b.hosts(1)[0]
			deaf, ended := b.hub.join(), make(chan struct{})
			go func() {
				defer deaf.leave()
				m, err := deaf.Next(b.t.Context())
				if err != nil {
					return
				}
				var first header
				_, _ = first.decode(m)
				conn, err := b.dial(b.t.Context(), "")
				if err != nil {
					return
				}
				defer conn.Close()
				_ = (&line{conn: conn}).report(report{Hello: &hello{Token: hex.EncodeToString(first.token[:]), Host: "deaf"}})
				<-ended
			}()
			if stopped {
				ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
				_, err := b.source.Run(ctx)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			} else if why := b.goneBut(1); why != "it has not taken a message for 30s" {
				t.Error(why)
			}
			close(ended)
			<-h.ends
			if !stopped && h.err != nil {
				t.Error(h.err)
			}
		})
	}
}

// A receiver reports the end when its disk has everything, and not if that has failed.
func TestTheDiskHasEverythingAtTheEnd(t *testing.T) {
	clocked(t, 2, func(b *bench) {
		hosts := []*host{b.receiver(filepath.Join(b.t.TempDir(), "a"), false), b.receiver(filepath.Join(b.t.TempDir(), "b"), false)}
		for i, h := range hosts {
			flushed := 0
			h.Target.flush = func(int) error {
				if _, err := os.Stat(filepath.Join(h.dir, "f")); err != nil {
					t.Error(err)
				}
				b.source.peers.mu.Lock()
				defer b.source.peers.mu.Unlock()
				for _, p := range b.source.peers.all {
					if p.done && strings.HasSuffix(p.name, h.Host+")") {
						t.Error("it has reported the end before")
					}
				}
				if flushed++; flushed > 1 {
					t.Error("it was flushed twice")
				}
				if i == 1 {
					return errors.New("input/output error")
				}
				return nil
			}
			h.start(b.t.Context())
		}
		if why := b.goneBut(1); why != fmt.Sprintf("bring %q to the disk: input/output error", hosts[1].dir) {
			t.Error(why)
		}
		for _, h := range hosts {
			<-h.ends
		}
	})
}

// A disk that takes its time at the end is waited for: other programs may have written much to it.
func TestADiskThatTakesItsTime(t *testing.T) {
	clocked(t, 1, func(b *bench) {
		h := b.receiver(filepath.Join(b.t.TempDir(), "a"), false)
		h.Target.flush = func(int) error {
			time.Sleep(5 * time.Minute) // of the test's clock: longer than the copy would have
			return nil
		}
		h.start(b.t.Context())
		if sent, err := b.outcome(); err != nil || len(sent.Complete) != 1 {
			t.Errorf("%+v, %v", sent, err)
		}
		<-h.ends
	})
}

// What goes by the group takes the time of its rate; what goes by single connections takes it for
// each receiver.
func TestARateIsKept(t *testing.T) {
	for copies, want := range map[int]time.Duration{1: 30 * time.Second, 3: 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub()
			p := &pace{Sender: h, rate: MessageBytes / 10, copies: func() int { return copies }}
			send := func(ctx context.Context) (time.Duration, error) {
				begin := time.Now()
				b, err := p.Buffer(ctx)
				if err != nil {
					t.Fatal(err)
				}
				err = p.Send(ctx, b)
				if err != nil {
					h.free <- b
				}
				return time.Since(begin).Round(time.Second), err
			}
			for i, want := range []time.Duration{0, want / 3, want / 3, want / 3} {
				if took, err := send(t.Context()); err != nil || took != want {
					t.Errorf("%d copies, message %d: %v, %v", copies, i, took, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if took, err := send(ctx); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
				t.Error(took, err)
			}
			<-time.After(time.Hour) // what was not sent then is not made up for
			for i, want := range []time.Duration{0, want / 3} {
				if took, err := send(t.Context()); err != nil || took != want {
					t.Errorf("%d copies, message %d after a pause: %v, %v", copies, i, took, err)
				}
			}
		})
	}
}

// Two sources of one group: the receivers belong to the one whose message came first, and the other
// one ends with a sentence.
func TestTwoSourcesOfOneGroup(t *testing.T) {
	clocked(t, 2, func(b *bench) {
		second := newBench(b.t, 2, b.source.Paths...)
		_ = second.source.Listener.Close()
		second.hub = b.hub
		p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
		second.source.Sender, second.source.Listener, second.source.Patience = b.hub, p, 10*time.Second
		hosts := b.hosts(2)
		var failure error
		begun := false
		b.hub.fault = func() {
			if b.source.batches == 0 || begun {
				return
			}
			begun = true // in the middle of the first copy
			_, failure = second.outcome()
		}
		sent, err := b.outcome()
		if err != nil || len(sent.Complete) != 2 || len(sent.Gone) > 0 {
			t.Errorf("the first one: %+v, %v", sent, err)
		}
		if failure == nil || !strings.HasPrefix(failure.Error(), "no receiver has reported") {
			t.Errorf("the second one: %v", failure)
		}
		for _, h := range hosts {
			if <-h.ends; h.err != nil {
				t.Error(h.err)
			}
		}
	})
}

// Two copies of files with the same name to one directory: the second one is refused in a sentence,
// and the first one is whole.
func TestTwoCopiesToOneDirectory(t *testing.T) {
	clocked(t, 1, func(b *bench) {
		dir := b.t.TempDir()
		first := b.receiver(dir, false).start(b.t.Context())
		b.hub.fault = func() {
			synctest.Wait() // until the receiver has what was sent
			if first.bytes.Load() == 0 {
				return
			}
			b.hub.fault = nil
			other := newBench(b.t, 1, b.source.Paths...)
			_ = other.source.Listener.Close()
			p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
			other.source.Listener, other.dial = p, p.dial
			h := other.receiver(dir, false).start(b.t.Context())
			sent, err := other.outcome()
			<-h.ends
			want := `"f" is being written by another rocast-cp`
			if !errors.Is(err, errNobody) || len(sent.Gone) != 1 || h.err == nil || h.err.Error() != want {
				t.Errorf("%+v, %v, %v", sent, err, h.err)
			}
		}
		sent, err := b.outcome()
		<-first.ends
		if err != nil || len(sent.Complete) != 1 || first.err != nil || b.hub.fault != nil {
			t.Errorf("%+v, %v, %v", sent, err, first.err)
		}
	})
}

// failing is a listener that fails some times before it accepts.
type failing struct {
	net.Listener
	left atomic.Int64
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: unix.EMFILE}
	}
	return f.Listener.Accept()
}

// A source that has too many open files for a while hears its receivers after that, and asks no
// more often than it needs.
func TestAListenerThatFails(t *testing.T) {
	for failures, want := range map[int64]error{20: nil, 1 << 40: context.Canceled} {
		clocked(t, 1, func(b *bench) {
			f := &failing{Listener: b.source.Listener}
			f.left.Store(failures)
			b.source.Listener = f
			h := b.hosts(1)[0]
			ctx, cancel := context.WithCancel(b.t.Context())
			time.AfterFunc(20*time.Second, cancel) // before the source loses its patience
			begin := time.Now()
			sent, err := b.source.Run(ctx)
			if !errors.Is(err, want) || want == nil && len(sent.Complete) != 1 || time.Since(begin) > 20*time.Second {
				t.Errorf("%d failures: %+v, %v after %v", failures, sent, err, time.Since(begin))
			}
			if tried := failures - f.left.Load(); want != nil && tried > 40 {
				t.Errorf("tried %d times", tried)
			}
			h.stop()
			<-h.ends
		})
	}
}

// What becomes of the group does not matter when all have answered that they have everything.
func TestAGroupThatBreaksAtTheEnd(t *testing.T) {
	clocked(t, 2, func(b *bench) {
		var hosts []*host
		breaks := func() {
			b.hub.mu.Lock()
			b.hub.broken = errors.New("the box is gone")
			b.hub.mu.Unlock()
			for _, h := range hosts {
				h.leave()
			}
		}
		hosts = b.hosts(2)
		b.hub.fault = func() {
			if len(b.source.peers.all) == 2 && b.source.peers.allComplete() {
				breaks()
			}
		}
		sent, err := b.outcome()
		if err != nil || len(sent.Complete) != 2 {
			t.Errorf("%+v, %v", sent, err)
		}
		for _, h := range hosts {
			if <-h.ends; h.err != nil {
				t.Error(h.err)
			}
		}
	})
}

// slow lets each step of reading and hashing at a receiver take some time.
func (h *host) slow(step time.Duration) {
	h.Target.work = func(int) error {
		time.Sleep(step) // of the test's clock
		return nil
	}
}

// byTheGroup is the outcome of a copy that has not gone on by single connections.
func (b *bench) byTheGroup(hosts ...*host) Sent {
	b.t.Helper()
	sent, err := b.outcome()
	if err != nil || len(sent.Complete) != len(hosts) {
		b.t.Errorf("%+v, %v", sent, err)
	}
	for _, h := range hosts {
		if <-h.ends; h.err != nil {
			b.t.Error(h.err)
		}
	}
	if slices.ContainsFunc(b.events, func(e Event) bool { return e.Event == Way }) {
		b.t.Errorf("%+v", b.events)
	}
	return sent
}

// A receiver that reads for long what it has goes on taking messages: greetings come while another
// one is missing.
func TestABusyReceiverTakesGreetings(t *testing.T) {
	clocked(t, 2, func(b *bench) {
		h := b.receiver(filepath.Join(b.t.TempDir(), "r"), true)
		content, err := os.ReadFile(b.source.Paths[0])
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(h.dir, "f"), content)
		h.slow(33 * time.Second / 2)
		b.byTheGroup(h.start(b.t.Context()))
	})
}

// A receiver hashes what it has of a file, and holes, while the source does, and not when all is
// there: that would take too long for one message.
func TestALongFileIsHashedMeanwhile(t *testing.T) {
	for name, stored := range map[string]bool{"parts that are there": true, "a hole": false} {
		clocked(t, 1, func(b *bench) {
			long, next := filepath.Join(b.t.TempDir(), "long"), filepath.Join(b.t.TempDir(), "next")
			const blocks = 50
			write(t, long, nil)
			if err := os.Truncate(long, blocks*BlockBytes); err != nil {
				t.Fatal(err)
			}
			if stored {
				write(t, long, random(blocks*BlockBytes))
			}
			write(t, next, random(2*hubBuffers*BlockBytes))
			b.source.Paths = []string{long, next}
			h := b.receiver(filepath.Join(b.t.TempDir(), "r"), stored)
			if stored {
				content, err := os.ReadFile(long)
				if err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(h.dir, partialName("long")), content[:(blocks-1)*BlockBytes])
			}
			h.slow(time.Second)
			if b.byTheGroup(h.start(b.t.Context())); b.hub.sent > (2*hubBuffers+2)*BlockBytes {
				t.Errorf("%s: %d bytes were sent", name, b.hub.sent)
			}
		})
	}
}

// If the source goes on without the answer of a receiver, because it came when the question was
// put, or with another pass, the receiver goes on too: what it was reading comes in a further pass.
func TestAnAnswerForWhichNobodyWaits(t *testing.T) {
	list := func(at header, number uint64) []byte {
		text := (&Entry{Kind: File, Size: 2 * BlockBytes, Path: "f"}).append(nil)
		digest := sha256.Sum256(text)
		m := appendRecord(at.append(nil), kindBatch, numbers(number))
		return appendRecord(appendRecord(m, kindEntry, text), kindListed, digest[:])
	}
	for name, c := range map[string]struct {
		next []byte
		want string
	}{
		"the next batch":             {list(header{pass: 1}, 8), `{"have":{"pass":1,"batch":8,"files":{"0":`},
		"another pass":               {list(header{pass: 2}, 8), `{"have":{"pass":2,"batch":8,"files":{"0":`},
		"a greeting of another pass": {(&header{pass: 2}).append(nil), ""},
		"the end of the batch":       {appendRecord((&header{pass: 1}).append(nil), kindBatchEnd, numbers(7)), `{"lacks":{"pass":1,"batch":7,"all":true}}`},
	} {
		b := newBench(t, 1)
		h := b.receiver(t.TempDir(), true)
		near, far := pipe()
		said := make(chan []byte, 1)
		go func() {
			text, _ := io.ReadAll(far)
			said <- text
		}()
		h.line, h.done, h.ctx, h.pass = &line{conn: near}, map[[32]byte][]int{}, t.Context(), 1
		h.end = func(err error) { t.Error(err) }
		write(t, filepath.Join(h.dir, "f"), random(2*BlockBytes))
		reads, goOn := make(chan struct{}, 1), make(chan struct{})
		h.Target.work = func(n int) error {
			select {
			case reads <- struct{}{}:
			default:
			}
			<-goOn
			return h.goOn(n)
		}
		if err := h.take(list(header{pass: 1}, 7)); err != nil {
			t.Fatal(err)
		}
		<-reads
		if err := h.take((&header{pass: 1}).append(nil)); err != nil { // a greeting
			t.Error(err)
		}
		taken := make(chan error)
		go func() { taken <- h.take(c.next) }()
		for begin := time.Now(); !h.stopped.Load() && time.Since(begin) < 10*time.Second; {
			runtime.Gosched()
		}
		close(goOn)
		if err := <-taken; err != nil {
			t.Error(name, err)
		}
		h.tasks.Wait()
		_ = near.Close()
		if text := string(<-said); !strings.HasPrefix(text, c.want) || strings.Count(text, "\n") != strings.Count(c.want, "pass") {
			t.Errorf("%s: %q", name, text)
		}
		if err := h.Target.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A receiver that is interrupted while its disk works ends at once, and the disk is asked for
// nothing else.
func TestADiskThatWorksAtTheEndIsLeftAlone(t *testing.T) {
	clocked(t, 1, func(b *bench) {
		h := b.receiver(filepath.Join(b.t.TempDir(), "a"), false)
		closed := make(chan struct{})
		flushed := make(chan error)
		h.Target.flush = func(fd int) error {
			h.stop()
			<-closed
			_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			flushed <- err
			return nil
		}
		h.start(b.t.Context())
		if sent, _ := b.outcome(); len(sent.Complete) > 0 {
			t.Errorf("%+v", sent)
		}
		<-h.ends
		close(closed)
		if err := <-flushed; err != nil || !errors.Is(h.err, context.Canceled) {
			t.Error(err, h.err)
		}
	})
}
