// Command edge shows shared copies on one machine. A box with one port is on a switch that snoops,
// with a source and eight receivers, whose hosts run rocast-edge. The box sends each packet once,
// the switch replicates it, and the edges make it each receiver's own. Every link loses one RoCE
// packet in a thousand, in both directions. In the middle of the transfer one edge is killed and
// its program removed; it is started again later. The command prints what the box's port has
// carried, and exits with status 1 if something was not as promised.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/edges"
	"github.com/rocast/rocast/internal/testlab/lossy"
	"github.com/rocast/rocast/internal/testlab/netns"
)

const (
	receivers = 8
	hostsPort = 7472 // of hosts: listen
)

func main() {
	d := &demo{out: os.Stdout}
	flag.StringVar(&d.bin, "bin", "build", "directory of rocastd and rocast-edge")
	seed := flag.Uint("seed", uint(time.Now().UnixNano()&0xFFFFFF), "seed of the losses")
	flag.IntVar(&d.loss, "loss", 1000, "RoCE packets of a million lost on each link, each way")
	mib := flag.Int("mib", 32, "MiB to WRITE")
	flag.Parse()
	d.seed, d.bytes = uint32(*seed), *mib<<20
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 110*time.Second)
	defer cancel()
	if err := d.run(ctx); err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

// demo is one run.
type demo struct {
	out   io.Writer
	bin   string
	seed  uint32
	loss  int
	bytes int

	lab    *bed.Bed
	box    *netns.NS
	uplink *lossy.Link // at the switch's end of the box's link
	links  []*lossy.Link
	shared *counter // shared copies that have come to the switch
	daemon *boxes.Daemon
	edges  []*edges.Edge // of the receivers
}

var boxIP = netip.AddrFrom4([4]byte{10, 77, 3, 10})

func (d *demo) asks() netip.AddrPort { return netip.AddrPortFrom(boxIP, hostsPort) }

func (d *demo) run(ctx context.Context) (err error) {
	fmt.Fprintf(d.out, "seed %d: %.1f RoCE packets in 1,000 lost on every link, each way\n", d.seed, float64(d.loss)/1000)
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.build(); err != nil {
		return err
	}
	if err := d.daemon.Start(ctx, d.box); err != nil {
		return err
	}
	for _, e := range d.edges {
		if err := e.Start(d.asks()); err != nil {
			return err
		}
	}
	t, err := d.connect(ctx)
	if err == nil {
		err = t.run(ctx)
	}
	if err != nil {
		return errors.Join(err, fmt.Errorf("rocastd's log:\n%s\nthe log of the edge that is killed:\n%s", d.daemon.Log(), d.edges[killed].Log()))
	}
	return t.report(ctx)
}

// build makes the switch with all hosts, and the box. The losses are at the switch's ends of the
// links: at a host's end is the program of its edge.
func (d *demo) build() (err error) {
	if d.lab, err = bed.New(bed.Options{Hosts: 1 + receivers}); err != nil {
		return err
	}
	if err := edges.Snoop(d.lab.Box, bed.Bridge); err != nil {
		return err
	}
	const uplink = "box"
	if d.box, _, err = d.lab.AddStick(uplink, boxIP); err != nil {
		return err
	}
	end, err := d.lab.Box.Netlink().LinkByName(uplink)
	if err != nil {
		return err
	}
	at := netns.Link{NS: d.lab.Box, Name: uplink, Index: end.Attrs().Index, MAC: end.Attrs().HardwareAddr}
	if d.shared, err = count(at); err != nil {
		return err
	}
	if d.uplink, err = lossy.Attach(at, d.seed, d.loss); err != nil {
		return err
	}
	for i, h := range d.lab.Hosts {
		l, err := lossy.Attach(h.Port, d.seed+uint32(1+i), d.loss)
		if err != nil {
			return err
		}
		d.links = append(d.links, l)
		if i == 0 { // the source
			continue
		}
		e, err := edges.New(filepath.Join(d.bin, "rocast-edge"), h.NS)
		if err != nil {
			return err
		}
		d.edges = append(d.edges, e)
	}
	d.daemon, err = boxes.NewDaemon(filepath.Join(d.bin, "rocastd"), boxes.Ports("eth1")+fmt.Sprintf(
		"hosts: {listen: %v, groupIPs: [10.77.3.200]}\nedges: {addresses: [239.77.0.0/28]}\n", d.asks()))
	return err
}

func (d *demo) close() error {
	var errs []error
	for _, e := range d.edges {
		errs = append(errs, e.Close())
	}
	if d.daemon != nil {
		errs = append(errs, d.daemon.Remove())
	}
	if d.shared != nil {
		errs = append(errs, d.shared.close())
	}
	for _, l := range append(d.links, d.uplink) {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if d.box != nil {
		errs = append(errs, d.box.Close())
	}
	if d.lab != nil {
		errs = append(errs, d.lab.Close())
	}
	return errors.Join(errs...)
}
