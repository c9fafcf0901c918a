package cm

import (
	"fmt"
	"net/netip"
	"slices"

	wire "github.com/rocast/rocast/roce/cm"
)

// hearREQ takes a request of a source. What is refused here leaves nothing behind.
func (m *Machine) hearREQ(from netip.Addr, tid uint64, req *wire.REQ) {
	key := sourceKey{from, req.LocalCommID, req.CAGUID}
	if c := m.byKey[key]; c != nil {
		m.hearREQAgain(c)
		return
	}
	no := m.config.objection(from, req)
	if no == nil {
		no = m.objectionNow(from, req)
	}
	if no != nil {
		m.counts[no.counter]++
		if no.counter == TooMany {
			m.notify(Refused, from, no.says)
		}
		m.do(Send{from, wire.MAD{Header: wire.Header{TID: tid}, Message: &wire.REJ{
			Pair: wire.Pair{Remote: req.LocalCommID}, Reason: no.why, PrivateData: inPrivate(no.says),
		}}})
		return
	}
	m.begin(key, tid, req)
}

// refusal is why a REQ is refused: as the host hears it, as it is counted, and in a sentence.
type refusal struct {
	why     wire.Reason
	counter Counter
	says    string
}

// inPrivate returns a sentence as private data, which Linux hands to the program with the reason.
// It ends with a 0.
func inPrivate(says string) (b [148]byte) {
	copy(b[:len(b)-1], says)
	return b
}

// objectionNow returns why a REQ is refused now that is otherwise served; nil: it is not.
func (m *Machine) objectionNow(from netip.Addr, req *wire.REQ) *refusal {
	if old := m.connected(from, req); old != nil {
		m.end(old, "the source's queue pair asked for another connection", wire.StaleConnection)
		return &refusal{wire.StaleConnection, Stale, "this queue pair was connected, and the box has ended that connection; connect again"}
	}
	if err := m.mayEnter(from); err != nil {
		return &refusal{wire.NoResources, TooMany, err.Error()}
	}
	return nil
}

// hearREQAgain answers a REQ that has arrived before, or that was sent before its answer arrived.
func (m *Machine) hearREQAgain(c *connection) {
	switch c.state {
	case Waiting, Asking, Making:
		m.counts[Repeated]++
		m.wait(c)
	case Offered:
		m.again(c.source)
	case Over:
		if c.isRefused {
			m.again(c.source)
			return
		}
		m.counts[Stale]++
		m.do(Send{c.key.addr, wire.MAD{Header: wire.Header{TID: c.source.tid}, Message: m.rej(c.source, wire.AnswersREQ, wire.StaleConnection)}})
	default: // a late copy
		m.counts[Repeated]++
	}
}

// objection returns why a REQ cannot be served; nil: it can.
func (c *Config) objection(from netip.Addr, req *wire.REQ) *refusal {
	var header wire.IPHeader
	switch {
	case !c.Allows(from):
		return &refusal{wire.InvalidServiceID, Stranger, fmt.Sprintf("%v is in none of the networks that may connect", from)}
	case req.ServiceID != wire.ServiceID(c.Port) || !header.Decode(&req.PrivateData):
		return &refusal{wire.InvalidServiceID, OtherService, fmt.Sprintf("%v answers RDMA-CM at port %d alone", c.GroupIP, c.Port)}
	case req.Transport != 0:
		return &refusal{wire.InvalidTransport, OtherKind, "a group carries RC alone"}
	case req.Primary.LocalGID != wire.GIDOf(from) || header.Src != from || header.Dst != c.GroupIP || req.QPN <= wire.QPN:
		return &refusal{wire.InvalidGID, WrongAddress, fmt.Sprintf("the request is not from %v to %v by its GIDs and IPs", from, c.GroupIP)}
	case req.PathMTU < 1 || req.PathMTU > 5:
		return &refusal{wire.InvalidPathMTU, WrongMTU, fmt.Sprintf("there is no path MTU %d", req.PathMTU)}
	case c.receivers(req) == nil:
		return &refusal{wire.ConsumerDefined, WrongReceivers, "the request names receivers that the service does not have, or too few"}
	}
	return nil
}

// receivers returns the receivers to which a source connects, or nil if it may not connect to what
// its REQ names. Where sources choose, the private data behind the header of RDMA-CM has up to 14
// IPv4 addresses, each once, and zeros behind them, as P4CE has them: 56 bytes.
func (c *Config) receivers(req *wire.REQ) (l []netip.Addr) {
	if !c.Choose {
		return c.Receivers
	}
	list, ends := req.PrivateData[wire.IPHeaderBytes:], false
	for ; len(list) >= 4; list = list[4:] {
		ip := netip.AddrFrom4([4]byte(list))
		switch {
		case ip == netip.IPv4Unspecified():
			ends = true
		case ends, !slices.Contains(c.Receivers, ip), slices.Contains(l, ip):
			return nil
		default:
			l = append(l, ip)
		}
	}
	if len(l) < c.needed(len(l)) {
		return nil
	}
	return l
}

// begin makes a connection. While the receivers serve another source it waits.
func (m *Machine) begin(key sourceKey, tid uint64, req *wire.REQ) {
	c := m.book.begin(key, tid, req)
	c.began, c.mra = m.wall(), m.now+m.limits.again
	if m.run.isBusy(key.addr) {
		m.contend(c)
		return
	}
	m.admit(c)
}

// admit asks the receivers of a connection that the source's packets can reach. Nobody is asked if
// these are too few. No answer of the box could make the packets shorter: a queue pair has the path
// MTU of its REQ at both ends.
func (m *Machine) admit(c *connection) {
	c.state, c.deadline, c.qpn = Asking, m.now+m.limits.asking, m.nextQPN()
	for _, ip := range m.config.receivers(c.req) {
		c.receivers = append(c.receivers, m.add(c, ip))
	}
	m.enter(c)
	var unfit []*side
	for _, s := range c.sides {
		if s.why != 0 {
			unfit = append(unfit, s)
		}
	}
	if len(unfit) > 0 && (unfit[0].isSource || len(c.receivers)-len(unfit) < m.config.needed(len(c.receivers))) {
		for _, r := range c.receivers {
			r.settle(gone)
		}
		m.endAs(c, unfit[0])
		return
	}
	for _, r := range c.receivers {
		if r.why != 0 {
			r.settle(gone)
			continue
		}
		m.insist(r, c.reqFor(r, &m.config, m.seed.guid), m.limits.tries)
	}
}

// reqFor returns the REQ for a receiver: that of the source, from the group. Options of vendors are
// left out, because the box does not know what they change on the wire.
func (c *connection) reqFor(r *side, config *Config, guid uint64) *wire.REQ {
	req := *c.req
	req.LocalCommID, req.VendorID, req.CAGUID, req.QPN = r.pair.Local, 0, r.guid(guid), c.qpn
	req.FlowControl = false
	req.Primary.LocalGID, req.Primary.RemoteGID = wire.GIDOf(config.GroupIP), wire.GIDOf(r.addr)
	req.Second = wire.Path{}
	var header wire.IPHeader
	header.Decode(&req.PrivateData)
	header.Src, header.Dst = config.GroupIP, r.addr
	header.Put(&req.PrivateData)
	if config.Choose { // the list is for the box
		clear(req.PrivateData[wire.IPHeaderBytes:])
	}
	return &req
}
