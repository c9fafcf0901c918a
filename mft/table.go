package mft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"

	"github.com/rocast/rocast/roce"
)

// GroupID names a group in the table and in the classifier's metadata: slot in
// the low bits, and a generation above it, so that a frame classified for a
// group that is gone never meets the next one in the same slot.
type GroupID uint32

// MaxGroups is the number of slots; creating one more group is refused.
const MaxGroups = 1 << slotBits

const (
	slotBits   = 20
	pageGroups = 256 // groups in a page: what one change copies
	shardBits  = 10
	keyShards  = 1 << shardBits
)

// NoGroup is what the classifier reports for a RoCE frame to a group's IP
// whose QPN belongs to no group.
const NoGroup GroupID = 0xFFFFFFFF

// Slot is the index of the group, below MaxGroups.
func (id GroupID) Slot() int { return int(id & (MaxGroups - 1)) }

// next is the ID of the slot's next tenant. The generation that would make
// slot 2^20-1 read as NoGroup is skipped for every slot.
func (id GroupID) next() GroupID {
	n := id + MaxGroups
	if n>>slotBits == NoGroup>>slotBits {
		n += MaxGroups
	}
	return n
}

// Match says which fields of a frame a key compares.
type Match uint8

const (
	MatchDstQPN  Match = 1 + iota // destination IP and dest QPN
	MatchPairQPN                  // source IP, destination IP and dest QPN
	MatchDst                      // destination IP alone
	MatchSrc                      // source IP alone: the box speaks for it, so a frame from it is dropped
)

// Key finds a group's frames. The classifier tries MatchDstQPN, MatchPairQPN, MatchDst and MatchSrc in this order. A field
// that Match does not compare is zero.
type Key struct {
	Src, Dst netip.Addr
	QPN      roce.QPN
	Match    Match
}

// shared says whether several groups may have the key: then it names none of them.
func (k Key) shared() bool { return k.Match == MatchDst || k.Match == MatchSrc }

func (k Key) String() string {
	if k.Match == MatchPairQPN {
		return fmt.Sprintf("QPN %d from %v to %v", k.QPN, k.Src, k.Dst)
	}
	return fmt.Sprintf("%v with QPN %d", k.Dst, k.QPN)
}

// entry is a Key as the table keeps it: without the pointer that is in a
// netip.Addr, so that the garbage collector passes over the maps.
type entry struct {
	src, dst [16]byte
	qpn      roce.QPN
	match    Match
	ipv6     bool // keeps ::ffff:a.b.c.d apart from a.b.c.d
}

func (k Key) entry() entry {
	return entry{src: k.Src.As16(), dst: k.Dst.As16(), qpn: k.QPN, match: k.Match, ipv6: k.Src.Is6() || k.Dst.Is6()}
}

// shard spreads the low halves of the addresses and the rest by the golden ratio
// (Knuth vol. 3, 6.4).
func (e *entry) shard() int {
	h := binary.BigEndian.Uint64(e.dst[8:]) ^ bits.RotateLeft64(binary.BigEndian.Uint64(e.src[8:]), 16) ^
		uint64(e.qpn)<<32 ^ uint64(e.match)<<56
	return int(h * 0x9E3779B97F4A7C15 >> (64 - shardBits))
}

// Table holds the groups. The zero value is the empty table.
type Table struct {
	pages  []*page
	free   []GroupID // what the next tenants of emptied slots are called
	slots  int       // slots ever used
	length int
	keys   [keyShards]map[entry]holder
}

// page is a run of slots.
type page [pageGroups]*Group

// holder is the ID of the group that has a key. For a key that groups share it
// is the number of these groups.
type holder uint32

// ErrTaken is wrapped by With when another group has the same key.
var ErrTaken = errors.New("is taken by another group")

// Len is the number of groups.
func (t *Table) Len() int { return t.length }

// Group returns the group id names, nil if it is gone.
func (t *Table) Group(id GroupID) *Group {
	slot := id.Slot()
	if slot/pageGroups >= len(t.pages) {
		return nil
	}
	if g := t.pages[slot/pageGroups][slot%pageGroups]; g != nil && g.ID == id {
		return g
	}
	return nil
}

// All calls yield for every group until it returns false.
func (t *Table) All(yield func(*Group) bool) {
	for _, page := range t.pages {
		for _, g := range page {
			if g != nil && !yield(g) {
				return
			}
		}
	}
}

// Find returns the group a key names: NoGroup for an IP that groups own. It is
// what the classifier's map holds.
func (t *Table) Find(k Key) (GroupID, bool) {
	e := k.entry()
	h, ok := t.keys[e.shard()][e]
	if ok && k.shared() {
		return NoGroup, true
	}
	return GroupID(h), ok
}

// Lookup finds the group of a frame by its addresses and dest QPN, as the
// classifier does.
func (t *Table) Lookup(src, dst netip.Addr, destQPN roce.QPN) (GroupID, bool) {
	if id, ok := t.Find(Key{Dst: dst, QPN: destQPN, Match: MatchDstQPN}); ok {
		return id, true
	}
	if id, ok := t.Find(Key{Src: src, Dst: dst, QPN: destQPN, Match: MatchPairQPN}); ok {
		return id, true
	}
	return t.Find(Key{Dst: dst, Match: MatchDst})
}

