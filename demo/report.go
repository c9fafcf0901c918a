package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/rocast/rocast/internal/rnic"
)

// report prints what was observed. It returns an error for everything that is not as promised.
func (d *demo) report(t *transfer, ordinary string, counters map[string]uint64) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	sum := sha256.Sum256(t.data)
	fmt.Fprintf(w, "source memory\t%x\n", sum[:16])
	var acks, naks, lostToHosts, lostFromHosts uint64
	for i := range t.receivers {
		got, same := d.check(t, i)
		fmt.Fprintf(w, "receiver %d memory\t%x\n", i+1, got[:16])
		must(same, "receiver %d's bytes differ from the source's", i+1)
		c := d.lab.Hosts[1+i].RNIC.Counters()
		acks += c.Get(rnic.ACKsSent)
		naks += c.Get(rnic.NAKSequenceSent)
		must(c.Rejected() == 0, "receiver %d refused %d frames: %v", i+1, c.Rejected(), c.ByName())
	}
	for _, h := range d.lab.Hosts {
		in, out, err := h.Loss.Lost()
		if err != nil {
			return err
		}
		lostToHosts, lostFromHosts = lostToHosts+in, lostFromHosts+out
	}
	s := d.lab.Hosts[0].RNIC.Counters()
	_, violated := t.source.Violation()
	must(!violated && s.Violations() == 0, "the source received a response that is not true")
	must(s.Rejected() == 0, "the source refused %d frames: %v", s.Rejected(), s.ByName())
	must(d.loss == 0 || lostToHosts+lostFromHosts > 0, "no packet was lost, so no repair was shown")

	seconds := t.took.Seconds()
	fmt.Fprintf(w, "WRITE goodput\t%.0f Mb/s to each receiver (%d MiB in %.2f s)\n",
		float64(len(t.data))*8/seconds/1e6, len(t.data)>>20, seconds)
	fmt.Fprintf(w, "SENDs\t%d of %d bytes to each receiver\n", sends, sendBytes)
	fmt.Fprintf(w, "packets lost\t%d on the way to hosts, %d on the way from them\n", lostToHosts, lostFromHosts)
	fmt.Fprintf(w, "ACKs\t%d sent by the receivers, %d heard by the source\n", acks, s.Get(rnic.ACKsReceived))
	fmt.Fprintf(w, "NAKs\t%d sent by the receivers, %d heard by the source\n", naks, s.Get(rnic.NAKSequenceReceived))
	fmt.Fprintf(w, "resent packets\t%d by the source: %d forwarded to the receivers that lacked them, %d filtered\n",
		s.Get(rnic.FramesRetransmitted), counters["resent"], counters["filtered"])
	fmt.Fprintf(w, "timeouts\t%d at the source\n", s.Get(rnic.Timeouts))
	fmt.Fprintf(w, "other traffic\t%s\n", ordinary)
	return errors.Join(append(errs, w.Flush())...)
}
