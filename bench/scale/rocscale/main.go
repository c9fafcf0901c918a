package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	out := flag.String("out", "build/sim-scale", "directory for the report")
	short := flag.Bool("short", false, "smaller transfers, in less than a minute")
	seed := flag.Uint64("seed", 1, "of all random numbers")
	flag.Parse()
	if err := run(*out, *short, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "rocscale:", err)
		os.Exit(1)
	}
}

func run(out string, short bool, seed uint64) error {
	s := newSession(short, seed)
	for _, e := range experiments {
		began := time.Now()
		if err := e.run(s); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %.1f s\n", e.name, time.Since(began).Seconds())
	}
	return s.report().write(out)
}
