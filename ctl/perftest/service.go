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

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/roce"
)

// errDown is the reason of a run that Down or Close ended.
var errDown = errors.New("taken down by the box's operator")

// service listens on one group IP. Its clients may connect at any time, but their runs follow one
// another, because the server of a receiver accepts only one client.
type service struct {
	config   Config
	options  Options
	log      *zap.Logger
	limits   limits
	listener net.Listener
	release  func() // removes the group IP from the box
	cancel   context.CancelCauseFunc
	tasks    sync.WaitGroup
	slot     chan struct{} // holds a token while a client runs
	lastQPN  roce.QPN      // last QPN given to a queue pair; used by the client that holds the slot

	mu         sync.Mutex
	clients    map[netip.Addr]int
	sessions   []*Session
	turnedAway time.Time // time of the last record of a client that got no conversation
	told       time.Time // time of the last event about clients that are refused, or wait
	on         *Session  // of the run that is on; nil: none is
	onClient   *side     // its client
	ended      map[roce.QPN]*queuePair
	failed     map[strayKey]time.Time // when the queue pair of a host was ended last
}

// serve accepts clients until ctx is done.
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
			s.log.Warn("perftest cannot accept a client", zap.Error(err))
			select {
			case <-time.After(s.limits.again):
			case <-ctx.Done():
			}
		default:
			s.admit(ctx, conn)
		}
	}
}

// admit starts a conversation with a client, if the client is allowed and there are not too many
// clients.
func (s *service) admit(ctx context.Context, conn net.Conn) {
	client := newSide("client", conn)
	if !s.config.Allows(client.addr) {
		conn.Close()
		s.reject(client.addr, refuse("%v is in none of the allowed networks (%v); take perftest down, and up "+
			"again with --allow", client.addr, s.config.Allow))
		return
	}
	if err := s.enter(client.addr); err != nil {
		conn.Close()
		s.options.Bounds.Met(bounds.PerftestClients, client.addr.String())
		s.othersKeepOut(api.ConnectionRefused, client.addr, err.Error())
		s.reject(client.addr, err)
		return
	}
	record := s.remember(Session{Client: client.addr, Began: time.Now()})
	s.tasks.Go(func() { s.run(ctx, client, record) })
}

// enter counts a client, or refuses it because there are too many.
func (s *service) enter(client netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, n := range s.clients {
		all += n
	}
	switch {
	case s.clients[client] >= MaxOfAClient:
		return refuse("%d clients of %v are connected already; wait until one has ended", MaxOfAClient, client)
	case all >= MaxClients:
		return refuse("%d clients are connected already; wait until one has ended", MaxClients)
	}
	s.clients[client]++
	return nil
}

// forget ends the count of a client. The caller holds mu.
func (s *service) forget(client netip.Addr) {
	if s.clients[client]--; s.clients[client] == 0 {
		delete(s.clients, client)
	}
}

// run runs the conversation of one client. Afterwards it removes everything of the run except the
// record.
func (s *service) run(ctx context.Context, client *side, record *Session) {
	c := &conversation{
		config: s.config, groups: s.options.Groups, limits: s.limits,
		client: client, connected: record.Began, slot: s.slot, nextQPN: s.nextQPN,
		note: func(change func(*Session)) { s.change(record, change) }, expects: func(ends time.Time, unless string) { s.expects(record, ends, unless) },
		holds: func() { s.hold(record, client) }, holder: s.holder,
	}
	running, cancel := context.WithCancel(ctx)
	c.listenTo(running, client)
	err := c.run(running)
	cancel()
	c.hangUp()
	s.removeGroups(ctx, c.made)
	s.over(c.qps)
	if err != nil && c.running() {
		s.endAll(c.qps)
	}
	if c.hasSlot {
		s.hold(nil, nil)
		<-s.slot
	}
	if err != nil && client.isSilent() { // after its farewell the silence of a client is no news
		s.event(api.ConnectionSilent, client.addr, err.Error()) // first: who sees that the run is over knows why
	}
	s.change(record, func(r *Session) {
		r.end(err)
		s.forget(r.Client) // who sees that the run is over may connect
	})
}

// hold notes which run is on.
func (s *service) hold(record *Session, client *side) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.onClient = record, client
}

func (s *service) holder() *side {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.onClient
}

// expects notes when a run ends if its sides do not go on.
func (s *service) expects(record *Session, ends time.Time, unless string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record.Ends, record.Unless = ends, unless
}

