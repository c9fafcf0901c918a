package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/peer"
)

func main() {
	peer.RunAsForwarder()
	short := flag.Bool("short", false, "the short form: 1024 and 4096 bytes, 3 receivers")
	out := flag.String("out", "build/bench", "directory of the report")
	bin := flag.String("bin", "build", "directory of rocastd")
	only := flag.String("only", "", "comma-separated contestants (default: all)")
	sections := flag.String("sections", "", "comma-separated sections: main, payload, receivers, groups, workers, "+
		"latency, changes, restarts (default: all of the form)")
	rounds := flag.Int("rounds", 0, "rounds of each setting (default: the form's)")
	span := flag.Duration("span", 0, "how long a contestant is measured in a round (default: the form's)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	p := fullForm()
	if *short {
		p = shortForm()
	}
	p.restrict(list(*sections))
	p.override(*rounds, *span)
	err := run(ctx, p, *out, *bin, list(*only))
	if err != nil {
		fmt.Fprintln(os.Stderr, "rocbench:", err)
		os.Exit(1)
	}
}

// hostsProcessors is the number of Go's processors: one for the hosts' thread, some for all else.
const hostsProcessors = 4

func list(words string) []string {
	if words == "" {
		return nil
	}
	return strings.Split(words, ",")
}

func run(ctx context.Context, p plan, out, bin string, only []string) error {
	cpus, err := lab.SplitCPUs(1)
	if err != nil {
		return err
	}
	// Other work of this process, such as garbage collection, must not run on the switch's CPU. The
	// hosts' thread occupies a processor of Go's runtime, which would then count only one CPU.
	runtime.GOMAXPROCS(hostsProcessors)
	if err := lab.PinProcess(cpus.Hosts); err != nil {
		return err
	}
	b, err := newBench(p, bin, only)
	if err != nil {
		return err
	}
	measured := b.measure(ctx)
	if errors.Is(measured, context.Canceled) {
		return errors.New("interrupted; everything is taken away, and no report is written")
	}
	return errors.Join(measured, b.write(out))
}
