package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/machine"
	"github.com/rocast/rocast/bench/report"
	"github.com/rocast/rocast/internal/testlab/softcast"
)

func main() {
	softcast.BeHost()
	b := &bench{plan: fullForm()}
	flag.BoolVar(&b.part.Short, "short", false, "the short form: fewer sizes, less than a second for each row")
	out := flag.String("out", "build/bench-apps", "directory of the report")
	flag.StringVar(&b.bin, "bin", "build", "directory of rocastd")
	only := flag.String("only", "", "comma-separated sections: "+strings.Join(names(), ", ")+" (default: all)")
	mbits := flag.Int("rate", 100, "of the hosts' links, Mb/s")
	page := flag.String("page", "", "write the page and its plots into this directory, too (docs); with -only, these sections of the page that is there")
	scale := flag.String("scale", "build/sim-scale", "directory of the report of make sim-scale, for the page")
	flag.Parse()
	b.rate = *mbits * 1_000_000
	if b.part.Short {
		b.plan = shortForm()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	err := b.run(ctx, *only)
	if err == nil {
		err = b.write(*out, *page, *scale, *only == "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rocapps:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	plan plan
	bin  string // directory of rocastd
	rate int    // of the hosts' links, bits per second
	part report.Part
}

// sections are what is measured, in this order.
var sections = []struct {
	name    string
	measure func(*bench, context.Context) error
}{
	{"iops", (*bench).iops},
	{"latency", (*bench).latency},
	{"broadcast", (*bench).broadcast},
	{"consensus", (*bench).consensus},
	{"storage", (*bench).storage},
	{"loss", (*bench).losses},
	{"stick", (*bench).stick},
	{"copies", (*bench).copies},
}

func names() (all []string) {
	for _, s := range sections {
		all = append(all, s.name)
	}
	return all
}

func (b *bench) run(ctx context.Context, only string) error {
	chosen := names()
	if only != "" {
		chosen = strings.Split(only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("there is no section %q: take %s", name, strings.Join(names(), ", "))
		}
	}
	b.begin()
	for _, s := range sections {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		err := s.measure(b, ctx)
		if ctx.Err() != nil {
			return errors.New("interrupted; everything is taken away, and no report is written")
		}
		if err != nil {
			b.skip(s.name, err)
		}
	}
	b.part.Seconds = time.Since(b.part.Began).Seconds()
	return nil
}

func (b *bench) begin() {
	b.part.Began, b.part.Machine = time.Now(), machine.Describe(b.bin)
	b.part.Title, b.part.Command = "On shaped links", "make bench-apps"
	if b.part.Short {
		b.part.Command += " SHORT=1"
	}
	b.part.Text = fmt.Sprintf(howMeasured, receivers, b.rate/1_000_000, percent(busyShare), percent(fullShare))
}

const howMeasured = `A source and %d receivers in network namespaces around a box with rocastd, as it is shipped, with soft RDMA NICs (RC, path MTU 1024, at most 129
packets unacknowledged, as rxe). All ways use the same NICs, links and code; unicast packets cross the kernel's bridge. What is delivered is
compared with what was sent.

Each host's link carries %d Mb/s from the host (HTB, ACKs first), a millisecond of it at once. To the host it is not limited, which favours the binomial
pipeline. Virtual machines with Soft-RoCE are not measured: their emulation would be the limit in every row.

*source's link* is how busy that link was. The CSV files also have the CPUs of source, receivers and box, with their soft NICs and the kernel's
receive work. The *limit* of a row is **CPU** if the busiest CPU was busy for more than %[3]s. Time of rocastd does not count in that, because its threads
spin while packets are on their way, and give way to others. It is **box** if rocastd used more than %[3]s of a CPU and the link was less than %[4]s busy.`

// at builds a site for f, whose queue pairs have a timeout, and whose hosts have so much memory.
func (b *bench) at(ctx context.Context, timeout uint8, memory int, f func(*site) error) error {
	return b.in(ctx, layout{receivers: receivers, rate: b.rate, timeout: timeout, memory: memory}, f)
}

// in builds a site of a layout for f.
func (b *bench) in(ctx context.Context, p layout, f func(*site) error) error {
	p.bin = b.bin
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.close())
}

// skip records a measurement that failed.
func (b *bench) skip(what string, why error) {
	fmt.Fprintf(os.Stderr, "left out: %s: %v\n", what, why)
	b.part.Left = append(b.part.Left, report.Left{What: what, Why: why.Error(), Failed: true})
}

// write writes the report, and the page if it is asked for, or some sections of the page. Its error
// says what failed and what does not hold.
func (b *bench) write(out, page, scale string, whole bool) error {
	shorten(&b.part)
	if err := b.part.Write(out); err != nil {
		return err
	}
	fmt.Println(out + "/report.md")
	var errs []error
	switch {
	case page == "":
	case whole:
		errs = append(errs, report.WritePage(page, &b.part, scale))
	default:
		errs = append(errs, report.SplicePage(page, &b.part))
	}
	for _, what := range b.part.Failed() {
		errs = append(errs, fmt.Errorf("does not hold: %s", what))
	}
	for _, l := range b.part.Left {
		errs = append(errs, fmt.Errorf("%s failed: %s", l.What, l.Why))
	}
	return errors.Join(errs...)
}
