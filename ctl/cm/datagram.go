package cm

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	wire "github.com/rocast/rocast/roce/cm"
)

// datagrams is how a run ends whose source asks for UD (-c UD). The receivers' programs wait until
// they are asked for it too, and look at nothing else before. So they are asked: then they talk on
// the control connection again, and hear there that the run has ended.
type datagrams struct {
	req     wire.SIDRREQ
	waiting []*side       // receivers whose programs have not answered
	left    int           // times that they are asked
	due     time.Duration // when they are asked next
}

var errDatagrams = errors.New("the source connects by UD, as -c UD makes it; a group carries RC alone, so run ib_write_bw or ib_send_bw without -c")

// hearSIDR answers a program that asks for a UD queue pair: it hears at once that there is none.
func (m *Machine) hearSIDR(e Heard, req *wire.SIDRREQ) {
	m.counts[OtherKind]++
	m.do(Send{e.From, wire.MAD{Header: e.MAD.Header, Message: &wire.SIDRREP{
		RequestID: req.RequestID, Status: wire.ServiceUnsupported, ServiceID: req.ServiceID,
	}}})
	r := m.run
	if r == nil || r.datagrams != nil || r.control.key.addr != e.From || !r.talk.ExpectsConnections() || uint16(req.ServiceID) != m.config.Port {
		return // another program on the same host may ask, too
	}
	r.datagrams = &datagrams{req: *req, waiting: slices.Clone(r.control.receivers), left: int(m.limits.listen / m.limits.early)}
	m.askForUD()
}

// askForUD asks the receivers, or ends the run if they were asked often enough: their programs may
// take a moment until they listen.
func (m *Machine) askForUD() {
	d := m.run.datagrams
	if d.left == 0 || len(d.waiting) == 0 {
		m.hangUp(m.run.control, errDatagrams)
		return
	}
	d.left--
	d.due = m.now + m.limits.early
	for _, s := range d.waiting {
		req := d.req
		header := wire.IPHeader{}
		header.Decode((*[92]byte)(req.PrivateData[:]))
		header.Src, header.Dst = m.config.GroupIP, s.addr
		header.Put((*[92]byte)(req.PrivateData[:]))
		m.seed.tid++
		m.do(Send{s.addr, wire.MAD{Header: wire.Header{TID: m.seed.tid}, Message: &req}})
	}
}

// hearUD takes a receiver's answer.
func (m *Machine) hearUD(from netip.Addr, rep *wire.SIDRREP) {
	if m.run == nil || m.run.datagrams == nil {
		m.counts[Unexpected]++
		return
	}
	d := m.run.datagrams
	if rep.Status != 0 { // its program does not listen yet
		return
	}
	if d.waiting = slices.DeleteFunc(d.waiting, func(s *side) bool { return s.addr == from }); len(d.waiting) == 0 {
		m.askForUD()
	}
}

// udDue is when the receivers are asked again; 0: they are not.
func (r *run) udDue() time.Duration {
	if r == nil || r.datagrams == nil {
		return 0
	}
	return r.datagrams.due
}
