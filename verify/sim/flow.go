package sim

import (
	"time"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/roce"
)

// Flow is a unicast transfer beside the group: host From writes to host To, by the same links. Its
// program always has something to send.
type Flow struct {
	From, To     int
	Begin, Until time.Duration
}

// sharing is a world in which a group shares links with flows. The switch only forwards what is not
// the group's, as a bridge does.
type sharing struct {
	w     world
	flows []Flow
	ends  []flowEnd // flow i is from ends[2i] to ends[2i+1]
}

// flowEnd is one end of a flow.
type flowEnd struct {
	host     *host
	qp       *rnic.QP
	memory   rnic.Memory
	number   int // in sharing.ends
	posted   uint64
	sending  bool // a flowSends event is scheduled
	expireAt time.Duration
}

const (
	flowQPN          = roce.QPN(0x1000) // of end 0
	flowMessageBytes = 64 << 10
	flowOutstanding  = 16

	// flowStream is the stream of the frames of end 0; that of end n is n lower.
	flowStream = noStream - 1
)

// open makes everything that a run of s with flows needs.
func (s *sharing) open(scenario *Scenario, flows []Flow) error {
	if err := s.w.open(scenario); err != nil {
		return err
	}
	s.flows, s.ends = flows, make([]flowEnd, 2*len(flows))
	for i := range flows {
		pair := s.ends[2*i:][:2]
		for k, host := range []int{flows[i].From, flows[i].To} {
			if err := s.openEnd(&pair[k], 2*i+k, &s.w.hosts[host]); err != nil {
				return err
			}
		}
		for k, to := range []*flowEnd{&pair[1], &pair[0]} {
			if err := pair[k].qp.Connect(s.w.peer(to.host.number, flowQPN+roce.QPN(to.number))); err != nil {
				return err
			}
		}
		s.w.schedule.add(event{at: flows[i].Begin, kind: flowBegins, index: int32(i)})
	}
	return nil
}

func (s *sharing) openEnd(e *flowEnd, number int, h *host) (err error) {
	c := s.w.s
	*e = flowEnd{host: h, number: number, expireAt: rnic.Never}
	region := rnic.Region{VA: virtualVA, RKey: virtualRKey, Access: rnic.RemoteWrite, Bytes: make([]byte, flowMessageBytes)}
	if err := e.memory.Register(region); err != nil {
		return err
	}
	cfg := rnic.Config{
		MAC: hostMAC(h.number), IP: s.w.address(h.number), QPN: flowQPN + roce.QPN(number), MTUBytes: c.MTUBytes,
		Timeout: c.Timeout, RetryCount: c.RetryCount, RNRRetry: c.RNRRetry, SendDepth: flowOutstanding, RecvDepth: 1,
		CNPInterval: c.CNPInterval, RateControl: c.RateControl,
	}
	if c.CNPInterval > 0 {
		cfg.TrafficClass = ecnCapable
	}
	e.qp, err = rnic.NewQP(cfg, &e.memory)
	return err
}

// run lets events happen until a time, and calls sample at the end of each period.
func (s *sharing) run(until, period time.Duration, sample func()) error {
	w := &s.w
	w.start(&w.hosts[0])
	for next := period; w.failure == nil; {
		e, ok := w.schedule.next()
		for ; next <= until && (!ok || e.at >= next); next += period {
			sample()
		}
		if !ok || next > until {
			return nil
		}
		w.now = e.at
		if !s.handle(&e) {
			w.handle(&e)
		}
		w.checkConserved()
	}
	return w.failure
}

// handle handles events of flows, and reports whether e was one.
func (s *sharing) handle(e *event) bool {
	w := &s.w
	switch e.kind {
	case flowBegins:
		s.post(&s.ends[2*e.index])
	case flowSends:
		end := &s.ends[e.index]
		end.sending = false
		s.pump(end)
	case flowExpires:
		s.expired(&s.ends[e.index])
	case atSwitch, atHost:
		f := w.pool.frames[e.index]
		if f.stream > flowStream {
			return false
		}
		end := &s.ends[flowStream-f.stream]
		if e.kind == atHost {
			end.host.toHost.arrive()
			s.receive(end, e.index)
			return true
		}
		w.hosts[e.host].toSwitch.arrive()
		w.send(&end.host.toHost, e.index)
	default:
		return false
	}
	return true
}

// post posts as many messages as the program of a flow wants outstanding.
func (s *sharing) post(e *flowEnd) {
	for s.w.now < s.flows[e.number/2].Until {
		to := rnic.Remote{VA: virtualVA, RKey: virtualRKey}
		if e.qp.PostWrite(e.posted, page[:flowMessageBytes], to) != nil {
			break // as many as fit into the queue
		}
		e.posted++
	}
	s.pump(e)
}

// pump sends the next packet if the link is idle, and otherwise schedules itself for when the link
// will be idle.
func (s *sharing) pump(e *flowEnd) {
	w, l := &s.w, &e.host.toSwitch
	if e.sending {
		return
	}
	if l.freeAt <= w.now {
		i := w.pool.lend()
		b := e.qp.Transmit(w.now, w.pool.frames[i].room())
		s.send(e, i, b)
		s.watchDeadline(e)
		if b == nil {
			return
		}
	}
	e.sending = true
	w.schedule.add(event{at: max(l.freeAt, w.now+1), kind: flowSends, index: int32(e.number)})
}

// send sends frame i to the other end, which a queue pair has built as b. If b is nil, the frame is
// given back.
func (s *sharing) send(e *flowEnd, i int32, b []byte) {
	if b != nil {
		s.w.pool.frames[i].stream = int32(flowStream - (e.number ^ 1))
	}
	s.w.sendBuilt(e.host, i, b)
}

// receive hands frame i to the queue pair of an end, and sends what the queue pair answers.
func (s *sharing) receive(e *flowEnd, i int32) {
	w := &s.w
	answer, notification := w.pool.lend(), w.pool.lend()
	s.send(e, answer, e.qp.Receive(w.now, w.pool.frames[i].data(), w.pool.frames[answer].room()))
	s.send(e, notification, e.qp.Notify(w.pool.frames[notification].room()))
	w.pool.giveBack(i)
	s.afterQP(e)
}

// afterQP takes the completions of a queue pair, and lets its program go on.
func (s *sharing) afterQP(e *flowEnd) {
	for {
		c, ok := e.qp.Poll()
		if !ok {
			break
		}
		if c.Status != rnic.Success {
			s.w.fail(Ends, "flow %d: %v", e.number/2, c)
		}
	}
	if e.number%2 == 0 {
		s.post(e)
	}
}

// watchDeadline schedules a flowExpires event for the next deadline of a queue pair.
func (s *sharing) watchDeadline(e *flowEnd) {
	if d := e.qp.NextDeadline(); d < e.expireAt {
		e.expireAt = d
		s.w.schedule.add(event{at: d, kind: flowExpires, index: int32(e.number)})
	}
}

func (s *sharing) expired(e *flowEnd) {
	if s.w.now < e.expireAt {
		return // an earlier event replaced this one
	}
	e.expireAt = rnic.Never
	e.qp.Tick(s.w.now)
	s.afterQP(e)
}
