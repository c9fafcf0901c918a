// Package bounds counts how often a bound of the daemon was met, and logs it: who meets one should
// find it in the log, and whoever floods a bound does not flood the log.
package bounds

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// Bound is the name of a bound, as the metrics have it.
type Bound string

// The bounds that strangers can meet.
const (
	HostConnections    Bound = "host-connections"    // of programs on hosts
	HostGroups         Bound = "host-groups"         // that hosts make, wait for, or have not confirmed
	BoxConnections     Bound = "box-connections"     // of other boxes and of programs with a certificate
	UserConnections    Bound = "user-connections"    // of users of this box who only read
	MetricsConnections Bound = "metrics-connections" // of scrapers and browsers
	CMConnections      Bound = "cm-connections"      // by RDMA-CM
	PerftestClients    Bound = "perftest-clients"
)

// All lists the bounds.
var All = []Bound{HostConnections, HostGroups, BoxConnections, UserConnections, MetricsConnections, CMConnections, PerftestClients}

// reportEvery is the shortest time between two lines of the log about one bound.
const reportEvery = 10 * time.Second

// Book counts. Its methods may be called from any goroutine. A nil Book counts nothing.
type Book struct {
	log *zap.Logger
	now func() time.Time

	mu   sync.Mutex
	kept map[Bound]*count
}

type count struct {
	all   uint64
	since uint64    // since the last line of the log
	told  time.Time // when that was
}

// New returns a Book.
func New(log *zap.Logger) *Book { return &Book{log: log, now: time.Now, kept: map[Bound]*count{}} }

// Met counts that somebody has met a bound.
func (b *Book) Met(bound Bound, who string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	c := b.kept[bound]
	if c == nil {
		c = &count{}
		b.kept[bound] = c
	}
	c.all++
	c.since++
	now, since := b.now(), c.since
	reports := c.told.IsZero() || now.Sub(c.told) >= reportEvery
	if reports {
		c.told, c.since = now, 0
	}
	b.mu.Unlock()
	if reports {
		b.log.Warn("a bound is met, and more was refused; docs/troubleshoot.md lists the bounds",
			zap.String("bound", string(bound)), zap.String("from", who), zap.Uint64("refused", since))
	}
}

// Counts returns how often each bound was met.
func (b *Book) Counts() map[Bound]uint64 {
	counts := map[Bound]uint64{}
	if b == nil {
		return counts
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bound := range All {
		counts[bound] = 0
		if c := b.kept[bound]; c != nil {
			counts[bound] = c.all
		}
	}
	return counts
}
