package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	rounds := flag.Int("rounds", 5, "rounds; the median of them is reported")
	span := flag.Duration("time", time.Second, "how long each contestant is measured in a round")
	only := flag.String("only", "", "comma-separated contestants (default: all)")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "fanout:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *span, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fanout:", err)
		os.Exit(1)
	}
}

// contestant forwards from box port 0 to ports 1, 2, 3 until stopped.
type contestant struct {
	name  string
	start func(b *bed) (stop func() error, err error)
}

var contestants = []contestant{
	{"rocast", startRocast},
	{"bare", startBare},
	{"bridge", startBridge},
	{"mirred", startMirred},
}

func run(ctx context.Context, rounds int, span time.Duration, only string) error {
	var chosen []contestant
	for _, c := range contestants {
		if only == "" || slices.Contains(strings.Split(only, ","), c.name) {
			chosen = append(chosen, c)
		}
	}
	fmt.Printf("1 -> 3, one switch thread, %d rounds of %v each, in turn, median\n", rounds, span)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "payload\tpeer\tk copies/s\tmin\tmax\trocast is\t")
	for _, payload := range []int{1024, 4096} {
		if err := compare(ctx, out, chosen, payload, rounds, span); err != nil {
			return err
		}
	}
	return out.Flush()
}

// compare measures every contestant once in each round and prints the medians.
func compare(ctx context.Context, out *tabwriter.Writer, chosen []contestant, payload, rounds int, span time.Duration) error {
	rates := make([][]float64, len(chosen))
	for range rounds {
		for i, c := range chosen {
			rate, err := measure(ctx, c, payload, span)
			if err != nil {
				return fmt.Errorf("%s, %d bytes: %w", c.name, payload, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	ours := 0.0
	for i, c := range chosen {
		slices.Sort(rates[i])
		median := rates[i][len(rates[i])/2]
		if c.name == "rocast" {
			ours = median
		}
		ratio := "-"
		if ours > 0 && median > 0 {
			ratio = fmt.Sprintf("%.2f", ours/median)
		}
		fmt.Fprintf(out, "%d\t%s\t%.0f\t%.0f\t%.0f\t%s\t\n", payload, c.name,
			median/1e3, rates[i][0]/1e3, rates[i][len(rates[i])-1]/1e3, ratio)
	}
	return nil
}

// measure returns the copies per second that arrived at the three receivers.
func measure(ctx context.Context, c contestant, payload int, span time.Duration) (rate float64, err error) {
	b, err := newBed(payload)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := b.close(); err == nil {
			err = e
		}
	}()
	stop, err := c.start(b)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := stop(); err == nil {
			err = e
		}
	}()
	generator, err := b.generate()
	if err != nil {
		return 0, err
	}
	defer generator.stop()
	if err := b.awaitCopies(); err != nil {
		return 0, err
	}
	before, err := b.received()
	if err != nil {
		return 0, err
	}
	from := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(span):
	}
	after, err := b.received()
	if err != nil {
		return 0, err
	}
	return float64(after-before) / time.Since(from).Seconds(), nil
}
