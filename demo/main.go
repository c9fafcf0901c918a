// Command demo shows reliable multicast on one machine. One source, three receivers and the box
// between them live in network namespaces. rocastd serves the box's bridge ports over AF_XDP. Every
// link loses one RoCE packet in a thousand, at random and in both directions, while ordinary
// traffic passes through the same ports. The command prints what it has verified, and exits with
// status 1 if something was not as promised.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/bed"
)

const receivers = 3

func main() {
	bin := flag.String("bin", "build", "directory of rocastd and rocast")
	seed := flag.Uint("seed", uint(time.Now().UnixNano()&0xFFFFFF), "seed of the losses")
	loss := flag.Int("loss", 1000, "RoCE packets of a million lost on each link, each way")
	mib := flag.Int("mib", 64, "MiB to WRITE")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 110*time.Second)
	defer cancel()
	d := &demo{bin: *bin, seed: uint32(*seed), loss: *loss, bytes: *mib << 20}
	if err := d.run(ctx); err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

type demo struct {
	bin   string
	seed  uint32
	loss  int
	bytes int
	dir   string // the daemon's files
	lab   *bed.Bed
}

func (d *demo) run(ctx context.Context) (err error) {
	fmt.Printf("seed %d: %.1f RoCE packets in 1,000 lost on every link, each way\n", d.seed, float64(d.loss)/1000)
	if d.dir, err = os.MkdirTemp("", "rocast-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	d.lab, err = bed.New(bed.Options{Hosts: 1 + receivers, Seed: d.seed, LossPerMillion: d.loss})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.lab.Close()) }()

	daemon, err := d.startDaemon(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.stop()) }()
	if err := d.createGroup(ctx); err != nil {
		return err
	}
	t, err := d.connect(ctx)
	if err != nil {
		return err
	}
	others := d.startOrdinaryTraffic(ctx)
	if err := t.run(ctx); err != nil {
		return errors.Join(err, daemon.dump())
	}
	ordinary, err := others.stop()
	if err != nil {
		return err
	}
	counters, err := d.groupCounters(ctx)
	if err != nil {
		return err
	}
	return d.report(t, ordinary, counters)
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }
