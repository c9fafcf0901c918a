package cm

import (
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
	why, counter := m.config.objection(from, req)
	if why == 0 {
		if old := m.connected(from, req); old != nil {
			why, counter = wire.StaleConnection, Stale
			m.end(old, "the source's queue pair asked for another connection", wire.StaleConnection)
		} else if m.isFull(from) || m.run.isBusy(from) {
			why, counter = wire.NoResources, TooMany
		}
	}
	if why != 0 {
		m.counts[counter]++
		m.do(Send{from, wire.MAD{Header: wire.Header{TID: tid}, Message: &wire.REJ{Pair: wire.Pair{Remote: req.LocalCommID}, Reason: why}}})
		return
	}
	m.begin(key, tid, req)
}

// hearREQAgain answers a REQ that has arrived before, or that was sent before its answer arrived.
func (m *Machine) hearREQAgain(c *connection) {
	switch c.state {
	case Asking, Making:
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

// wait asks the source to wait, for as long as the receivers may take.
func (m *Machine) wait(c *connection) {
	const code = 23 // 34 s
	c.mra = 0
	mra := &wire.MRA{Pair: c.source.pair, Answers: wire.AnswersREQ, ServiceTimeout: code}
	m.do(Send{c.source.addr, wire.MAD{Header: wire.Header{TID: c.source.tid}, Message: mra}})
}

// objection returns why a REQ cannot be served; 0: it can.
func (c *Config) objection(from netip.Addr, req *wire.REQ) (wire.Reason, Counter) {
	var header wire.IPHeader
	switch {
	case !c.Allows(from):
		return wire.InvalidServiceID, Stranger
	case req.ServiceID != wire.ServiceID(c.Port) || !header.Decode(&req.PrivateData):
		return wire.InvalidServiceID, OtherService
	case req.Transport != 0:
		return wire.InvalidTransport, OtherKind
	case req.Primary.LocalGID != wire.GIDOf(from) || header.Src != from || header.Dst != c.GroupIP || req.QPN <= wire.QPN:
		return wire.InvalidGID, WrongAddress
	case req.PathMTU < 1 || req.PathMTU > 5:
		return wire.InvalidPathMTU, WrongMTU
	case c.receivers(req) == nil:
		return wire.ConsumerDefined, WrongReceivers
	}
	return 0, 0
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

// isFull reports whether one more connection of a source is too many. It forgets the oldest
// connection that is over, if that makes room.
func (m *Machine) isFull(from netip.Addr) bool {
	all, own := 0, 0
	for _, c := range m.busy {
		if c.state.isHandshake() {
			all++
			if c.key.addr == from {
				own++
			}
		}
	}
	if m.isDown || all >= MaxHandshakes || own >= maxOfASource {
		return true
	}
	if len(m.conns) < min(MaxConnections, maxSides/len(m.config.Receivers)) {
		return false
	}
	if len(m.over) == 0 {
		return true
	}
	m.forgetOldest()
	return false
}

// begin makes a connection and asks its receivers.
func (m *Machine) begin(key sourceKey, tid uint64, req *wire.REQ) {
	c := m.book.begin(key, tid, req, m.config.receivers(req))
	c.began, c.mra, c.deadline = m.wall(), m.now+m.limits.again, m.now+m.limits.asking
	m.enter(c)
	m.invite(c)
}

// invite sends a REQ to each receiver that the source's packets can reach. Nobody is asked if these
// are too few. No answer of the box could make the packets shorter: a queue pair has the path MTU
// of its REQ at both ends.
func (m *Machine) invite(c *connection) {
	var unfit []*side
	for _, s := range c.sides {
		if err := m.ways.Hold(s.addr, c.pathMTU()); err != nil {
			s.why, s.cause = wire.InvalidPathMTU, err.Error()
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
		m.insist(r, m.reqFor(c, r))
	}
}

// reqFor returns the REQ for a receiver: that of the source, from the group. Options of vendors are
// left out, because the box does not know what they change on the wire.
func (m *Machine) reqFor(c *connection, r *side) *wire.REQ {
	req := *c.req
	req.LocalCommID, req.VendorID, req.CAGUID, req.QPN = r.pair.Local, 0, r.guid(m.seed.guid), c.qpn
	req.FlowControl = false
	req.Primary.LocalGID, req.Primary.RemoteGID = wire.GIDOf(m.config.GroupIP), wire.GIDOf(r.addr)
	req.Second = wire.Path{}
	var header wire.IPHeader
	header.Decode(&req.PrivateData)
	header.Src, header.Dst = m.config.GroupIP, r.addr
	header.Put(&req.PrivateData)
	if m.config.Choose { // the list is for the box
		clear(req.PrivateData[wire.IPHeaderBytes:])
	}
	return &req
}
