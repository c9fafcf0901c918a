package perftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rocast/rocast/roce"
)

// errDown is the reason of a run that its helper ended.
var errDown = errors.New("taken down by the box's operator")

// service listens on one group IP and serves one client after the other.
type service struct {
	config   Config
	options  Options
	limits   limits
	listener net.Listener
	release  func() // the group IP
	cancel   context.CancelCauseFunc
	tasks    sync.WaitGroup
	lastQPN  roce.QPN // touched by serve only

	mu       sync.Mutex
	sessions []*Session
}

// serve goes through the clients. One that comes while another's run is on waits for its end, which it does not notice.
func (s *service) serve(ctx context.Context) {
	for {
		conn, err := s.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return
		case err != nil:
			s.tell("cannot accept a client: %v", err)
			if pause(ctx, time.Second) != nil {
				return
			}
		default:
			s.run(ctx, conn)
		}
	}
}

// run sees one client through, and leaves nothing of it but its record.
func (s *service) run(ctx context.Context, conn net.Conn) {
	c := &conversation{
		config: s.config, groups: s.options.Groups, limits: s.limits,
		client: newSide("client", conn), connected: time.Now(), nextQPN: s.nextQPN,
	}
	record := s.remember(Session{Client: c.client.addr, Began: c.connected})
	c.note = func(change func(*Session)) { s.change(record, change) }

	running, cancel := context.WithCancel(ctx)
	c.listenTo(running, c.client)
	err := c.run(running)
	cancel()
	c.hangUp()
	s.removeGroups(ctx, c.made)
	s.end(record, err)
}

func (s *service) removeGroups(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.remove)
	defer cancel()
	for _, name := range names {
		if err := s.options.Groups.Remove(ctx, name); err != nil {
			s.tell("group %s is left behind: %v", name, err)
		}
	}
}

// end writes down how a run ended and tells it.
func (s *service) end(record *Session, err error) {
	var reason string
	state := Ended
	if err != nil {
		reason = err.Error()
	}
	if isRefusal(err) {
		state = Refused
	}
	s.change(record, func(r *Session) {
		r.State, r.Reason, r.Groups, r.Ended = state, reason, nil, time.Now()
	})
	if reason == "" {
		s.tell("run of %v ended", record.Client)
		return
	}
	s.tell("run of %v %v: %s", record.Client, state, reason)
}

// refuseAtOnce is for who never gets to a conversation.
func (s *service) refuseAtOnce(client netip.Addr, reason error) {
	s.end(s.remember(Session{Client: client, Began: time.Now()}), reason)
}

func (s *service) remember(session Session) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == MaxSessions {
		s.sessions = slices.Delete(s.sessions, 0, 1)
	}
	s.sessions = append(s.sessions, &session)
	return &session
}

func (s *service) change(record *Session, change func(*Session)) {
	s.mu.Lock()
	before := record.State
	change(record)
	now := *record
	s.mu.Unlock()
	if before != Running && now.State == Running {
		s.tell("run of %v began: queue pairs %d, receivers %d, path MTU %d", now.Client, now.QPs, len(s.config.Receivers), now.PathMTU)
	}
}

func (s *service) list() Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Service{Config: s.config}
	for _, session := range s.sessions {
		l.Sessions = append(l.Sessions, *session)
	}
	return l
}

// nextQPN is a number no group of the service has had for long: what a dead run's queue pairs still send must not meet
// the next one's groups.
func (s *service) nextQPN() roce.QPN {
	const first, last = 0x100, 0xFFFFFE
	if s.lastQPN++; s.lastQPN < first || s.lastQPN > last {
		s.lastQPN = first
	}
	return s.lastQPN
}

func (s *service) tell(format string, args ...any) {
	s.options.Told(fmt.Sprintf("perftest %v: %s", s.config.GroupIP, fmt.Sprintf(format, args...)))
}

// stop ends all of it.
func (s *service) stop() {
	s.cancel(errDown)
	s.listener.Close()
	s.tasks.Wait()
	s.release()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