// Keys are the keys by which frames of g are found, each once. Those for feedback
// stand before those for data: a source whose data is taken already must not
// hear an acknowledgement that was not merged.
func (g *Group) Keys() []Key {
	if g.Addressing == ByVirtualQPN {
		return g.pairKeys()
	}
	keys := []Key{{Src: g.IP, Match: MatchSrc}}
	seen := map[roce.QPN]bool{}
	add := func(qpn roce.QPN) {
		if !seen[qpn] {
			seen[qpn] = true
			keys = append(keys, Key{Dst: g.IP, QPN: qpn, Match: MatchDstQPN})
		}
	}
	for i := range g.Paths {
		add(g.Paths[i].RemoteQPN)
	}
	add(g.QPN)
	if g.Addressing == ByGroupIP { // all that comes to a switch's own IP is not a group's
		keys = append(keys, Key{Dst: g.IP, Match: MatchDst})
	}
	return keys
}

// pairKeys are the keys of a group whose frames carry two real hosts' addresses. Both
// are compared: other connections of these hosts may have the group's QPN.
func (g *Group) pairKeys() []Key {
	pair := func(src, dst netip.Addr, qpn roce.QPN) Key { return Key{src, dst, qpn, MatchPairQPN} }
	keys := make([]Key, 0, len(g.Paths)+2)
	// The source's QP accepts what its peer sends to it, and only the box may
	// speak as that peer: a frame of the host at g.IP is taken, and counted.
	peer := pair(g.IP, g.Source.Dst, g.Source.DestQPN)
	keys = append(keys, peer)
	for i := range g.Paths {
		if k := pair(g.Paths[i].Dst, g.Source.Dst, g.Paths[i].RemoteQPN); k != peer {
			keys = append(keys, k)
		}
	}
	return append(keys, pair(g.Source.Dst, g.IP, g.QPN))
}

// With returns a table that also holds g, and gives g its ID. g must not be
// changed afterwards. The error names what is wrong with g or wraps ErrTaken.
func (t *Table) With(g *Group) (*Table, error) {
	if err := g.seal(); err != nil {
		return nil, err
	}
	next := *t
	if n := len(t.free); n > 0 {
		g.ID = t.free[n-1]
		next.free = t.free[: n-1 : n-1]
	} else if t.slots < MaxGroups {
		g.ID = GroupID(t.slots)
		next.slots++
	} else {
		return nil, fmt.Errorf("the table holds %d groups, which is all it can", MaxGroups)
	}
	if err := next.addKeys(g); err != nil {
		return nil, err
	}
	next.set(g.ID.Slot(), g)
	next.length++
	return &next, nil
}

// Without returns a table that lacks the group id names; t itself if it never
// held it.
func (t *Table) Without(id GroupID) *Table {
	g := t.Group(id)
	if g == nil {
		return t
	}
	next := *t
	next.removeKeys(g)
	next.set(id.Slot(), nil)
	next.free = append(t.free[:len(t.free):len(t.free)], id.next())
	next.length--
	return &next
}

// Replace returns a table in which g stands for the group of the same ID, for
// instance because a next hop moved. Frames in flight keep finding it.
func (t *Table) Replace(id GroupID, g *Group) (*Table, error) {
	old := t.Group(id)
	if old == nil {
		return nil, fmt.Errorf("group %d is gone", id)
	}
	if err := g.seal(); err != nil {
		return nil, err
	}
	g.ID = id
	next := *t
	next.removeKeys(old)
	if err := next.addKeys(g); err != nil {
		return nil, err
	}
	next.set(id.Slot(), g)
	return &next, nil
}

// set stores g in a copy of its page. Slots are used in order, so the page is
// there or is the next.
func (t *Table) set(slot int, g *Group) {
	i := slot / pageGroups
	t.pages = append(make([]*page, 0, i+1), t.pages...)
	fresh := new(page)
	if i == len(t.pages) {
		t.pages = append(t.pages, fresh)
	} else {
		*fresh = *t.pages[i]
		t.pages[i] = fresh
	}
	fresh[slot%pageGroups] = g
}

func (t *Table) addKeys(g *Group) error {
	owned := map[int]bool{}
	for _, k := range g.Keys() {
		e := k.entry()
		h, held := t.keys[e.shard()][e]
		switch {
		case k.shared():
			h++
		case held:
			return fmt.Errorf("%v %w", k, ErrTaken)
		default:
			h = holder(g.ID)
		}
		t.shard(e.shard(), owned)[e] = h
	}
	return nil
}

func (t *Table) removeKeys(g *Group) {
	owned := map[int]bool{}
	for _, k := range g.Keys() {
		e := k.entry()
		shard := t.shard(e.shard(), owned)
		if k.shared() && shard[e] > 1 {
			shard[e]--
		} else {
			delete(shard, e)
		}
	}
}

// shard returns shard i for writing, copying it the first time.
func (t *Table) shard(i int, owned map[int]bool) map[entry]holder {
	if !owned[i] {
		owned[i] = true
		if t.keys[i] = maps.Clone(t.keys[i]); t.keys[i] == nil {
			t.keys[i] = map[entry]holder{}
		}
	}
	return t.keys[i]
}
