package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rocast/rocast/bench/site"
	"github.com/rocast/rocast/bench/ways"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab/slow"
	"github.com/rocast/rocast/roce"
)

// The two ways by which a leader writes an entry to all replicas.
const (
	byGroup = "group" // one write; the box counts the replicas that have the entry
	byEach  = "each"  // a write to each replica, as in Mu; the leader counts
)

// outstanding is how many entries are under way when a leader writes as fast as it can. A soft NIC
// sends 129 packets ahead of an acknowledgement.
const outstanding = 100

// plan says what is measured.
type plan struct {
	rate     int           // of the hosts' links, bits per second
	rates    []int         // over which the throughput is measured, the first one is rate; 0: nothing limits the links
	rounds   int           // of the throughput
	span     time.Duration // of a measurement
	replicas []int
	loads    []int // offered entries, in percent of what the link carries once
	bursts   []int // entries that come at once
	repeats  int   // bursts of each size
}

func newPlan(rate int, short bool) plan {
	p := plan{rate: rate, rates: []int{rate, rate / 2, 0}, rounds: 3, span: 3 * time.Second, replicas: []int{2, 4},
		loads: []int{10, 20, 40, 60, 80, 95}, bursts: []int{1, 2, 5, 10, 20, 50, 100}, repeats: 100}
	if short {
		p.rounds, p.span, p.loads, p.bursts, p.repeats = 1, time.Second, []int{10, 40, 80}, []int{1, 10, 100}, 20
	}
	return p
}

// figures is what was measured.
type figures struct {
	Bits       int        `json:"linkBitsPerSecond"`
	Rounds     int        `json:"rounds"`     // of the throughput
	Throughput []measured `json:"throughput"` // as fast as the leader can; of several rounds the median
	Ratio      []ratio    `json:"ratio"`
	Links      []overLink `json:"links"` // the throughput over links of several rates
	Load       []measured `json:"load"`
	Bursts     []measured `json:"bursts"`
	Failover   []failover `json:"failover"`
}

// measured is one measurement.
type measured struct {
	Replicas  int     `json:"replicas"`
	Way       string  `json:"way"`
	Burst     int     `json:"burst,omitempty"`   // entries that come at once
	Offered   float64 `json:"offered,omitempty"` // entries per second
	PerSecond float64 `json:"entriesPerSecond,omitempty"`
	Saturated bool    `json:"saturated,omitempty"` // less than 95 % of what was offered got through
	P50       float64 `json:"p50us"`               // from the time at which an entry is due to its decision
	P99       float64 `json:"p99us"`
	site.Used
}

// ratio compares the entries per second of both ways.
type ratio struct {
	Replicas int     `json:"replicas"`
	Ratio    float64 `json:"ratio"`
}

// overLink is the throughput by each way over links of a rate, from rounds in which rates and ways
// take turns.
type overLink struct {
	Replicas int     `json:"replicas"`
	Bits     int     `json:"linkBitsPerSecond"` // 0: nothing limits the links
	Group    float64 `json:"group"`             // entries per second
	Each     float64 `json:"each"`
	Ratio    float64 `json:"ratio"`
}

// failover is how long something takes.
type failover struct {
	What  string  `json:"what"`
	P50   float64 `json:"p50ms"`
	Worst float64 `json:"worstMs"`
	Of    int     `json:"of"`
	P4CE  float64 `json:"p4ceMs"`
}

// failovers are the times of a story. P4CE's are those of its table IV.
func (s *story) failovers() []failover {
	row := func(what string, times []time.Duration, p4ce float64) failover {
		return failover{What: what, P50: ms(median(times)), Worst: ms(slices.Max(times)), Of: len(times), P4CE: p4ce}
	}
	return []failover{
		row("group set-up", s.setups, 40), row("replica", s.losses, 40.1), row("leader", s.changes, 40.9), row("box", s.outages, 60), row("box, until the group is back", s.backs, 0),
	}
}

