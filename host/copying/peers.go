package copying

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// peers are the receivers as the source knows them.
type peers struct {
	token    string
	patience time.Duration
	say      func(Event)
	news     chan struct{} // holds a token after any report
	tasks    sync.WaitGroup

	mu     sync.Mutex // guards what follows, and the peers
	all    []*peer
	conns  []net.Conn // of all, and of those that have not said who they are
	closed bool
	saying sync.Mutex // one event at a time
}

// peer is one receiver.
type peer struct {
	name    string
	line    *line
	have    *have
	lacks   *lacks
	passed  *passed
	shares  string
	refuses []string // addresses of receivers that have given it nothing good
	progress
	worked time.Time // when progress.Work grew last
	done   bool
	gone   bool
	why    string // it has gone
}

func newPeers(token string, patience time.Duration, say func(Event)) *peers {
	return &peers{token: token, patience: patience, say: say, news: make(chan struct{}, 1)}
}

func (s *peers) event(e Event) {
	s.saying.Lock()
	defer s.saying.Unlock()
	s.say(e)
}

// longestPause is how long accept waits at most after an error.
const longestPause = time.Second

// accept waits for a connection until the listener is closed or ctx ends. If none can be accepted,
// for example because this process has too many open files, it tries again after a pause.
func accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		conn, err := l.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// listen hears receivers until the listener is closed.
func (s *peers) listen(ctx context.Context, l net.Listener) {
	for {
		conn, err := accept(ctx, l)
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			_ = conn.Close()
		} else {
			s.conns = append(s.conns, conn)
			s.tasks.Go(func() { s.hear(conn) })
		}
		s.mu.Unlock()
	}
}

// hear takes the reports of one receiver. Whoever does not know the token is no receiver.
func (s *peers) hear(conn net.Conn) {
	defer s.forget(conn)
	p := &peer{line: &line{conn: conn}, worked: time.Now()}
	_ = conn.SetReadDeadline(time.Now().Add(s.patience)) // the first report is due
	err := p.line.reports(func(r *report) {
		switch {
		case r.Hello != nil && p.name == "":
			if subtle.ConstantTimeCompare([]byte(r.Hello.Token), []byte(s.token)) != 1 {
				_ = conn.Close()
				return
			}
			_ = conn.SetReadDeadline(time.Time{})
			p.line.known = true
			p.shares = givesAt(r.Hello.Shares, conn.RemoteAddr())
			s.add(p, r.Hello.Host)
		case p.name != "":
			s.reported(p, r)
		}
	})
	if p.name == "" {
		return
	}
	why := "its connection has ended"
	if err != nil {
		why += ": " + plainNet(err)
	}
	s.drop(p, why)
}

func (s *peers) forget(conn net.Conn) {
	_ = conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = slices.DeleteFunc(s.conns, func(c net.Conn) bool { return c == conn })
}

// plainNet is the cause in an error of a connection, without its addresses.
func plainNet(err error) string {
	var at *net.OpError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

func (s *peers) add(p *peer, host string) {
	s.mu.Lock()
	ip, _, _ := net.SplitHostPort(p.line.conn.RemoteAddr().String())
	p.name = ip
	if host != "" && host != ip {
		p.name = fmt.Sprintf("%s (%s)", ip, host)
	}
	for n := 2; slices.ContainsFunc(s.all, func(o *peer) bool { return o.name == p.name && !o.gone }); n++ {
		p.name = fmt.Sprintf("%s (%s, %d)", ip, host, n)
	}
	if s.closed {
		p.gone = true
	} else {
		s.all = append(s.all, p)
	}
	s.mu.Unlock()
	s.event(Event{Event: Joined, Host: p.name})
	s.wake()
}

func (s *peers) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *peers) reported(p *peer, r *report) {
	s.mu.Lock()
	switch {
	case r.Have != nil:
		p.have, p.worked = r.Have, time.Now()
	case r.Lacks != nil:
		p.lacks, p.refuses, p.worked = r.Lacks, r.Lacks.Refuses, time.Now()
		if r.Lacks.Alone {
			p.shares = ""
		}
	case r.Pass != nil:
		p.passed, p.worked = r.Pass, time.Now()
	case r.Progress != nil:
		if r.Progress.Work != p.Work {
			p.worked = time.Now()
		}
		p.progress = *r.Progress
	case r.Done:
		p.done = true
	}
	s.mu.Unlock()
	if r.Error != "" {
		s.drop(p, r.Error)
	}
	s.wake()
}

// drop ends the part of a receiver.
func (s *peers) drop(p *peer, why string) {
	s.mu.Lock()
	known := p.gone || p.done || s.closed
	if !known {
		p.gone, p.why = true, why
	}
	s.mu.Unlock()
	if known {
		return
	}
	s.event(Event{Event: Gone, Host: p.name, Reason: why})
	_ = p.line.conn.Close()
	s.wake()
}

// wait returns after news, or after some time.
func (s *peers) wait(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-s.news:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// living are the receivers that take part.
func (s *peers) living() (list []*peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if !p.gone && !p.done {
			list = append(list, p)
		}
	}
	return list
}

func (s *peers) count() int { return len(s.living()) }

// begin gives receivers their time for an answer from now on.
func (s *peers) begin(asked []*peer) (now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = time.Now()
	for _, p := range asked {
		p.worked = now
	}
	return now
}

// deserted reports whether there were receivers, and all have gone.
func (s *peers) deserted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0 && !slices.ContainsFunc(s.all, func(p *peer) bool { return !p.gone })
}

