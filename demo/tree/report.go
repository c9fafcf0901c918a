package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
)

// mostCopies bounds how often a link may carry a packet, losses, a restart and a busy machine
// included. Six connections would carry each packet three times over the links between the boxes.
const mostCopies = 2.5

// report prints what was observed. It returns an error for everything that is not as promised.
func (t *transfer) report(ctx context.Context) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	sum := sha256.Sum256(t.data)
	fmt.Fprintf(w, "source memory\t%x\n", sum[:16])
	for _, r := range t.receivers {
		got, same := t.same(r)
		sum := sha256.Sum256(got)
		fmt.Fprintf(w, "%v at %s\t%x\n", r.IP, r.box, sum[:16])
		must(same, "the bytes of %v differ from the source's", r.IP)
		c := r.RNIC.Counters()
		must(c.Rejected() == 0, "%v refused %d frames: %v", r.IP, c.Rejected(), c.ByName())
	}
	s := t.from.RNIC.Counters()
	_, violated := t.source.Violation()
	must(!violated && s.Violations() == 0 && s.Rejected() == 0, "the source received a response that is not true")
	fmt.Fprintf(w, "set-up\t%v for %d members at %d boxes\n", t.stood.Round(100e3), 1+len(t.receivers), len(t.set.Boxes))
	fmt.Fprintf(w, "WRITE goodput\t%.0f Mb/s to each receiver (%d MiB in %.2f s, restart included)\n",
		float64(len(t.data))*8/t.took.Seconds()/1e6, len(t.data)>>20, t.took.Seconds())
	fmt.Fprintf(w, "resent packets\t%d by the source, %d timeouts\n", s.Get(rnic.FramesRetransmitted), s.Get(rnic.Timeouts))
	packets := uint64(len(t.data) / pathMTU)
	for i, l := range t.lab.Links {
		down, up, err := l.Wire.Passed()
		if err != nil {
			return err
		}
		lostDown, lostUp, err := l.Wire.Lost()
		if err != nil {
			return err
		}
		copies := float64(down) / float64(packets)
		fmt.Fprintf(w, "link %s - %s\t%d packets of the source: %d copies, %.3f of each, and %d lost; %d answers, and %d lost\n",
			names[i], names[i+1], packets, down, copies, lostDown, up, lostUp)
		must(down >= packets && copies <= mostCopies, "the link between %s and %s carried each packet %.2f times", names[i], names[i+1], copies)
		must(t.loss == 0 || lostDown+lostUp > 0, "the link between %s and %s lost nothing, so no repair was shown", names[i], names[i+1])
	}
	tree, err := t.set.Boxes[0].Client().Tree(ctx, groupName)
	if err != nil {
		return err
	}
	depth := 0
	for at := &tree; at != nil; depth++ {
		must(at.Reason == "" && at.Group.State == api.Ready, "box %s: %s%s %s", at.Box, at.Reason, at.Group.State, at.Group.Reason)
		if len(at.Below) == 0 {
			at = nil
		} else {
			at = &at.Below[0]
		}
	}
	must(depth == len(names), "the tree has %d boxes", depth)
	return errors.Join(append(errs, w.Flush())...)
}
