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

// GroupID names a group in the table and in the classifier's metadata: the slot in the low bits and
// a generation above it. A frame that was classified for a removed group never reaches the next
// group in the same slot.
type GroupID uint32

// MaxGroups is the number of slots. Creating one more group is refused.
const MaxGroups = 1 << slotBits

const (
	slotBits   = 20
	pageGroups = 256 // groups in a page, which one change copies
	shardBits  = 10
	keyShards  = 1 << shardBits
)

// NoGroup is what the classifier reports for a RoCE frame to a group's IP whose QPN belongs to no
// group.
const NoGroup GroupID = 0xFFFFFFFF

// Slot is the index of the group, below MaxGroups.
func (id GroupID) Slot() int { return int(id & (MaxGroups - 1)) }

// next is the ID of the slot's next group. All slots skip the generation in which slot 2^20-1 would
// have the ID NoGroup.
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
	MatchSrc                      // source IP alone: only the box sends from it, so the frame is dropped
)

// Key finds a group's frames. The classifier tries MatchDstQPN, MatchPairQPN, MatchDst and MatchSrc
// in this order. A field that Match does not compare is zero.
type Key struct {
	Src, Dst netip.Addr
	QPN      roce.QPN
	Match    Match
}

// Shared reports whether several groups may have the key. Such a key names none of them.
func (k Key) Shared() bool { return k.Match == MatchDst || k.Match == MatchSrc }

func (k Key) String() string {
	if k.Match == MatchPairQPN {
		return fmt.Sprintf("QPN %d from %v to %v", k.QPN, k.Src, k.Dst)
	}
	return fmt.Sprintf("%v with QPN %d", k.Dst, k.QPN)
}

// entry is a Key in the form in which the table keeps it: without the pointer in a netip.Addr, so
// that the garbage collector does not scan the maps.
type entry struct {
	src, dst [16]byte
	qpn      roce.QPN
	match    Match
	ipv6     bool // distinguishes ::ffff:a.b.c.d from a.b.c.d
}

func (k Key) entry() entry {
	return entry{src: k.Src.As16(), dst: k.Dst.As16(), qpn: k.QPN, match: k.Match, ipv6: k.Src.Is6() || k.Dst.Is6()}
}

// shard hashes the low halves of the addresses and the rest with the golden ratio (Knuth vol. 3,
// 6.4).
func (e *entry) shard() int {
	h := binary.BigEndian.Uint64(e.dst[8:]) ^ bits.RotateLeft64(binary.BigEndian.Uint64(e.src[8:]), 16) ^
		uint64(e.qpn)<<32 ^ uint64(e.match)<<56
	return int(h * 0x9E3779B97F4A7C15 >> (64 - shardBits))
}

// Table holds the groups. The zero value is the empty table.
type Table struct {
	pages  []*page
	free   []GroupID // the next IDs of emptied slots
	slots  int       // slots ever used
	length int
	keys   [keyShards]map[entry]holder
}

// page is a run of slots.
type page [pageGroups]*Group

// holder is the ID of the group that has a key, or the number of groups that share it.
type holder uint32

// ErrTaken is wrapped by With and Replace when another group has the same key.
var ErrTaken = errors.New("is taken by another group")

// Len is the number of groups.
func (t *Table) Len() int { return t.length }

// Group returns the group with this ID, or nil if it has been removed.
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

// Find returns the group that a key names, or NoGroup for a key that groups share. It is what the
// classifier's map holds.
func (t *Table) Find(k Key) (GroupID, bool) {
	e := k.entry()
	h, ok := t.keys[e.shard()][e]
	if ok && k.Shared() {
		return NoGroup, true
	}
	return GroupID(h), ok
}

// Lookup finds the group of a frame by its addresses and dest QPN, as the classifier does.
func (t *Table) Lookup(src, dst netip.Addr, destQPN roce.QPN) (GroupID, bool) {
	if id, ok := t.Find(Key{Dst: dst, QPN: destQPN, Match: MatchDstQPN}); ok {
		return id, true
	}
	if id, ok := t.Find(Key{Src: src, Dst: dst, QPN: destQPN, Match: MatchPairQPN}); ok {
		return id, true
	}
	return t.Find(Key{Dst: dst, Match: MatchDst})
}

