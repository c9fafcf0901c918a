package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
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

// copySite is how many receivers files are brought to, by links of a rate in bits per second for
// which their soft NICs have the CPU. losses are how many of the plan's losses are measured.
type copySite struct{ receivers, rate, rounds, losses int }

// cargo is what is copied.
type cargo struct {
	name  string
	files int
	bytes int // of each
}

func (c cargo) total() int { return c.files * c.bytes }

// write makes the files below a directory.
func (c cargo) write(dir string) error {
	content := rand.NewChaCha8([32]byte{1})
	b := make([]byte, c.bytes)
	for i := range c.files {
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

// copyKey names the rows of a table.
type copyKey struct {
	copySite
	lost  int // packets of a million
	cargo string
}

// copies is table (i).
func (b *bench) copies(ctx context.Context) error {
	ways := copyWays()
	var keys []copyKey
	took, failed := map[copyKey]map[string][]copied{}, map[copyKey]map[string]string{}
	for _, at := range b.plan.copySites {
		err := b.inYard(ctx, at, func(y *yard) error {
			for _, perMillion := range b.plan.copyLosses[:at.losses] {
				for _, c := range b.plan.cargos {
					k := copyKey{at, perMillion, c.name}
					keys = append(keys, k)
					took[k], failed[k] = map[string][]copied{}, map[string]string{}
					if err := y.lose(perMillion); err != nil {
						return err
					}
					for round := range at.rounds {
						for i := range ways {
							w := &ways[(i+round)%len(ways)]
							if failed[k][w.name] != "" {
								continue
							}
							fmt.Fprintf(os.Stderr, "%d receivers, %s lost, %s, %s\n", at.receivers, lost(perMillion), c.name, w.name)
							r, err := y.copy(ctx, w, c)
							if ctx.Err() != nil {
								return ctx.Err()
							}
							if err != nil {
								failed[k][w.name] = err.Error()
								continue
							}
							took[k][w.name] = append(took[k][w.name], r)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	b.part.Sections = append(b.part.Sections, copiesTable(b.plan.cargos, keys, took, failed))
	return nil
}

const textCopies = "Programs that people use, and `rocast-cp` with a soft NIC. Links lose IP packets of all protocols at random, in both directions. *seconds* are until " +
	"the last receiver's program has ended, and with rocast-cp and rsync it has verified the files then. After each copy all files are compared. Files are " +
	"in memory. The ways take turns, and figures are medians. Rates of the links, for which the CPUs suffice: %s."

var notesCopies = []string{
	"uftp and udpcast send at 95 % of the link's rate, which they are told. rsync and the chain have TCP, whose congestion control takes a loss for congestion.",
	"The chain and udpcast verify nothing: tar ends with an error if the stream is short.",
	"MPI_Bcast copies no files: table (c) has its algorithms.",
}

func copiesTable(cargos []cargo, keys []copyKey, took map[copyKey]map[string][]copied, failed map[copyKey]map[string]string) report.Section {
	rates, seen := "", map[int]bool{}
	for _, k := range keys {
		if !seen[k.receivers] {
			seen[k.receivers] = true
			if rates != "" {
				rates += ", "
			}
			rates += fmt.Sprintf("%d Mb/s with %d receivers", k.rate/1_000_000, k.receivers)
		}
	}
	sec := report.Section{
		Title: titleCopies, Command: "make bench-apps ONLY=copies", Text: fmt.Sprintf(textCopies, rates), Notes: notesCopies,
		Columns: []string{"receivers", "lost", "files", "", "seconds", "times rocast-cp", "bytes on the source's link", "CPU-seconds of hosts", "of the box"},
	}
	for _, k := range keys {
		bytes := 0
		for _, c := range cargos {
			if c.name == k.cargo {
				bytes = c.total()
			}
		}
		median := func(way string, figure func(*copied) float64) float64 {
			var all []float64
			for i := range took[k][way] {
				all = append(all, figure(&took[k][way][i]))
			}
			return report.Median(all)
		}
		seconds := func(c *copied) float64 { return c.seconds }
		sent := func(c *copied) float64 { return float64(c.sent) / float64(bytes) }
		ours := median(wayRocast, seconds)
		for _, w := range copyWays() {
			row := []string{strconv.Itoa(k.receivers), lost(k.lost), k.cargo, w.name}
			if why := failed[k][w.name]; why != "" {
				sec.Rows = append(sec.Rows, append(row, "fails", "", "", "", ""))
				sec.Behind = append(sec.Behind, fmt.Sprintf("%s, %d receivers, %s lost, %s: %s", w.name, k.receivers, lost(k.lost), k.cargo, why))
				continue
			}
			s, onLink := median(w.name, seconds), median(w.name, sent)
			sec.Rows = append(sec.Rows, append(row, fmt.Sprintf("%.2f", s), fmt.Sprintf("%.2f", s/ours), fmt.Sprintf("%.2f", onLink),
				fmt.Sprintf("%.2f", median(w.name, func(c *copied) float64 { return c.hosts.Seconds() })),
				fmt.Sprintf("%.2f", median(w.name, func(c *copied) float64 { return c.box.Seconds() }))))
			if w.name != wayRocast && s < ours && k.receivers >= receivers {
				sec.Behind = append(sec.Behind, fmt.Sprintf("%d receivers, %s lost, %s: %s takes %.2f of the time of rocast-cp.", k.receivers, lost(k.lost), k.cargo, w.name, s/ours))
			}
		}
	}
	return sec
}

// treeSum is the SHA-256 of the names and contents of all files below a directory.
func treeSum(root string) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		name, errName := filepath.Rel(root, path)
		fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(b))
		return errors.Join(err, errName)
	})
	return [sha256.Size]byte(h.Sum(nil)), err
}
