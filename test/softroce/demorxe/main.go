// Command demorxe runs demo/rxe in a virtual machine with the newest kernel that
// test/softroce/setup.sh has found, for a machine whose own kernel cannot hold the hosts. The box,
// its hosts and all their programs are in that machine; nothing of this machine changes. Ctrl-C
// cuts the power.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/test/softroce"
)

func main() {
	bin := flag.String("bin", "build", "directory of rocastd and demo-rxe")
	limit := flag.Duration("limit", 10*time.Minute, "how long it may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	if err := run(ctx, os.Stdout, *bin, *limit); err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, bin string, limit time.Duration) (err error) {
	fmt.Fprintln(out, "so all of it runs in one virtual machine; without KVM it takes a minute or two")
	began := time.Now()
	l, err := softroce.OpenGuest(ctx, softroce.NewestKernel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	guest := l.Box.(*softroce.BoxGuest)
	fmt.Fprintf(out, "a virtual machine with Linux %s has booted in %.0f s (%s)\n", guest.Kernel, time.Since(began).Seconds(), l.Accel)
	const dir = "/tmp/"
	for _, name := range []string{"rocastd", "demo-rxe"} {
		content, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return err
		}
		if err := guest.Put(ctx, dir+name, content); err != nil {
			return err
		}
	}
	p, err := guest.Start(dir+"demo-rxe", "-bin", dir, "-limit", limit.String())
	if err != nil {
		return err
	}
	for {
		line, err := p.Stdout.ReadLine(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, line)
	}
	exit, err := p.Wait(ctx)
	if err == nil && !exit.OK() {
		err = fmt.Errorf("demo-rxe in the virtual machine: %s\n%s", exit, p.Stderr)
	}
	return err
}