// Keys returns the keys that find frames of g, which is in a table, each once. Keys for feedback
// come before the key for data: as soon as the source's data is taken, no answer to it may reach
// the source without being merged.
func (g *Group) Keys() []Key {
	if g.Addressing == ByVirtualQPN {
		return g.pairKeys()
	}
	// Members with a peer address of their own have keys of their own. The address is the box's, so
	// other RoCE to it is the kernel's, as with BySwitchIP.
	keys := make([]Key, 0, 4)
	seen := map[Key]bool{}
	add := func(k Key) {
		if !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	// With BySwitchIP the group's IP is an address of the box to which the source's host is
	// attached. A box below it routes what else comes from there, such as RDMA-CM.
	isBelow := g.Addressing == BySwitchIP && g.Source.Src != g.IP
	for _, l := range g.Legs() {
		if !isBelow || l.Src != g.IP {
			add(Key{Src: l.Src, Match: MatchSrc})
		}
	}
	for i := range g.Paths {
		p := &g.Paths[i]
		add(Key{Dst: p.Src, QPN: p.RemoteQPN, Match: MatchDstQPN})
	}
	add(Key{Dst: g.Source.Src, QPN: g.Source.RemoteQPN, Match: MatchDstQPN})
	if g.Relay != nil {
		for _, k := range g.relayKeys() {
			add(k)
		}
	}
	for _, k := range g.mappingKeys() {
		add(k)
	}
	if g.Addressing == ByGroupIP && seen[Key{Src: g.IP, Match: MatchSrc}] {
		add(Key{Dst: g.IP, Match: MatchDst})
	}
	return keys
}

// pairKeys returns the keys of a group whose frames carry the addresses of two hosts. Both
// addresses are compared, because other connections of these hosts may use the group's QPN.
func (g *Group) pairKeys() []Key {
	pair := func(src, dst netip.Addr, qpn roce.QPN) Key { return Key{src, dst, qpn, MatchPairQPN} }
	keys := make([]Key, 0, len(g.Paths)+2)
	// The source's QP accepts packets that seem to come from its peer, and only the box may send
	// those. Frames of the host at g.IP to that QP are taken and counted.
	peer := pair(g.IP, g.Source.Dst, g.Source.DestQPN)
	keys = append(keys, peer)
	for i := range g.Paths {
		if k := pair(g.Paths[i].Dst, g.Source.Dst, g.Paths[i].RemoteQPN); k != peer {
			keys = append(keys, k)
		}
	}
	return append(keys, pair(g.Source.Dst, g.IP, g.QPN))
}

// With returns a table that also holds g, and sets g's ID. g must not be changed afterwards. The
// error says what is wrong with g, or wraps ErrTaken.
func (t *Table) With(g *Group) (*Table, error) {
	if err := g.seal(); err != nil {
		return nil, err
	}
	next := *t
	if n := len(t.free); n > 0 {
		g.ID = t.free[n-1]
		next.free = t.free[:n-1] // Without appends to a copy
	} else if t.slots < MaxGroups {
		g.ID = GroupID(t.slots)
		next.slots++
	} else {
		return nil, fmt.Errorf("the table is full: it holds %d groups", MaxGroups)
	}
	if err := next.addKeys(g); err != nil {
		return nil, err
	}
	next.set(g.ID.Slot(), g)
	next.length++
	return &next, nil
}

// Without returns a table without the group with this ID, or t itself if there is no such group.
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

// Replace returns a table in which g replaces the group with this ID, for example because a next
// hop changed. Frames in flight find the new version.
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

// set stores g in a copy of its page. Slots are used in order, so the page exists or is the next
// one.
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
		case k.Shared():
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
		if k.Shared() && shard[e] > 1 {
			shard[e]--
		} else {
			delete(shard, e)
		}
	}
}

// shard returns shard i for writing. The first time it copies the shard.
func (t *Table) shard(i int, owned map[int]bool) map[entry]holder {
	if !owned[i] {
		owned[i] = true
		if t.keys[i] = maps.Clone(t.keys[i]); t.keys[i] == nil {
			t.keys[i] = map[entry]holder{}
		}
	}
	return t.keys[i]
}
