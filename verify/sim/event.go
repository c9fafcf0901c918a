package sim

import "time"

type eventKind uint8

const (
	atSwitch      eventKind = iota // a frame of host arrives at the switch
	atHost                         // a frame arrives at host
	atFarOfHost                    // a frame of host arrives at the far box
	atFar                          // a frame of the switch arrives at the far box
	fromFar                        // a frame of host arrives at the switch, by way of the far box
	transmit                       // the link of source host is idle, so the next packet may go out
	expire                         // a deadline of source host, which may have moved since
	post                           // the program of source host posts messages
	repost                         // the program of host posts a receive again
	tick                           // the core is ticked
	faultBegins                    // timed fault number index begins
	faultEnds                      // timed fault number index ends
	confirms                       // the program of host says again that its queue pair is ready
	poll                           // the kernel looks at the port of host
	look                           // the core looks at the frames that wait for it
	arm                            // the core has done with what it looked at
	adopt                          // control tells the core of a change of the group
	sharesAnew                     // control has heard who takes part, and lets the receivers share as they do now
	takesTurn                      // control asks for the turn that a member waits for
	turnStored                     // control has stored it
	turnBegins                     // control lets it begin
	asksAbove                      // in a tree: a question of box host for what it is to map comes to the box above
	loadsMappings                  // in a tree: the answer comes to box host
	flowBegins                     // the program of flow index begins
	flowSends                      // the link of end index of a flow is idle, so the next packet may go out
	flowExpires                    // a deadline of end index of a flow, which may have moved since
)

// event is something that happens at a time. Events of equal times happen in the order of
// scheduling, so a run is the same every time.
type event struct {
	at       time.Duration
	sequence uint64
	kind     eventKind
	host     int32
	index    int32 // a frame or a fault
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.sequence < f.sequence
}

// schedule is a binary heap of future events. (container/heap would box every event.)
type schedule struct {
	heap     []event
	sequence uint64
}

func (s *schedule) reset() { s.heap, s.sequence = s.heap[:0], 0 }

func (s *schedule) add(e event) {
	e.sequence = s.sequence
	s.sequence++
	h := append(s.heap, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	s.heap = h
}

// next takes the earliest event.
func (s *schedule) next() (e event, ok bool) {
	h := s.heap
	if len(h) == 0 {
		return e, false
	}
	e = h[0]
	n := len(h) - 1
	last := h[n]
	h = h[:n]
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if n > 0 {
		h[i] = last
	}
	s.heap = h
	return e, true
}
