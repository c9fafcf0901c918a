package cm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	wire "github.com/rocast/rocast/roce/cm"
)

// service answers at one group IP.
type service struct {
	config  Config
	options Options
	log     *zap.Logger
	socket  *socket
	release func() // removes the group IP from the box
	limits  limits
	began   time.Time
	tasks   sync.WaitGroup

	mu          sync.Mutex
	machine     *Machine
	refused     Refusal
	refusalTold time.Time   // when the log has told of a refusal
	alarm       *time.Timer // for what Machine.Next says
	changed     chan struct{}

	trouble atomic.Pointer[Trouble]
}

// listen hears the hosts until the socket is closed.
func (s *service) listen() {
	for {
		event, err, lost := s.socket.receive()
		switch {
		case lost != nil:
			return
		case err != nil:
			s.miscount(err)
		default:
			s.step(event)
		}
	}
}

func (s *service) miscount(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, wire.ErrICRC) {
		s.machine.counts[WrongICRC]++
		return
	}
	s.machine.counts[NotMAD]++
}

// step tells the machine what happened, and does what it says.
func (s *service) step(event Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	actions := s.machine.Step(time.Since(s.began), event)
	s.logNews() // before a host hears of it: its operator may look at once
	if slices.ContainsFunc(actions, asksReceiver) {
		s.options.Addresses.Announce(s.config.GroupIP) // the receiver's answer goes there
	}
	for _, action := range actions {
		switch a := action.(type) {
		case Send:
			if s.socket.send(a.To, &a.MAD) != nil { // as if it had been lost
				s.machine.counts[NotSent]++
			}
		case Transmit:
			if s.socket.transmit(a.To, &a.Packet) != nil {
				s.machine.counts[NotSent]++
			}
		case Make:
			s.tasks.Go(func() { s.step(Made{a.Connection, s.options.Groups.Create(context.Background(), a.File)}) })
		case Count:
			s.tasks.Go(func() {
				sources, receivers := s.options.Groups.Sent(a.Groups)
				s.step(Counted{a.Connection, sources, receivers})
			})
		case Leave:
			s.tasks.Go(func() { s.leave(a) })
		case Remove:
			s.tasks.Go(func() { s.remove(a) })
		}
	}
	if at, ok := s.machine.Next(); ok {
		s.alarm.Reset(time.Until(s.began.Add(at)))
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// asksReceiver reports whether the action is a REQ, which only receivers are sent.
func asksReceiver(action Action) bool {
	send, ok := action.(Send)
	return ok && send.MAD.Message.Attribute() == wire.AttrREQ
}

func (s *service) remove(a Remove) {
	s.step(Removed{a.Connection, s.options.Groups.Saw(a.Group)})
	if err := s.options.Groups.Remove(context.Background(), a.Group); err != nil {
		s.log.Error("could not remove the group of an RDMA-CM connection", zap.String("group", a.Group), zap.Error(err))
	}
}

// leave takes a receiver out of a group. Nothing is wrong if that ends meanwhile.
func (s *service) leave(a Leave) {
	err := s.options.Groups.Leave(context.Background(), a.Group, a.Receiver)
	s.mu.Lock()
	c := s.machine.conns[a.Connection]
	isOn := c != nil && c.state < Ending
	s.mu.Unlock()
	if err != nil && isOn {
		s.log.Warn("a receiver that has disconnected is still in the group of its RDMA-CM connection", zap.String("group", a.Group),
			zap.Stringer("receiver", a.Receiver), zap.Error(err))
	}
}

// logNews logs the connections that the last step has established or ended.
func (s *service) logNews() {
	for _, c := range s.machine.news {
		log := s.log.With(zap.Stringer("source", c.key.addr), zap.Uint32("groupQPN", uint32(c.qpn)))
		switch {
		case c.state == Established:
			log.Info("RDMA-CM connection established", zap.Int("receivers", c.count(open)), zap.Strings("without", c.causes()))
		case c.isRefused:
			log.Warn("RDMA-CM connection refused", zap.String("reason", c.reason))
		default:
			log.Info("RDMA-CM connection ended", zap.String("reason", c.reason))
		}
	}
	for _, n := range s.machine.notes {
		s.note(n)
	}
	if len(s.machine.news)+len(s.machine.notes) > 0 {
		s.publish()
	}
}

// Stop ends every connection, gives the hosts a moment to hear of it, and closes the socket.
func (s *service) Stop() {
	s.step(Down{"taken down by the box's operator"})
	late := time.After(s.limits.goodbye)
	for waiting := true; waiting; {
		s.mu.Lock()
		waiting = !s.machine.isIdle()
		s.mu.Unlock()
		if waiting {
			select {
			case <-s.changed:
			case <-late:
				waiting = false
			}
		}
	}
	s.socket.close()
	s.tasks.Wait()
	s.mu.Lock()
	s.alarm.Stop() // a task may have set it
	s.machine.close()
	s.mu.Unlock()
	s.release()
}
