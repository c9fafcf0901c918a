package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rocast/rocast/bench/report"
)

// behind is how many receivers are behind the one port of a box beside the switch.
const behind = 8

// Names of the ways to receivers behind one port.
const (
	nameShared = "rocast to 8, shared copies"
	nameOwn    = "rocast to 8, copies of their own"
	nameEight  = "8 unicasts"
)

// stickWays have the receivers of a site with a box beside the switch.
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
	sizes := b.plan.stickSizes
	took, err := b.broadcasts(ctx, layout{receivers: behind, stick: true, rate: b.plan.stickRate}, sizes, stickWays())
	if err != nil {
		return err
	}
	b.part.Sections = append(b.part.Sections, stickTable(b.plan.stickRate, sizes, took))
	return nil
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
