package regions

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// The bytes of a change, all numbers little-endian:
//
//	version      1
//	receivers    their number 2, then each: length of the address 1, address, remote QPN 4
//	remove       their number 4, then each: VA 8, length 8, R_Key 4
//	add          their number 4, then each: VA 8, length 8, R_Key 4, and for each receiver VA 8, R_Key 4
const (
	version       = 1
	rangeBytes    = 8 + 8 + 4
	receiverBytes = 8 + 4
	// partBytes bounds a change of Parts.
	partBytes = 1 << 20
)

// Append appends the bytes of a change.
func (c *Change) Append(b []byte) []byte {
	order := binary.LittleEndian
	b = append(b, version)
	b = order.AppendUint16(b, uint16(len(c.Receivers)))
	for _, id := range c.Receivers {
		ip := id.IP.AsSlice()
		b = append(append(b, byte(len(ip))), ip...)
		b = order.AppendUint32(b, uint32(id.RemoteQPN))
	}
	b = order.AppendUint32(b, uint32(len(c.Remove)))
	for _, r := range c.Remove {
		b = appendRange(b, r)
	}
	b = order.AppendUint32(b, uint32(len(c.Add)))
	for _, r := range c.Add {
		b = appendRange(b, r.VirtualRegion)
		for _, p := range r.At {
			b = order.AppendUint32(order.AppendUint64(b, p.VA), p.RKey)
		}
	}
	return b
}

func appendRange(b []byte, r mft.VirtualRegion) []byte {
	order := binary.LittleEndian
	return order.AppendUint32(order.AppendUint64(order.AppendUint64(b, r.VA), r.Length), r.RKey)
}

var errChange = errors.New("a change of the memory cannot be read")

// Read reads the bytes of a change.
func Read(b []byte) (*Change, error) {
	r := reader{b: b}
	if v := r.take(1)[0]; v != version {
		return nil, fmt.Errorf("a change of the memory has version %d, and this rocastd knows version %d", v, version)
	}
	c := &Change{}
	for range r.number(2) {
		n := int(r.take(1)[0])
		ip, isIP := netip.AddrFromSlice(r.take(n))
		c.Receivers = append(c.Receivers, groupfile.ID{IP: ip, RemoteQPN: roce.QPN(r.number(4))})
		if r.failed || !isIP {
			return nil, errChange
		}
	}
	for range r.count(rangeBytes) {
		c.Remove = append(c.Remove, r.virtual())
	}
	n := r.count(rangeBytes + receiverBytes*len(c.Receivers))
	r.failed = r.failed || n > 0 && len(c.Receivers) == 0
	c.Add = make([]Range, n)
	kept := make([]mft.Region, n*len(c.Receivers))
	for i := range c.Add {
		at := kept[:len(c.Receivers):len(c.Receivers)]
		kept = kept[len(c.Receivers):]
		c.Add[i] = Range{r.virtual(), at}
		for k := range at {
			at[k] = mft.Region{VA: r.number(8), RKey: uint32(r.number(4)), Length: c.Add[i].Length}
		}
	}
	if r.failed || len(r.b) > 0 {
		return nil, errChange
	}
	return c, nil
}

// reader reads numbers from bytes. Once these are too few, it has failed and reads zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.b, r.failed = nil, true
		return make([]byte, max(n, 1))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) number(bytes int) uint64 {
	var wide [8]byte
	copy(wide[:], r.take(bytes))
	return binary.LittleEndian.Uint64(wide[:])
}

// count reads how many items follow, each of so many bytes. What claims more than there is fails.
func (r *reader) count(itemBytes int) int {
	n := int(r.number(4))
	if n > len(r.b)/itemBytes {
		r.b, r.failed = nil, true
		return 0
	}
	return n
}

func (r *reader) virtual() mft.VirtualRegion {
	return mft.VirtualRegion{VA: r.number(8), Length: r.number(8), RKey: uint32(r.number(4))}
}

// Parts yields the bytes of changes that make the table from an empty one.
func (t *Table) Parts(receivers []groupfile.ID) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		c := Change{Receivers: receivers}
		most := max(1, partBytes/(rangeBytes+receiverBytes*len(c.Receivers)))
		for r := range t.All(c.Receivers) {
			r.At = slices.Clone(r.At)
			if c.Add = append(c.Add, r); len(c.Add) == most {
				if !yield(c.Append(nil)) {
					return
				}
				c.Add = c.Add[:0]
			}
		}
		if len(c.Add) > 0 {
			yield(c.Append(nil))
		}
	}
}

// History makes a table of the changes that were stored. It looks at all of them before it builds
// the table: that takes as long as one change with all ranges.
type History struct {
	ranges []Range
	ids    [][]groupfile.ID // parallel to ranges: to which receivers At belongs
	// live has the index of each range in ranges, from the first removal on.
	live map[start]int
}

type start struct {
	va   uint64
	rkey uint32
}

// Add takes the next change.
func (h *History) Add(b []byte) error {
	c, err := Read(b)
	if err != nil {
		return err
	}
	if len(c.Remove) > 0 && h.live == nil {
		h.live = make(map[start]int, len(h.ranges))
		for i := range h.ranges {
			h.live[start{h.ranges[i].VA, h.ranges[i].RKey}] = i
		}
	}
	for _, v := range c.Remove {
		at, there := h.live[start{v.VA, v.RKey}]
		if !there {
			return errChange
		}
		delete(h.live, start{v.VA, v.RKey})
		h.ranges[at].Length = 0 // it has left
	}
	for _, r := range c.Add {
		if h.live != nil {
			h.live[start{r.VA, r.RKey}] = len(h.ranges)
		}
		h.ranges, h.ids = append(h.ranges, r), append(h.ids, c.Receivers)
	}
	return nil
}

// Table returns the table for a group's receivers.
func (h *History) Table(receivers []groupfile.ID) (*Table, error) {
	c := Change{Receivers: receivers, Add: make([]Range, 0, len(h.ranges))}
	for i, r := range h.ranges {
		switch {
		case r.Length == 0:
			continue
		case !slices.Equal(h.ids[i], receivers): // some have left since
			at := make([]mft.Region, len(receivers))
			for k, id := range receivers {
				was := slices.Index(h.ids[i], id)
				if was < 0 {
					return nil, fmt.Errorf("where the receiver at %v keeps the ranges of memory was not stored", id.IP)
				}
				at[k] = r.At[was]
			}
			r.At = at
		}
		c.Add = append(c.Add, r)
	}
	return new(Table).Apply(c)
}
