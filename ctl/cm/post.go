package cm

import (
	"net/netip"
	"slices"
	"time"

	wire "github.com/rocast/rocast/roce/cm"
)

// post is what one step of a Machine has to send, what there is to tell of it, and when it is.
type post struct {
	limits  limits
	start   time.Time
	now     time.Duration
	actions []Action
	news    []*connection // established or ended by this step
	notes   []Note        // of what else happened
	counts  Counts
}

func (p *post) do(a Action) { p.actions = append(p.actions, a) }

// say sends a message once. The other side repeats its own message if this one is lost.
func (p *post) say(s *side, message wire.Message) {
	mad := &wire.MAD{Header: wire.Header{TID: s.tid}, Message: message}
	s.cached = mad
	p.do(Send{s.addr, *mad})
}

// insist sends a message until it is answered, or so many copies of it.
func (p *post) insist(s *side, message wire.Message, copies int) {
	p.say(s, message)
	s.retry, s.tries, s.due = s.cached, copies-1, p.now+p.limits.again
}

// confirm tells a receiver that it is connected.
func (p *post) confirm(r *side) {
	p.do(Send{r.addr, wire.MAD{Header: wire.Header{TID: r.tid}, Message: &wire.RTU{Pair: r.pair}}})
}

// again answers a message that has arrived before.
func (p *post) again(s *side) {
	p.counts[Repeated]++
	if s.cached != nil {
		p.do(Send{s.addr, *s.cached})
	}
}

func (p *post) transmit(s *side, packets []Packet) {
	for _, packet := range packets {
		p.do(Transmit{s.addr, packet})
	}
}

func (p *post) isNews(c *connection) {
	if !slices.Contains(p.news, c) {
		p.news = append(p.news, c)
	}
}

// Note is something that the operator is told of a source, besides what becomes of connections.
type Note struct {
	Kind   NoteKind
	Source netip.Addr
	Says   string
}

// NoteKind is what a Note is about.
type NoteKind uint8

const (
	Refused  NoteKind = iota // the source was refused because of others, at once or when it had waited
	Silent                   // it does not answer
	Returned                 // it answers again
)

func (p *post) notify(k NoteKind, source netip.Addr, says string) {
	p.notes = append(p.notes, Note{k, source, says})
}

func (p *post) wall() time.Time { return p.start.Add(p.now) }

// isDue reports whether a time has come; 0 never does.
func (p *post) isDue(at time.Duration) bool { return at > 0 && p.now >= at }

// wait asks the source to wait, for as long as the receivers may take.
func (p *post) wait(c *connection) {
	const code = 23 // 34 s
	c.mra = 0
	mra := &wire.MRA{Pair: c.source.pair, Answers: wire.AnswersREQ, ServiceTimeout: code}
	p.do(Send{c.source.addr, wire.MAD{Header: wire.Header{TID: c.source.tid}, Message: mra}})
}