func (f *figures) save(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// rig is a lab with a leader and some replicas, whose links have a rate.
type rig struct {
	*site.Lab
	plan
	settings ways.Settings
	memory   [][]byte // of the replicas
	log      []entry  // since the memory of all was cleared
	own      []byte   // what the replicas' memory has to be
}

// measure measures everything, and says so on the way.
func measure(ctx context.Context, out io.Writer, program string, p plan) (*figures, error) {
	f := &figures{Bits: p.rate, Rounds: p.rounds}
	for _, n := range p.replicas {
		if err := f.with(ctx, out, program, p, n); err != nil {
			return nil, fmt.Errorf("%d replicas: %w", n, err)
		}
	}
	return f, nil
}

func (f *figures) with(ctx context.Context, out io.Writer, program string, p plan, n int) (err error) {
	r, err := raise(ctx, program, p, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	add := func(list *[]measured, way string, m measured) {
		m.Replicas, m.Way = n, way
		fmt.Fprintln(out, m)
		*list = append(*list, m)
	}
	got, err := r.overLinks(ctx)
	if err != nil {
		return err
	}
	for i, rate := range p.rates {
		group, each := middle(got[rate][byGroup]), middle(got[rate][byEach])
		if i == 0 {
			add(&f.Throughput, byGroup, group)
			add(&f.Throughput, byEach, each)
			f.Ratio = append(f.Ratio, ratio{n, group.PerSecond / each.PerSecond})
		}
		l := overLink{Replicas: n, Bits: rate, Group: group.PerSecond, Each: each.PerSecond, Ratio: group.PerSecond / each.PerSecond}
		f.Links = append(f.Links, l)
		fmt.Fprintf(out, "%d replicas, links of %d bits per second (0: not shaped): a group decides %.2f times as many entries\n", n, rate, l.Ratio)
	}
	if err := r.shape(p.rate); err != nil {
		return err
	}
	for _, load := range p.loads {
		offered := float64(load) / 100 * float64(p.rate) / 8 / packetBytes
		for _, way := range []string{byGroup, byEach} {
			m, err := r.during(ctx, way, func(ctx context.Context, t *timed) error { return r.offer(ctx, t, offered) })
			if err != nil {
				return fmt.Errorf("%.0f entries per second, by %s: %w", offered, way, err)
			}
			m.Offered, m.Saturated = offered, m.PerSecond < 0.95*offered
			add(&f.Load, way, m)
		}
	}
	for _, burst := range p.bursts {
		for _, way := range []string{byGroup, byEach} {
			m, err := r.during(ctx, way, func(ctx context.Context, t *timed) error { return r.burst(ctx, t, burst) })
			if err != nil {
				return fmt.Errorf("bursts of %d, by %s: %w", burst, way, err)
			}
			m.Burst, m.PerSecond = burst, 0
			add(&f.Bursts, way, m)
		}
	}
	return nil
}

// overLinks measures the throughput over links of each rate, by each way: a measurement for each
// round.
func (r *rig) overLinks(ctx context.Context) (map[int]map[string][]measured, error) {
	got := map[int]map[string][]measured{}
	for range r.rounds {
		for _, rate := range r.rates {
			if err := r.shape(rate); err != nil {
				return nil, err
			}
			if got[rate] == nil {
				got[rate] = map[string][]measured{}
			}
			for _, way := range []string{byGroup, byEach} {
				m, err := r.during(ctx, way, r.saturate)
				if err != nil {
					return nil, fmt.Errorf("as fast as possible, by %s: %w", way, err)
				}
				got[rate][way] = append(got[rate][way], m)
			}
		}
	}
	return got, nil
}

// middle is the measurement with the median throughput.
func middle(list []measured) measured {
	slices.SortFunc(list, func(a, b measured) int { return cmp.Compare(a.PerSecond, b.PerSecond) })
	return list[len(list)/2]
}

// shape gives the links from all hosts another rate. Nothing is under way.
func (r *rig) shape(rate int) error {
	r.rate = rate
	for _, h := range r.Hosts {
		if err := slow.Shape(h.End, rate); err != nil {
			return err
		}
	}
	return nil
}

// String is a line for a person.
func (m measured) String() string {
	what := "as fast as it can"
	switch {
	case m.Burst > 0:
		what = fmt.Sprintf("bursts of %d", m.Burst)
	case m.Offered > 0:
		what = fmt.Sprintf("%.0f entries/s offered", m.Offered)
	}
	line := fmt.Sprintf("%d replicas, by %-5s %-24s", m.Replicas, m.Way, what)
	if m.Burst == 0 {
		line += fmt.Sprintf(" %7.0f decided/s,", m.PerSecond)
	}
	line += fmt.Sprintf(" p50 %8.0f us, p99 %8.0f us, link %3.0f %%, CPUs %.2f hosts %.2f box", m.P50, m.P99, 100*m.LinkShare, m.HostsCPUs, m.BoxCPUs)
	if m.Saturated {
		line += ", saturated"
	}
	return line
}

// packetBytes is the length of the frame of an entry: Ethernet, IPv4, UDP, BTH, RETH, the entry,
// ICRC.
const packetBytes = 14 + 20 + 8 + roce.BTHBytes + roce.RETHBytes + entryBytes + 4

// raise builds the lab of a measurement.
func raise(ctx context.Context, program string, p plan, n int) (r *rig, err error) {
	r = &rig{plan: p, own: make([]byte, logBytes)}
	if r.Lab, err = site.Open(ctx, 1+n, program); err != nil {
		return nil, err
	}
	r.settings = ways.Settings{
		Source: r.Hosts[0], Receivers: r.Hosts[1:], MTU: pathMTU, First: firstQPN, Timeout: ways.Calm,
		Target: ways.Target{VA: groupVA, RKey: groupRKey, Bytes: logBytes},
	}
	err = r.shape(p.rate)
	for _, h := range r.Hosts {
		m := make([]byte, logBytes)
		if h != r.settings.Source {
			err = errors.Join(err, h.RNIC.Register(rnic.Region{VA: groupVA, RKey: groupRKey, Access: rnic.RemoteWrite, Bytes: m}))
			r.memory = append(r.memory, m)
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// timed is a way with the times of its entries.
type timed struct {
	*ways.Way
	mu     sync.Mutex
	due    []time.Time
	took   []time.Duration // of each entry that is decided
	bursts []time.Duration // of each burst, instead of its entries
}

// times are what is reported, and how many entries are decided.
func (t *timed) times() (list []time.Duration, decided int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bursts != nil {
		return t.bursts, len(t.took)
	}
	return slices.Clone(t.took), len(t.took)
}

// heard notes that so many entries are decided.
func (t *timed) heard(complete uint64) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := len(t.took); n < int(complete); n++ {
		t.took = append(t.took, now.Sub(t.due[n]))
	}
}

const figuresGroup = "figures"

// open opens a way, and clears what all hosts have of the log.
func (r *rig) open(ctx context.Context, way string) (t *timed, err error) {
	r.log = nil
	clear(r.own)
	for i, h := range r.settings.Receivers {
		h.RNIC.Freeze(func() { clear(r.memory[i]) })
	}
	t = &timed{}
	need := len(r.settings.Receivers) / 2 // with the leader, a majority
	r.settings.First += 0x10
	if way == byGroup {
		create := func(ctx context.Context, file []byte) error {
			_, err := r.Daemon.Client().CreateGroup(ctx, file)
			return err
		}
		t.Way, err = ways.Group(ctx, r.settings, figuresGroup, r.GroupIP(), fmt.Sprintf("ack: quorum %d", need), create, t.heard)
	} else {
		t.Way, err = ways.Each(ctx, r.settings, need, t.heard)
	}
	return t, err
}

// close closes a way that open has opened.
func (r *rig) close(ctx context.Context, way string, t *timed) (err error) {
	t.Close()
	if way == byGroup {
		_, err = r.Daemon.Client().RemoveGroup(ctx, figuresGroup)
	}
	return err
}

// during opens a way, lets load use it, and compares the replicas' memory with the leader's.
func (r *rig) during(ctx context.Context, way string, load func(context.Context, *timed) error) (m measured, err error) {
	t, err := r.open(ctx, way)
	if err != nil {
		return m, err
	}
	before, err := r.Use(r.settings.Source)
	if err == nil {
		err = load(ctx, t)
	}
	if err != nil {
		return m, err
	}
	// An entry that is decided later may be one that was sent later, too.
	took, decided := t.times()
	after, err := r.Use(r.settings.Source)
	if err != nil {
		return m, err
	}
	m = measured{P50: site.Quantile(took, 50), P99: site.Quantile(took, 99), Used: after.Since(before, r.rate)}
	m.PerSecond = float64(decided) / m.Seconds
	if err := errors.Join(t.Drain(ctx), r.verify(ctx)); err != nil {
		return m, err
	}
	return m, r.close(ctx, way, t)
}

// verify waits until each replica has the leader's log.
func (r *rig) verify(ctx context.Context) error {
	for i, h := range r.settings.Receivers {
		for !h.Has(r.memory[i], r.own) {
			if err := pause(ctx); err != nil {
				return fmt.Errorf("%v lacks entries: %w", h.IP, err)
			}
		}
		if log := readLog(r.memory[i]); len(log) != min(len(r.log), logEntries) {
			return fmt.Errorf("the log of %v ends after %d of %d entries", h.IP, len(log), len(r.log))
		}
	}
	return nil
}

var errLogFull = errors.New("the log is full: measure for a shorter time, or over slower links")

// append writes the next entry, which was due at a time.
func (r *rig) append(ctx context.Context, t *timed, due time.Time) error {
	if len(r.log) == logEntries {
		return errLogFull
	}
	e := after(r.log, 1, uint64(len(r.log)+1))
	at := entryBytes * len(r.log)
	r.log = append(r.log, e)
	copy(r.own[at:], e.bytes())
	t.mu.Lock()
	t.due = append(t.due, due)
	t.mu.Unlock()
	_, err := t.Write(ctx, r.own[at:at+entryBytes], at)
	return err
}

// saturate keeps many entries under way, until the time is over or the log is full, as it may be
// where nothing limits the links.
func (r *rig) saturate(ctx context.Context, t *timed) error {
	for end := time.Now().Add(r.span); time.Now().Before(end) && len(r.log) < logEntries; {
		if err := t.WaitFor(ctx, uint64(max(len(r.log)+1-outstanding, 0))); err != nil {
			return err
		}
		if err := r.append(ctx, t, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// offer writes so many entries per second, whether those before are decided or not, as far as the
// queue pairs hold them.
func (r *rig) offer(ctx context.Context, t *timed, perSecond float64) error {
	began := time.Now()
	for end := began.Add(r.span); ; {
		due := began.Add(time.Duration(float64(len(r.log)) / perSecond * float64(time.Second)))
		if due.After(end) || time.Now().After(end) {
			return nil
		}
		time.Sleep(time.Until(due))
		if err := r.append(ctx, t, due); err != nil {
			return err
		}
	}
}

// burst writes several entries at once, and the next ones when all replicas have these.
func (r *rig) burst(ctx context.Context, t *timed, entries int) error {
	for range r.repeats {
		began := time.Now()
		for range entries {
			if err := r.append(ctx, t, began); err != nil {
				return err
			}
		}
		if err := t.WaitFor(ctx, uint64(len(r.log))); err != nil {
			return err
		}
		t.bursts = append(t.bursts, t.last())
		if err := t.Drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// last is how long the newest entry has taken.
func (t *timed) last() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.took[len(t.took)-1]
}
