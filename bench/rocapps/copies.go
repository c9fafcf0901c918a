package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rocast/rocast/bench/report"
)

// Titles, ways and sizes of table (i).
const (
	titleCopies = "(i) Files to many hosts"

	wayRocast = "rocast-cp"
	wayRsync  = "rsync to each"
	wayChain  = "tar and nc, in a chain"
	wayUFTP   = "uftp"
	wayUDP    = "tar and udpcast"

	smallFile = 4 * kib
	// copyWithin bounds a copy. A way that does not end within is a row that says so.
	copyWithin = 3 * time.Minute
)

// copyLayout is how many receivers files are brought to, by links of a rate in bits per second for
// which their soft NICs have the CPU. losses are how many of the plan's losses are measured.
type copyLayout struct{ receivers, rate, rounds, losses int }

// fileSet is what is copied: files of random bytes.
type fileSet struct {
	name  string
	files int
	bytes int // of each
}

func (s fileSet) total() int { return s.files * s.bytes }

// write makes the files below a directory.
func (s fileSet) write(dir string) error {
	content := rand.NewChaCha8([32]byte{1})
	b := make([]byte, s.bytes)
	for i := range s.files {
		_, _ = content.Read(b) // it does not fail
		path := filepath.Join(dir, fmt.Sprint(i%10), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copied is what a copy took.
type copied struct {
	seconds    float64 // until the last receiver has everything
	sent       uint64  // bytes on the source's link
	hosts, box time.Duration
}

// copyCase is one setting, and what each way took.
type copyCase struct {
	copyLayout
	lost   int // packets of a million
	files  fileSet
	took   map[string][]copied
	failed map[string]string // why a way did not bring the files
}

func (c *copyCase) String() string {
	return fmt.Sprintf("%d receivers, %s lost, %s", c.receivers, lost(c.lost), c.files.name)
}

// copies is table (i).
func (b *bench) copies(ctx context.Context) error {
	var cases []*copyCase
	for _, layout := range b.plan.copyLayouts {
		err := b.inCopyLab(ctx, layout, func(l *copyLab) error {
			for _, perMillion := range b.plan.copyLosses[:layout.losses] {
				if err := l.lose(perMillion); err != nil {
					return err
				}
				for _, files := range b.plan.fileSets {
					c := &copyCase{layout, perMillion, files, map[string][]copied{}, map[string]string{}}
					if err := l.measure(ctx, c); err != nil {
						return err
					}
					cases = append(cases, c)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, c := range cases {
		if why := c.failed[wayRocast]; why != "" {
			b.skip(fmt.Sprintf("%s, %v", wayRocast, c), errors.New(why))
		}
	}
	b.part.Sections = append(b.part.Sections, copiesTable(cases))
	return nil
}

// measure lets the ways take turns. A way that fails does not begin again.
func (l *copyLab) measure(ctx context.Context, c *copyCase) error {
	ways := copyWays()
	for round := range c.rounds {
		for i := range ways {
			w := &ways[(i+round)%len(ways)]
			if c.failed[w.name] != "" {
				continue
			}
			fmt.Fprintf(os.Stderr, "%v, %s\n", c, w.name)
			r, err := l.copy(ctx, w, c.files)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				c.failed[w.name] = err.Error()
				delete(c.took, w.name)
			default:
				c.took[w.name] = append(c.took[w.name], r)
			}
		}
	}
	return nil
}

const textCopies = "Programs that people use, and `rocast-cp` with a soft NIC. Links lose IP packets of all protocols at random, in both directions. Receivers' programs\n" +
	"wait for the source's. *Seconds* are from the source's start until the last receiver's program has ended. With rocast-cp and rsync it has verified the\n" +
	"files then. After each copy all files are compared. Files are in memory. The ways take turns, and figures are medians. Rates of the links, for which\n" +
	"the CPUs suffice: %s receivers."

var notesCopies = []string{
	"The chain and udpcast verify nothing: tar ends with an error if the stream is short. A chain ends for all when one host does.",
	"What rocast-cp takes beyond the link's time is the join, and SHA-256 at both ends.",
	"A copy takes a second more where the first packet of a TCP connection is lost: the join of each host has several connections to the box.",
	"uftp and udpcast send at 95 % of the link's rate, which they are told. rsync and the chain have TCP, whose congestion control takes a loss for congestion.",
	"The CPU-seconds of rocast-cp are mostly those of soft NICs, which are programs. A real NIC does their work.",
	"MPI_Bcast copies no files: table (c) has its algorithms.",
}

func copiesTable(cases []*copyCase) report.Section {
	var rates []string
	for _, c := range cases {
		if rate := fmt.Sprintf("%d Mb/s to %d", c.rate/1_000_000, c.receivers); !slices.Contains(rates, rate) {
			rates = append(rates, rate)
		}
	}
	sec := report.Section{
		Title: titleCopies, Command: "make bench-apps ONLY=copies", Text: fmt.Sprintf(textCopies, strings.Join(rates, ", ")), Notes: slices.Clone(notesCopies),
		Columns: []string{"receivers", "lost", "files", "", "seconds", "times rocast-cp", "bytes on the source's link", "CPU-seconds of hosts", "of the box"},
	}
	for _, c := range cases {
		ours := c.seconds(wayRocast)
		for _, w := range copyWays() {
			row := []string{strconv.Itoa(c.receivers), lost(c.lost), c.files.name, w.name}
			if why := c.failed[w.name]; why != "" {
				sec.Rows = append(sec.Rows, append(row, "fails", "", "", "", ""))
				sec.Notes = append(sec.Notes, fmt.Sprintf("%v: %s fails: %s", c, w.name, why))
				continue
			}
			times := ""
			if ours > 0 {
				times = fmt.Sprintf("%.2f", c.seconds(w.name)/ours)
			}
			sec.Rows = append(sec.Rows, append(row, fmt.Sprintf("%.2f", c.seconds(w.name)), times,
				fmt.Sprintf("%.2f", c.median(w.name, func(r *copied) float64 { return float64(r.sent) / float64(c.files.total()) })),
				fmt.Sprintf("%.2f", c.median(w.name, func(r *copied) float64 { return r.hosts.Seconds() })),
				fmt.Sprintf("%.2f", c.median(w.name, func(r *copied) float64 { return r.box.Seconds() }))))
		}
	}
	for _, w := range copyWays() {
		if behind := behindInCopies(cases, w.name); behind != "" {
			sec.Behind = append(sec.Behind, behind)
		}
	}
	return sec
}

// behindInCopies says where a way took less time than rocast-cp, from three receivers on; "":
// nowhere.
func behindInCopies(cases []*copyCase, way string) string {
	var less []float64
	all := 0
	for _, c := range cases {
		ours, theirs := c.seconds(wayRocast), c.seconds(way)
		if c.receivers < receivers || ours == 0 || theirs == 0 {
			continue
		}
		if all++; theirs < ours {
			less = append(less, theirs/ours)
		}
	}
	if len(less) == 0 {
		return ""
	}
	share := fmt.Sprintf("%.2f", slices.Min(less))
	if most := fmt.Sprintf("%.2f", slices.Max(less)); most != share {
		share += " to " + most
	}
	return fmt.Sprintf("%s takes %s of the time of rocast-cp in %d of %d settings with three receivers or more.", way, share, len(less), all)
}

// seconds are the median of a way; 0: it has failed.
func (c *copyCase) seconds(way string) float64 {
	return c.median(way, func(r *copied) float64 { return r.seconds })
}

func (c *copyCase) median(way string, figure func(*copied) float64) float64 {
	var all []float64
	for i := range c.took[way] {
		all = append(all, figure(&c.took[way][i]))
	}
	return report.Median(all)
}
