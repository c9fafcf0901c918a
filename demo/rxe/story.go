package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

const (
	writeBytes = 65536 // of each of perftest's WRITEs
	pathMTU    = 1024
)

// allReceive plays a run, and checks by the counters of the hosts' own devices that the source sent
// each packet about once, and that each receiver got all of them.
func (d *demo) allReceive(ctx context.Context) error {
	var before, after [1 + receivers]map[string]uint64
	var err error
	for i := range before {
		if before[i], err = d.lab.counters(ctx, i); err != nil {
			return err
		}
	}
	d.say("\nhosts 2, 3, 4: ib_write_bw -R -F -n %d\nhost 1:        ib_write_bw -R -F -n %[1]d %v", d.writes, d.lab.GroupIP())
	all, err := d.lab.write(ctx, d.writes)
	if err != nil {
		return err
	}
	if err := all.wait(); err != nil {
		return err
	}
	for i := range after {
		if after[i], err = d.lab.counters(ctx, i); err != nil {
			return err
		}
	}
	table, err := all[0].result()
	if err != nil {
		return err
	}
	d.say("%s", table)
	return d.report(before, after)
}

// report prints what the devices have counted, and returns an error for what is not as promised.
func (d *demo) report(before, after [1 + receivers]map[string]uint64) error {
	var errs []error
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	needed := uint64(d.writes * writeBytes / pathMTU)
	fmt.Fprintf(w, "to be written\t%d packets, %.1f MB\n", needed, float64(d.writes)*writeBytes/1e6)
	sent := after[0]["sent_pkts"] - before[0]["sent_pkts"]
	fmt.Fprintf(w, "host 1 sent\t%d packets to the group: %.2f of each\n", sent, float64(sent)/float64(needed))
	if sent < needed || sent >= 2*needed {
		errs = append(errs, fmt.Errorf("the source sent %d packets for %d", sent, needed))
	}
	for i := 1; i <= receivers; i++ {
		got, bytes := after[i]["rcvd_pkts"]-before[i]["rcvd_pkts"], after[i]["rcvd_bytes"]-before[i]["rcvd_bytes"]
		fmt.Fprintf(w, "host %d received\t%d packets, %.1f MB\n", i+1, got, float64(bytes)/1e6)
		if got < needed {
			errs = append(errs, fmt.Errorf("host %d received %d packets of %d", i+1, got, needed))
		}
	}
	return errors.Join(append(errs, w.Flush())...)
}

// cutHost is the host whose cable is cut.
const cutHost = 2

// cutCable plays a longer run, cuts the cable of a receiver in the middle, waits until the box says
// so, and plugs the cable in again. The run has to get to its end.
func (d *demo) cutCable(ctx context.Context) error {
	err := until(ctx, "the group of the first run to end", func() (bool, error) {
		list, err := d.lab.Daemon.Client().Groups(ctx)
		return err == nil && len(list.Groups) == 0, err
	})
	if err != nil {
		return err
	}
	all, err := d.lab.write(ctx, 2*d.writes)
	if err != nil {
		return err
	}
	name, err := d.awaitTransfer(ctx, all[0])
	if err != nil {
		return err
	}
	victim := d.lab.Hosts[cutHost]
	d.say("\nthe same again, and the cable of host %d is cut in the middle of the run", cutHost+1)
	if _, err := victim.NS.Exec("ip", "link", "set", victim.End.Name, "down"); err != nil {
		return err
	}
	cut := time.Now()
	var group api.Group
	err = until(ctx, "the box to name "+victim.IP.String(), func() (bool, error) {
		group, err = d.lab.Daemon.Client().Group(ctx, name)
		return group.State == api.Degraded && strings.HasPrefix(group.Reason, victim.IP.String()+": "), err
	})
	if err != nil {
		return fmt.Errorf("%w; the group is %s: %s", err, group.State, group.Reason)
	}
	d.say("the box says, %.1f s later: the group is %s: %s", time.Since(cut).Seconds(), group.State, group.Reason)
	if _, err := victim.NS.Exec("ip", "link", "set", victim.End.Name, "up"); err != nil {
		return err
	}
	d.say("the cable is plugged in again")
	if err := all.wait(); err != nil {
		return err
	}
	table, err := all[0].result()
	if err != nil {
		return err
	}
	d.say("all four programs ended well:\n%s", table)
	return nil
}

// awaitTransfer waits until data of the run has been acknowledged, and returns the name of its
// group. perftest's control messages have a connection without a group.
func (d *demo) awaitTransfer(ctx context.Context, source *program) (name string, err error) {
	const some = 256 // packets
	err = until(ctx, "the transfer", func() (bool, error) {
		select {
		case <-source.ended:
			return false, errors.Join(errors.New("the run ended before the cable was cut"), source.wait())
		default:
		}
		list, err := d.lab.Daemon.Client().Groups(ctx)
		if err != nil || len(list.Groups) == 0 {
			return false, err
		}
		name = list.Groups[0].Name
		group, err := d.lab.Daemon.Client().Group(ctx, name)
		if err != nil {
			return false, err
		}
		return group.Engine != nil && group.Counters["forwarded"]+group.Engine.Carried > some, nil
	})
	return name, err
}
