package edges

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
)

const (
	// maxHosts bounds the hosts whose edges have asked and that are in no generation. A host with
	// IPv6 may have any number of addresses.
	maxHosts = 4096
	// maxOffers is how many answers to a host are remembered. An edge confirms the last one, or the
	// one before if mappings change while it loads them.
	maxOffers = 8
)

// Book knows which hosts have an edge, and the generations of the groups. Its methods are not for
// several goroutines at once; those of an Edge are.
type Book struct {
	config Config
	draw   func() (roce.QPN, error)
	groups map[string]*group
	hosts  map[netip.Addr]*host
}

// group is what the Book knows of a group.
type group struct {
	generations []*generation
	receivers   []netip.Addr // those that share if they have an edge
}

// host is a host whose edge has asked.
type host struct {
	edge   Edge
	wanted map[roce.QPN]*api.EdgeMapping // by the QPN of the generation
	offers []offer                       // the newest last
	loaded map[roce.QPN]string           // the generations that the edge has confirmed, with their groups
	failed map[roce.QPN]string           // the generations that it cannot load, with the reasons
	// changed is closed when what is wanted changes.
	changed chan struct{}
}

// offer is an answer to a host.
type offer struct {
	number uint64
	groups map[roce.QPN]string // by generation
}

// Edge is what is known of the edge of a host. Its methods may be called from any goroutine.
type Edge struct{ last atomic.Pointer[asked] }

type asked struct {
	at       time.Time
	question api.EdgeQuestion
}

// Last returns the last question of the edge, and when it came.
func (e *Edge) Last() (at time.Time, question api.EdgeQuestion) {
	last := e.last.Load()
	return last.at, last.question
}

// NewBook returns a Book without groups and hosts. draw returns a QPN for a generation (QPNs).
func NewBook(config Config, draw func() (roce.QPN, error)) *Book {
	return &Book{config: config, draw: draw, groups: map[string]*group{}, hosts: map[netip.Addr]*host{}}
}

// Ask enters a new question of the edge at a host. It returns the groups whose receivers may share
// in another way from now on.
func (b *Book) Ask(now time.Time, at netip.Addr, q api.EdgeQuestion) (share []string) {
	h := b.hosts[at]
	if h == nil {
		b.makeRoom()
		h = &host{wanted: map[roce.QPN]*api.EdgeMapping{}, changed: make(chan struct{})}
		b.hosts[at] = h
		for name, g := range b.groups {
			if slices.Contains(g.receivers, at) {
				share = append(share, name)
			}
		}
	}
	h.edge.last.Store(&asked{now, q})
	share = append(share, h.confirm(&q)...)
	slices.Sort(share)
	return slices.Compact(share)
}

// Answer returns the mappings that the edge at a host is to have: none if it has not asked. changed
// is closed when the answer is another one.
func (b *Book) Answer(at netip.Addr) (answer api.EdgeAnswer, changed <-chan struct{}) {
	h := b.hosts[at]
	if h == nil {
		return (&host{}).answer(), nil
	}
	return h.answer(), h.changed
}

// makeRoom forgets the hosts that have been silent for longest, if there are too many. What a host
// is to map is not forgotten.
func (b *Book) makeRoom() {
	for len(b.hosts) >= maxHosts {
		var oldest netip.Addr
		var since time.Time
		for at, h := range b.hosts {
			if last, _ := h.edge.Last(); len(h.wanted) == 0 && (!oldest.IsValid() || last.Before(since)) {
				oldest, since = at, last
			}
		}
		if !oldest.IsValid() {
			return
		}
		delete(b.hosts, oldest)
	}
}

// confirm enters which mappings of an answer the edge has loaded. It returns the groups of which it
// has loaded other mappings than before, or fails otherwise.
func (h *host) confirm(q *api.EdgeQuestion) (groups []string) {
	loaded, failed := map[roce.QPN]string{}, map[roce.QPN]string{}
	for _, o := range h.offers {
		if o.number == q.Loaded() {
			loaded = maps.Clone(o.groups)
		}
	}
	if q.Part != nil {
		for _, f := range q.Part.Failed {
			qpn := roce.QPN(f.LegQPN)
			if name, some := loaded[qpn]; some {
				delete(loaded, qpn)
				if failed[qpn] = api.ShortReason(f.Reason); h.failed[qpn] != failed[qpn] {
					groups = append(groups, name)
				}
			}
		}
	}
	h.failed = failed
	for qpn, name := range loaded {
		if _, before := h.loaded[qpn]; !before {
			groups = append(groups, name)
		}
	}
	for qpn, name := range h.loaded {
		if _, still := loaded[qpn]; !still {
			groups = append(groups, name)
		}
	}
	h.loaded = loaded
	return groups
}

// answer returns the mappings that the edge is to have. They are numbered by what they are, so the
// number of an answer means the same after a restart.
func (h *host) answer() api.EdgeAnswer {
	a := api.EdgeAnswer{Mappings: []api.EdgeMapping{}}
	o := offer{groups: map[roce.QPN]string{}}
	for qpn, m := range h.wanted {
		a.Mappings = append(a.Mappings, *m)
		o.groups[qpn] = m.Group
	}
	slices.SortFunc(a.Mappings, func(a, b api.EdgeMapping) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return int(a.LegQPN) - int(b.LegQPN)
	})
	a.Number = numberOf(a.Mappings)
	o.number = a.Number
	h.offers = slices.DeleteFunc(h.offers, func(was offer) bool { return was.number == o.number })
	h.offers = append(h.offers, o)
	if more := len(h.offers) - maxOffers; more > 0 {
		h.offers = slices.Delete(h.offers, 0, more)
	}
	return a
}

// numberOf numbers an answer. Readers of JSON keep 53 bits of a number.
func numberOf(mappings []api.EdgeMapping) uint64 {
	text, _ := json.Marshal(mappings) // never fails
	sum := sha256.Sum256(text)
	return max(1, binary.BigEndian.Uint64(sum[:])>>11)
}

// want lets the edge of a host have a mapping, and drop takes it back.
func (h *host) want(qpn roce.QPN, m *api.EdgeMapping) {
	h.wanted[qpn] = m
	h.signal()
}

func (h *host) drop(qpn roce.QPN) {
	delete(h.wanted, qpn)
	h.signal()
}

func (h *host) signal() {
	close(h.changed)
	h.changed = make(chan struct{})
}
