package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rocast/rocast/bench/beside"
	"github.com/rocast/rocast/bench/site"
	"github.com/rocast/rocast/bench/ways"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/slow"
)

// plan says what is measured.
type plan struct {
	rate  int           // of the hosts' links, bits per second
	span  time.Duration // of a measurement
	alone int           // blocks that are put one at a time
	sizes []int         // of blocks
	stick []int         // of blocks that go to replicas behind one port
}

func newPlan(rate int, short bool) plan {
	p := plan{rate: rate, span: 5 * time.Second, alone: 50, sizes: []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}, stick: []int{4 << 10, 64 << 10, 1 << 20}}
	if short {
		p.span, p.alone, p.sizes, p.stick = 2*time.Second, 10, []int{4 << 10, 64 << 10, 1 << 20}, []int{64 << 10}
	}
	return p
}

// The ways by which a leader writes a block to all replicas. Behind one port of the box, a group's
// receivers share the copies or have copies of their own.
const (
	byGroup  = "group"
	byEach   = "each"
	byShared = "shared"
	byOwn    = "own"
)

// behind is how many replicas are behind one port.
const behind = 8

// measured is one measurement. A block is stored here when all replicas have said so.
type measured struct {
	Replicas   int     `json:"replicas"`
	BlockBytes int     `json:"blockBytes"`
	Way        string  `json:"way"`
	PerSecond  float64 `json:"blocksPerSecond"`
	P50        float64 `json:"p50us"` // of a block that is put when the one before is stored, until it is stored
	P99        float64 `json:"p99us"`
	LoadedP50  float64 `json:"loadedP50us"`         // of a block that is put as soon as there is room, behind others
	SourceSent float64 `json:"sourceBytesPerBlock"` // on the wire
	Fsync      float64 `json:"fsyncP50us"`
	site.Used
}

func (m measured) String() string {
	return fmt.Sprintf("%7d B to %d by %-6s: %7.1f blocks/s; alone p50 %7.0f us, p99 %7.0f us; %9.0f B on the wire for each, link %3.0f %%, fsync %6.0f us, CPUs %.2f hosts %.2f box",
		m.BlockBytes, m.Replicas, m.Way, m.PerSecond, m.P50, m.P99, m.SourceSent, 100*m.LinkShare, m.Fsync, m.HostsCPUs, m.BoxCPUs)
}

func save(rows []measured, path string) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// measure measures all sizes by each way, in a lab of its own.
func measure(ctx context.Context, out io.Writer, program, dir string, p plan) (rows []measured, err error) {
	for _, at := range []struct {
		sizes    []int
		replicas int
		ways     []string
		open     func(ctx context.Context, hosts int, program string) (*site.Lab, error)
	}{
		{p.sizes, replicas, []string{byGroup, byEach}, site.Open},
		{p.stick, behind, []string{byShared, byOwn, byEach}, func(ctx context.Context, hosts int, program string) (*site.Lab, error) {
			return site.OpenBeside(ctx, hosts, program, p.rate)
		}},
	} {
		for _, size := range at.sizes {
			for _, way := range at.ways {
				l, err := at.open(ctx, 1+at.replicas, program)
				if err != nil {
					return nil, err
				}
				m, err := p.measure(ctx, l, dir, size, way)
				if err = errors.Join(err, l.Close()); err != nil {
					return nil, fmt.Errorf("blocks of %d bytes to %d replicas by %s: %w", size, at.replicas, way, err)
				}
				fmt.Fprintln(out, m)
				rows = append(rows, m)
			}
		}
	}
	return rows, nil
}

// window is how many bytes of blocks may be under way, and leastSlots how many blocks: more than
// the link carries while a disk is busy.
const (
	window     = 512 << 10
	leastSlots = 3
	mostSlots  = 64
)

func (p plan) measure(ctx context.Context, l *site.Lab, dir string, size int, way string) (m measured, err error) {
	replicas := len(l.Hosts) - 1
	if dir, err = os.MkdirTemp(dir, "rocast-storage-"); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, h := range l.Hosts {
		if err := slow.Shape(h.End, p.rate); err != nil {
			return m, err
		}
	}
	lead, err := newLeader(l, dir, shape{most: size, slots: min(max(window/size, leastSlots), mostSlots)})
	if err != nil {
		return m, err
	}
	by := func(ctx context.Context, s ways.Settings) (*ways.Way, error) {
		s.Timeout = ways.Calm
		if way == byEach {
			return ways.Each(ctx, s, replicas, nil)
		}
		if way == byOwn {
			lead.copies = "copies: own"
		}
		to, err := lead.group(ctx, s)
		if err == nil && way == byShared {
			err = beside.Sharing(ctx, replicas, func(ctx context.Context) (api.Group, error) { return lead.api.Group(ctx, groupName) })
		}
		return to, err
	}
	if lead.to, err = openSender(ctx, lead.shape, lead.host, lead.replicas, 0, replicas, lead.numbers(), by); err != nil {
		return m, err
	}
	m, err = p.run(ctx, l, lead, make([]byte, size))
	m.BlockBytes, m.Way, m.Replicas = size, way, replicas
	err = errors.Join(err, lead.to.close())
	for _, r := range lead.replicas {
		if err == nil && r.log.newest() != lead.last {
			err = fmt.Errorf("replica %v has another log than the leader", r.host.IP)
		}
		err = errors.Join(err, r.log.close())
	}
	return m, err
}

// run puts blocks for a time, waits until all are stored, and puts some more one at a time.
func (p plan) run(ctx context.Context, l *site.Lab, lead *leader, block []byte) (m measured, err error) {
	before, err := l.Use(lead.host)
	if err != nil {
		return m, err
	}
	for began := time.Now(); time.Since(began) < p.span; {
		if err := lead.put(ctx, block); err != nil {
			return m, err
		}
	}
	if err := lead.to.awaitStored(ctx); err != nil {
		return m, err
	}
	after, err := l.Use(lead.host)
	var syncs []time.Duration
	for _, r := range lead.replicas {
		syncs = append(syncs, r.times()...)
	}
	loaded := lead.to.times()
	m = measured{LoadedP50: site.Quantile(loaded, 50), Fsync: site.Quantile(syncs, 50), Used: after.Since(before, p.rate)}
	m.PerSecond = float64(len(loaded)) / m.Seconds
	m.SourceSent = float64(m.Sent) / float64(len(loaded))
	for range p.alone {
		if err := errors.Join(err, lead.put(ctx, block), lead.to.awaitStored(ctx)); err != nil {
			return m, err
		}
	}
	alone := lead.to.times()[len(loaded):]
	m.P50, m.P99 = site.Quantile(alone, 50), site.Quantile(alone, 99)
	return m, err
}