// pending counts those that have not answered. A receiver that neither answers nor gets on for
// patience has gone. So has one that has not answered after most, however much work it reports.
func (s *peers) pending(asked []*peer, begun time.Time, most time.Duration, answered func(*peer) bool) (n int) {
	stuck := map[*peer]string{}
	s.mu.Lock()
	for _, p := range asked {
		switch {
		case p.gone || answered(p):
		case time.Since(p.worked) > s.patience:
			stuck[p] = fmt.Sprintf("it has done nothing for %v", s.patience)
		case time.Since(begun) > most:
			stuck[p] = fmt.Sprintf("it has not answered for %v", most)
		default:
			n++
		}
	}
	s.mu.Unlock()
	for p, why := range stuck {
		s.drop(p, why)
	}
	return n
}

// reset forgets the answers of the pass before.
func (s *peers) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		p.have, p.lacks, p.passed = nil, nil, nil
	}
}

func (s *peers) forgetLacks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		p.lacks = nil
	}
}

// allComplete reports whether nobody lacks anything of the last pass.
func (s *peers) allComplete() bool {
	return len(s.incomplete()) == 0
}

func (s *peers) incomplete() []*peer {
	list := s.living()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(list, func(p *peer) bool { return p.passed != nil && p.passed.Complete })
}

// lacking are the files that a receiver could not verify. A receiver that has not heard the list
// lacks them until the next pass.
func (s *peers) lacking(asked []*peer) map[int]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[int]bool{}
	for _, p := range asked {
		if !p.gone && p.lacks != nil {
			for _, i := range p.lacks.Files {
				files[i] = true
			}
		}
	}
	return files
}

// giveUp ends the part of the receivers that still lack files.
func (s *peers) giveUp(h header, asked []*peer, why string) {
	for _, p := range asked {
		s.mu.Lock()
		lacks := !p.gone && p.lacks != nil && len(p.lacks.Files) > 0
		s.mu.Unlock()
		if lacks {
			s.end(h, p, why)
		}
	}
}

// refuse ends the part of all that are not complete.
func (s *peers) refuse(h header, why string) {
	for _, p := range s.incomplete() {
		s.end(h, p, why)
	}
}

func (s *peers) end(h header, p *peer, why string) {
	_ = p.line.message(appendRecord(h.append(nil), kindRefused, []byte(why))) // it may have gone
	s.drop(p, why)
}

// slowest is the receiver that has least.
func (s *peers) slowest() (least int64, who string, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if !p.gone && (!any || p.Bytes < least) {
			least, who, any = p.Bytes, p.name, true
		}
	}
	return least, who, any
}

// outcome says who has everything, and who has gone and why. A receiver that has gone has come
// again if a later one has its name.
func (s *peers) outcome() (complete []string, gone map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone = map[string]string{}
	for _, p := range s.all {
		switch {
		case p.done:
			complete = append(complete, p.name)
			delete(gone, p.name)
		case p.gone:
			gone[p.name] = p.why
		default:
			gone[p.name] = "it had not reported the end"
		}
	}
	return complete, gone
}

// close ends all connections.
func (s *peers) close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
}

// wanted is what the source sends of a file. The zero value is all of it.
type wanted struct {
	again bool // once more, from the beginning
	// claims are what receivers have that lack a part. A unit is sent if it differs in one of them.
	claims [][]sum
	none   bool    // all receivers have it whole, as they believe
	holes  bool    // some receiver has something: a hole has to be sent too
	givers []giver // who may have it, and gives it instead of the source
	// instead is what the source sends if it comes from nobody.
	instead *wanted
}

// plan says what of each file is to be sent: what at least one receiver lacks. A file that is not
// in it need not even be read.
func (s *peers) plan(asked []*peer, entries []Entry) map[int]wanted {
	s.mu.Lock()
	defer s.mu.Unlock()
	plan := map[int]wanted{}
	asked = slices.DeleteFunc(slices.Clone(asked), func(p *peer) bool { return p.gone || p.have == nil })
	for i := range entries {
		if entries[i].Kind != File {
			continue
		}
		w := wanted{none: true}
		lacks, skipped := false, true
		for _, p := range asked {
			c := p.have.Files[i]
			skipped = skipped && p.have.All
			switch {
			case p.have.All || c.Whole != nil:
			case c.Units != nil:
				w.none, w.holes = false, true
				w.claims = append(w.claims, c.Units)
			default:
				w.none, lacks = false, true
			}
		}
		if lacks {
			w.claims = nil
		}
		if !skipped {
			plan[i] = w
		}
	}
	return plan
}

// fanOut sends messages by the connections of the receivers.
type fanOut struct {
	peers  *peers
	buffer []byte
}

func newFanOut(p *peers) *fanOut { return &fanOut{peers: p, buffer: make([]byte, MessageBytes)} }

func (f *fanOut) Buffer(context.Context) ([]byte, error) { return f.buffer, nil }
func (f *fanOut) Flush(context.Context) error            { return nil }

// Send waits for all receivers, and so for the slowest. One that has not taken the message after
// writeTimeout has gone. The connections end with the copy, so nothing waits longer than ctx.
func (f *fanOut) Send(ctx context.Context, message []byte) error {
	_, err := unlessEnded(ctx, func() (int, error) {
		var all sync.WaitGroup
		for _, p := range f.peers.living() {
			all.Go(func() {
				err := p.line.message(message)
				switch {
				case errors.Is(err, os.ErrDeadlineExceeded):
					f.peers.drop(p, fmt.Sprintf("it has not taken a message for %v", writeTimeout))
				case err != nil:
					f.peers.drop(p, "its connection has ended: "+plainNet(err))
				}
			})
		}
		all.Wait()
		return 0, nil
	})
	return err
}
