package cm

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/roce"
	wire "github.com/rocast/rocast/roce/cm"
)

// seed has the numbers from which a Machine counts. They are random, so that no number of an
// earlier run comes again while a host still knows it.
type seed struct {
	commID uint32
	tid    uint64
	guid   uint64 // see side.guid
	qpn    roce.QPN
}

// book has the connections of a Machine, by all that messages name.
type book struct {
	seed   seed
	ways   Ways
	nextID uint64
	conns  map[uint64]*connection
	busy   map[uint64]*connection // those for which something may be due
	over   []*connection          // those that are only remembered, in the order in which they are forgotten
	byKey  map[sourceKey]*connection
	byID   map[uint32]*side // by the box's comm ID
	lines  map[lineKey]*side
	data   map[lineKey]*side // of the transfers of perftest's runs
	past   []Connection      // that are over, oldest first
}

func newBook(ways Ways, s seed) book {
	return book{
		seed: s, ways: ways, conns: map[uint64]*connection{}, busy: map[uint64]*connection{}, byKey: map[sourceKey]*connection{},
		byID: map[uint32]*side{}, lines: map[lineKey]*side{}, data: map[lineKey]*side{},
	}
}

// begin enters a connection of a source. Its receivers and the QPN come when these are asked.
func (b *book) begin(key sourceKey, tid uint64, req *wire.REQ) *connection {
	b.nextID++
	c := &connection{id: b.nextID, key: key, req: req}
	b.conns[c.id], b.busy[c.id], b.byKey[key] = c, c, c
	c.source = b.add(c, key.addr)
	c.source.isSource, c.source.tid, c.source.pair.Remote, c.source.qpn = true, tid, req.LocalCommID, req.QPN
	return c
}

// add adds a side to a connection, and holds the way to it.
func (b *book) add(c *connection, addr netip.Addr) *side {
	s := b.newSide(c, addr)
	if err := b.ways.Hold(addr, c.pathMTU()); err != nil {
		s.why, s.cause = wire.InvalidPathMTU, err.Error()
	}
	c.sides = append(c.sides, s)
	return s
}

// isIdle reports whether nothing is left to be told to anybody.
func (b *book) isIdle() bool {
	for _, c := range b.busy {
		if c.state != Over {
			return false
		}
	}
	return true
}

// all returns the connections in the order in which they began.
func (b *book) all() []*connection { return inOrder(b.conns) }

func inOrder(conns map[uint64]*connection) []*connection {
	l := make([]*connection, 0, len(conns))
	for _, c := range conns {
		l = append(l, c)
	}
	slices.SortFunc(l, func(a, b *connection) int { return int(a.id) - int(b.id) })
	return l
}

// connected returns the connection that the queue pair of a REQ has already.
func (b *book) connected(from netip.Addr, req *wire.REQ) *connection {
	for _, c := range b.busy {
		if c.state < Ending && c.key.addr == from && c.key.guid == req.CAGUID && c.req.QPN == req.QPN {
			return c
		}
	}
	return nil
}

// find returns the side to which a message belongs: the one whose comm ID it names, if it comes
// from that host, and if the host has not used another comm ID before.
func (b *book) find(from netip.Addr, pair wire.Pair) *side {
	s := b.byID[pair.Remote]
	if s == nil || s.addr != from || s.pair.Remote != 0 && s.pair.Remote != pair.Local {
		return nil
	}
	return s
}

// newSide adds one end of a connection, with a comm ID of its own.
func (b *book) newSide(c *connection, addr netip.Addr) *side {
	for {
		b.seed.commID++
		if b.seed.commID != 0 && b.byID[b.seed.commID] == nil {
			break
		}
	}
	b.seed.tid++
	s := &side{conn: c, addr: addr, pair: wire.Pair{Local: b.seed.commID}, tid: b.seed.tid}
	b.byID[s.pair.Local] = s
	return s
}

// nextQPN returns a QPN that no connection has had for a long time: the queue pairs of an ended
// connection may still send packets.
func (b *book) nextQPN() roce.QPN {
	const first, last = 0x100, 0xFFFFFE
	if b.seed.qpn++; b.seed.qpn < first || b.seed.qpn > last {
		b.seed.qpn = first
	}
	return b.seed.qpn
}

// remember keeps a connection that is over for late messages, until a time. There may be many of
// them, so a step looks only at the oldest one, and at those on whose lines messages may still be
// under way.
func (b *book) remember(c *connection, until time.Duration) {
	c.deadline = until
	b.over = append(b.over, c)
	if c.source.line == nil {
		delete(b.busy, c.id)
	}
}

func (b *book) forgetOldest() {
	c := b.over[0]
	b.over = slices.Delete(b.over, 0, 1)
	b.forget(c)
}

func (b *book) forget(c *connection) {
	delete(b.conns, c.id)
	delete(b.busy, c.id)
	delete(b.byKey, c.key)
	for _, s := range c.sides {
		b.ways.Release(s.addr)
		delete(b.byID, s.pair.Local)
		delete(b.lines, lineKey{s.addr, c.qpn})
		delete(b.data, lineKey{s.addr, c.qpn})
	}
	if b.past = append(b.past, c.seen()); len(b.past) > MaxPast {
		b.past = slices.Delete(b.past, 0, 1)
	}
}

// rej refuses a side. Whoever has no comm ID of the other side yet names its CA GUID instead.
func (b *book) rej(s *side, answers wire.Answered, why wire.Reason) *wire.REJ {
	rej := &wire.REJ{Pair: s.pair, Answers: answers, Reason: why}
	if s.isSource {
		rej.Pair.Local = 0 // as Linux: nothing of the connection is kept that could be named
	}
	if !s.isSource && s.pair.Remote == 0 {
		rej.Reason, rej.InfoBytes = wire.Timeout, 8
		binary.BigEndian.PutUint64(rej.Info[:], s.guid(b.seed.guid))
	}
	return rej
}

// tooMany says why one more connection of a source is too many: in all there may be most, and share
// of one source; "": it is not. It forgets the oldest connection that is over, if that makes room.
func (b *book) tooMany(from netip.Addr, most, share int) string {
	all, own, connected := 0, 0, 0
	for _, c := range b.busy {
		isOwn := c.key.addr == from && c.state != Over
		if isOwn {
			connected++
		}
		if c.state.isHandshake() {
			all++
			if isOwn {
				own++
			}
		}
	}
	switch {
	case own >= maxOfASource:
		return fmt.Sprintf("%d connections of %v are being made, as many as one source may have", own, from)
	case all >= MaxHandshakes:
		return fmt.Sprintf("%d connections are being made, as many as there may be", all)
	case connected >= share:
		return fmt.Sprintf("%v has %d connections, as many as one source may have", from, connected)
	case len(b.conns) < most:
		return ""
	case len(b.over) == 0:
		return fmt.Sprintf("there are %d connections, as many as there may be", len(b.conns))
	}
	b.forgetOldest()
	return ""
}

func (b *book) openLine(s *side, expected, next roce.PSN) {
	s.line = &line{peer: s.qpn, expected: expected, next: next}
	b.lines[lineKey{s.addr, s.conn.qpn}] = s
}
