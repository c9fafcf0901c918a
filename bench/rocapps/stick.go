package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/internal/testlab/slow"
)

// behind is how many receivers are behind the one port of a box beside the switch.
const behind = 8

// beside is a box with one port at a switch, which the hosts are on too, and an edge at each
// receiver. The port has the hosts' rate towards the switch.
type beside struct {
	box   *netns.NS
	port  netns.Link
	link  *slow.Link
	edges []*edges.Edge
}

var (
	besideIP   = netip.AddrFrom4([4]byte{10, 77, 3, 10})
	besideAsks = netip.AddrPortFrom(besideIP, 7472)
)

// configBeside are the lines that a box needs to share copies.
var configBeside = fmt.Sprintf("hosts: {listen: %v, groupIPs: [10.77.3.200]}\nedges: {addresses: [239.77.0.0/28]}\n", besideAsks)

// putBeside puts a box beside the switch of the site.
func (s *site) putBeside() (_ *beside, err error) {
	b := &beside{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := edges.Snoop(s.bed.Box, bed.Bridge); err != nil {
		return nil, err
	}
	const uplink = "box"
	if b.box, b.port, err = s.bed.AddStick(uplink, besideIP); err != nil {
		return nil, err
	}
	b.link, err = slow.Attach(netns.Link{NS: s.bed.Box, Name: uplink}, s.rate)
	return b, err
}

// startEdges starts an edge at each receiver.
func (b *beside) startEdges(bin string, receivers []*host) error {
	for _, h := range receivers {
		e, err := edges.New(filepath.Join(bin, "rocast-edge"), h.Host)
		if err != nil {
			return err
		}
		b.edges = append(b.edges, e)
		if err := e.Start(besideAsks); err != nil {
			return err
		}
	}
	return nil
}

// awaitShares returns when the copies of a group reach all its receivers by one leg.
func (s *site) awaitShares(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	for {
		g, err := s.daemon.Group(ctx, groupName)
		if err != nil {
			return fmt.Errorf("wait until all receivers share the copies: %w", err)
		}
		if len(g.Shares) == 1 && g.Shares[0].Working == s.receivers {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the receivers do not share the copies after %v: %+v %s", drain, g.Shares, g.CopiesOwn)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (b *beside) close() error {
	var errs []error
	for _, e := range b.edges {
		errs = append(errs, e.Close())
	}
	if b.box != nil {
		errs = append(errs, b.box.Close())
	}
	return errors.Join(errs...)
}

// Names of the ways to receivers behind one port.
const (
	nameShared = "rocast to 8, shared copies"
	nameOwn    = "rocast to 8, copies of their own"
	nameEight  = "8 unicasts"
)

// stickWays have the receivers of a place with a box beside the switch.
func stickWays() []*method {
	shared := rocast(nameShared, keyShipped)
	shared.shares = true
	ways := []*method{shared, rocast(nameOwn, "copies: own"), unicast(nameEight, behind), chain(nameChain, 4), tree()}
	for _, m := range ways {
		m.receivers = behind
	}
	return ways
}

// ofOnePacket bounds the bytes on the box's port for each byte of the messages, where all share the
// copies: 1.05 packets for each of the source's, whose headers are 8 % of a packet's payload.
const ofOnePacket = 1.05 * 1.08

// stick is table (h).
func (b *bench) stick(ctx context.Context) error {
	ways, sizes := stickWays(), b.plan.stickSizes
	took := map[int]map[string]sample{}
	err := b.in(ctx, stickPlace(b.plan.stickRate, sizes[len(sizes)-1]), func(s *site) error {
		for _, bytes := range sizes {
			took[bytes] = map[string]sample{}
			for _, m := range ways {
				fmt.Fprintf(os.Stderr, "behind one port, %s, %s\n", size(bytes), m.name)
				r, err := s.measure(ctx, m, job{bytes: bytes, posted: 1, span: b.plan.broadcast, least: enough, drain: 3 * drain})
				if err != nil {
					return err
				}
				took[bytes][m.name] = r
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.part.Sections = append(b.part.Sections, stickTable(b.plan.stickRate, sizes, took))
	return nil
}

func stickPlace(rate, memory int) place {
	return place{receivers: behind, stick: true, rate: rate, timeout: calmTimeout, memory: memory}
}

const textStick = "As in (c), with %d receivers. The box is beside the switch, with one port, whose link carries %d Mb/s to the switch, as the links from the hosts do. " +
	"The switch, a bridge that snoops, replicates multicast. Each receiver runs `rocast-edge`, as it is shipped. Unicast packets do not cross the box."

var notesStick = []string{
	"*port's bytes* are those that have left the box's port, with headers and with the answers to the source, for each byte of the messages.",
	"Khooi et al. replicate in switches and put in each receiver's numbers at the receiver's end, too. They report no times of transfers.",
	"RDMC's pipeline is left out: it is built for a power of two of hosts.",
}

func stickTable(rate int, sizes []int, took map[int]map[string]sample) report.Section {
	sec := report.Section{
		Title: titleStick, Command: "make bench-apps ONLY=stick", Text: fmt.Sprintf(textStick, behind, rate/1_000_000),
		Columns: append([]string{"bytes", "", "p50, us", "p99, us", "times shared", "port's bytes", "broadcasts"}, loadColumns...),
		Notes:   notesStick,
	}
	for _, bytes := range sizes {
		got := took[bytes]
		ours := p50(got[nameShared])
		for _, m := range stickWays() {
			r := got[m.name]
			times, port := float64(p50(r))/float64(ours), float64(r.portBytes)/float64(r.messages*bytes)
			cell := ""
			if m.group {
				cell = fmt.Sprintf("%.2f", port)
			}
			sec.Rows = append(sec.Rows, append([]string{size(bytes), m.name, micro(p50(r)), micro(report.Quantile(r.told, 0.99)),
				fmt.Sprintf("%.2f", times), cell, strconv.Itoa(r.messages)}, r.load.cells()...))
			if bytes < fairFrom {
				continue
			}
			if m.shares {
				sec.Holds = append(sec.Holds, report.Bound{
					What: fmt.Sprintf("%s: at most 1.05 packets leave the box's port for each of the source's (%.2f bytes for each byte)", size(bytes), port), OK: port <= ofOnePacket,
				})
			} else {
				sec.Holds = append(sec.Holds, report.Bound{What: fmt.Sprintf("%s: shared copies are faster than %s (%.2f times)", size(bytes), m.name, times), OK: times > 1})
			}
		}
	}
	return sec
}