// holding says whose run others wait for, and when it ends. The caller holds mu.
func (s *service) holding() string {
	if s.on == nil {
		return ""
	}
	text := fmt.Sprintf("the run of %v has not ended", s.on.Client)
	if s.on.Ends.IsZero() {
		return text
	}
	return fmt.Sprintf("%s; it ends in %s unless %s", text, groupip.InWords(time.Until(s.on.Ends)), s.on.Unless)
}

func (s *service) event(kind api.EventKind, client netip.Addr, cause string) {
	if s.options.AddEvent != nil {
		s.options.AddEvent(api.Event{Kind: kind, Member: client.String(), Cause: fmt.Sprintf("by perftest at %v: %s", s.config.GroupIP, cause)})
	}
}

// othersKeepOut adds an event about a client that is refused because of others, or waits for them.
// A host can connect again and again, so there is one such event per rejectPause at most.
func (s *service) othersKeepOut(kind api.EventKind, client netip.Addr, cause string) {
	s.mu.Lock()
	recently := time.Since(s.told) < rejectPause
	if !recently {
		s.told = time.Now()
	}
	s.mu.Unlock()
	if !recently {
		s.event(kind, client, cause)
	}
}

func (s *service) removeGroups(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.remove)
	defer cancel()
	for _, name := range names {
		if err := s.options.Groups.Remove(ctx, name); err != nil {
			s.log.Error("could not remove a perftest group", zap.String("group", name), zap.Error(err))
		}
	}
}

// end records how a run ended.
func (r *Session) end(err error) {
	r.State, r.Reason, r.Groups, r.Ended = Ended, "", nil, time.Now()
	r.Ends, r.Unless = time.Time{}, ""
	if err != nil {
		r.Reason = err.Error()
	}
	if isRefusal(err) {
		r.State = Refused
	}
}

// reject records a client that gets no conversation. A host can connect again and again, so
// reject records at most one client per rejectPause.
func (s *service) reject(client netip.Addr, reason error) {
	s.mu.Lock()
	recently := time.Since(s.turnedAway) < rejectPause
	if !recently {
		s.turnedAway = time.Now()
	}
	s.mu.Unlock()
	if !recently {
		s.change(s.remember(Session{Client: client, Began: time.Now()}), func(r *Session) { r.end(reason) })
	}
}

// rejectPause is the minimum time between two records of clients that were turned away.
const rejectPause = 10 * time.Second

// remember adds a session. If there are too many sessions, remember forgets the oldest session that
// is over. Such a session always exists, because MaxClients is less than MaxSessions.
func (s *service) remember(session Session) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == MaxSessions {
		oldest := slices.IndexFunc(s.sessions, func(r *Session) bool { return r.State.IsOver() })
		s.sessions = slices.Delete(s.sessions, oldest, oldest+1)
	}
	s.sessions = append(s.sessions, &session)
	return &session
}

// change changes a session, and logs the state that the session is in then: waiting, running or
// over. A session of these states changes only by going to the next state.
func (s *service) change(record *Session, change func(*Session)) {
	s.mu.Lock()
	change(record)
	now, why := *record, s.holding()
	s.mu.Unlock()
	log := s.log.With(zap.Stringer("client", now.Client))
	switch now.State {
	case Waiting:
		log.Info("perftest client waits until the previous run ends", zap.String("reason", why))
		s.othersKeepOut(api.ConnectionWaits, now.Client, why)
	case Running:
		log.Info("perftest run began", zap.Int("queuePairs", now.QPs), zap.Int("receivers", len(s.config.Receivers)), zap.Int("pathMTU", now.PathMTU))
	case Ended:
		log.Info("perftest run ended", zap.String("reason", now.Reason))
	case Refused:
		log.Warn("perftest run refused", zap.String("reason", now.Reason))
	}
}

func (s *service) list() Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Service{Config: s.config}
	for _, session := range s.sessions {
		now := *session
		if now.State == Waiting {
			now.Reason = s.holding()
		}
		l.Sessions = append(l.Sessions, now)
	}
	return l
}

// nextQPN returns a QPN that no group of the service has had for a long time. Queue pairs of an
// ended run may still send packets, and these packets must not reach the groups of the next run.
func (s *service) nextQPN() roce.QPN {
	const first, last = 0x100, 0xFFFFFE
	if s.lastQPN++; s.lastQPN < first || s.lastQPN > last {
		s.lastQPN = first
	}
	return s.lastQPN
}

// Stop ends the service and its runs.
func (s *service) Stop() {
	s.cancel(errDown)
	s.listener.Close()
	s.tasks.Wait()
	s.release()
}
