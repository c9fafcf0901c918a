// Command tree shows a group over three boxes on one machine. The source and three receivers are at
// the first leaf, three more at the second one; a spine without hosts joins the leaves. rocastd
// runs in each box, and the group is created at the first leaf only: that box asks the others for
// the members behind them. Every link loses one RoCE packet in a thousand, in both directions. In
// the middle of the transfer the spine's rocastd is killed and started again. The command prints
// how often each link carried a packet, and exits with status 1 if something was not as promised.
// With -setup it measures how long it takes to create groups of 3, 64 and 512 members.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
	"github.com/rocast/rocast/internal/testlab/fabric"
)

func main() {
	d := &demo{out: os.Stdout}
	flag.StringVar(&d.bin, "bin", "build", "directory of rocastd")
	seed := flag.Uint("seed", uint(time.Now().UnixNano()&0xFFFFFF), "seed of the losses")
	flag.IntVar(&d.loss, "loss", 1000, "RoCE packets of a million lost on each link, each way")
	mib := flag.Int("mib", 32, "MiB to WRITE")
	router := flag.Bool("router", false, "a plain router between the boxes instead of a bridge")
	flag.BoolVar(&d.setUp, "setup", false, "measure how long it takes to create groups, and nothing else")
	flag.Parse()
	d.seed, d.bytes, d.kill = uint32(*seed), *mib<<20, true
	if *router {
		d.between = fabric.Router
	}
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
	out     io.Writer
	bin     string
	seed    uint32
	loss    int
	bytes   int
	between fabric.Between
	kill    bool // the spine's daemon is killed in the middle
	setUp   bool // only set-up is measured

	lab *fabric.Fabric
	set *boxes.Set
}

var names = []string{"leaf1", "spine", "leaf2"}

func (d *demo) run(ctx context.Context) (err error) {
	if !d.setUp {
		fmt.Fprintf(d.out, "seed %d: %.1f RoCE packets in 1,000 lost on every link, each way\n", d.seed, float64(d.loss)/1000)
	}
	d.lab = &fabric.Fabric{}
	defer func() { err = errors.Join(err, d.lab.Close()) }()
	for i, hosts := range []int{4, 0, 3} {
		if _, err := d.lab.AddBox(bed.Options{Hosts: hosts, LossPerMillion: d.loss, Seed: d.seed + uint32(100*i)}); err != nil {
			return err
		}
	}
	for i := range 2 {
		if _, err := d.lab.Join(d.lab.Boxes[i], d.lab.Boxes[i+1], d.between, d.seed+uint32(i)+50, d.loss); err != nil {
			return err
		}
	}
	if d.set, err = boxes.New(d.lab, d.bin, names...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.set.Close()) }()
	for _, b := range d.set.Boxes {
		if err := b.Start(ctx); err != nil {
			return err
		}
	}
	if d.setUp {
		return d.measure(ctx, []int{3, 64, 512}, 50)
	}
	t := d.newTransfer()
	if err := t.create(ctx); err != nil {
		return errors.Join(err, d.logs())
	}
	if err := t.connect(ctx); err != nil {
		return err
	}
	if err := t.run(ctx); err != nil {
		return errors.Join(err, d.logs())
	}
	return t.report(ctx)
}

// restart kills the spine's daemon and starts it again.
func (d *demo) restart(ctx context.Context) error {
	spine := d.set.Boxes[1]
	began := time.Now()
	if err := errors.Join(spine.Kill(), spine.Start(ctx)); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "the spine's rocastd was killed and answers again after %v\n", time.Since(began).Round(time.Millisecond))
	return nil
}

func (d *demo) logs() error {
	var errs []error
	for _, b := range d.set.Boxes {
		errs = append(errs, fmt.Errorf("%s:\n%s", b.Name, b.Log()))
	}
	return errors.Join(errs...)
}
