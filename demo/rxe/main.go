// Command rxe shows real RDMA hosts on one machine. A source and three receivers are network
// namespaces, each with a Soft-RoCE device of the kernel (rdma_rxe); between them is the box with
// rocastd. Debian's unmodified ib_write_bw -R writes to all three receivers at once. In a second
// run the cable of a receiver is cut: the command prints what the box says, plugs the cable in
// again, and the run goes on to its end. It exits with status 1 if something was not as promised,
// and leaves nothing behind.
//
// Before Linux 7.1 rdma_rxe receives only in the initial network namespace (docs/wire.md#kernels).
// With -probe the command only finds out whether this kernel can, and exits with status 2 if it
// cannot. make demo-rxe then runs it in a virtual machine with the newest kernel
// (test/softroce/demorxe).
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
)

func main() {
	d := &demo{out: os.Stdout}
	flag.StringVar(&d.bin, "bin", "build", "directory of rocastd")
	flag.IntVar(&d.writes, "writes", 200, "WRITEs of 64 KiB in the first run")
	limit := flag.Duration("limit", 150*time.Second, "how long it may take")
	probeOnly := flag.Bool("probe", false, "only find out whether the kernel can hold the hosts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	if err := probe(ctx); err != nil {
		fmt.Printf("Linux %s of this machine cannot hold hosts with rxe in namespaces: %v\n", release(), err)
		os.Exit(2)
	}
	if *probeOnly {
		return
	}
	err := d.run(ctx)
	if err == nil {
		err = d.nothingIsLeft(ctx)
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

type demo struct {
	out    io.Writer
	bin    string
	writes int
	lab    *lab
}

// say prints a step.
func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) run(ctx context.Context) (err error) {
	d.say("Linux %s: 4 hosts in namespaces, each with a device of rdma_rxe, around a box with rocastd", release())
	if d.lab, err = newLab(ctx, d.bin); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.lab.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := d.allReceive(ctx); err != nil {
		return errors.Join(err, d.lab.log())
	}
	if err := d.cutCable(ctx); err != nil {
		return errors.Join(err, d.lab.log())
	}
	return nil
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "of an unknown release"
	}
	return unix.ByteSliceToString(name.Release[:])
}
