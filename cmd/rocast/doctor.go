package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/doctor"
	"github.com/rocast/rocast/ctl/version"
)

// doctorSeconds is the time between the two readings if nobody says another one.
const doctorSeconds = 2

func (a *app) doctor() *cobra.Command {
	var file string
	seconds := doctorSeconds
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the box and its NICs, and write a report that can be sent",
		Long: `Check the box and its NICs, and write a report that can be sent. Each check has a verdict: ok; look: something is not as it should
be, and the report says what to do; cannot-tell: the check cannot be made here, or not yet. What grows is read twice, --seconds apart, so
run it while the groups carry data. It reads what rocastd says, and on the box itself what ethtool says of each port.

The report has no R_Keys and VAs; it has the addresses of your hosts. What no check can see is listed at its end, with the command
that shows it on real hardware. rocast bundle has the report, too.

Exit status: 0 nothing needs a look; 4 something does, which may be that no daemon answers.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 0 {
				return usage(cmd, "--seconds is %d; write a number of seconds, or 0 for one reading", seconds)
			}
			return writeReport(a, file, func() doctor.Report { return examine(cmd.Context(), a, time.Duration(seconds)*time.Second) })
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write the report to `FILE`, which must not exist, and not to standard output")
	cmd.Flags().IntVar(&seconds, "seconds", doctorSeconds, "seconds between the two readings of what grows; 0: read it once")
	return cmd
}

// writeReport makes a report and writes it to a file, or to standard output if file is empty. A
// file that cannot be made is an error before anything is read.
func writeReport(a *app, file string, examine func() doctor.Report) error {
	var report doctor.Report
	if file == "" {
		report = examine()
		if err := a.print(report, func(w io.Writer) { printReport(w, &report) }); err != nil {
			return err
		}
	} else {
		out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return api.Errorf(api.Usage, "%v; write another FILE with -o", err)
		}
		defer out.Close()
		report = examine()
		to := *a.env
		to.stdout = out
		inFile := &app{env: &to, json: a.json, screen: out}
		if err := inFile.print(report, func(w io.Writer) { printReport(w, &report) }); err != nil {
			_ = os.Remove(file) // the first error counts
			return api.Errorf(api.Internal, "write %s: %v", file, err)
		}
		done := doctorDone{File: file, Counts: report.Counts}
		if err := a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "%s has the report: %s; it has the addresses of your hosts\n", file, counted(report.Counts))
		}); err != nil {
			return err
		}
	}
	if report.Counts[doctor.Look] > 0 {
		return errUnhealthy
	}
	return nil
}

// doctorDone is the outcome of rocast doctor -o for programs.
type doctorDone struct {
	File   string                 `json:"file"`
	Counts map[doctor.Verdict]int `json:"counts"`
}

// counted writes the number of findings with each verdict.
func counted(counts map[doctor.Verdict]int) string {
	return fmt.Sprintf("%d ok, %d look, %d cannot-tell", counts[doctor.OK], counts[doctor.Look], counts[doctor.Unclear])
}

func printReport(w io.Writer, r *doctor.Report) {
	apart := "read once"
	if r.Seconds > 0 {
		apart = fmt.Sprintf("read twice, %.1f s apart", r.Seconds)
	}
	fmt.Fprintf(w, "rocast doctor, %s, %s: %s\n\n", r.At.UTC().Format("2006-01-02 15:04:05 UTC"), apart, counted(r.Counts))
	row(w, "VERDICT", "CHECK", "OF", "SEEN")
	for i := 0; i < len(r.Findings); {
		f, same := &r.Findings[i], alike(r.Findings[i:])
		row(w, f.Verdict, f.Check, names(r.Findings[i:i+same]), f.Seen)
		i += same
		if f.Verdict != doctor.OK {
			fmt.Fprintf(w, "\t\t\tshould be: %s\n", f.Want)
			fmt.Fprintf(w, "\t\t\tdo: %s\n", f.Remedy)
			fmt.Fprintf(w, "\t\t\tby hand: %s\n", f.Command)
		}
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "No check can see these; docs/install.md#what-only-real-hardware-can-show says what each shows:")
	row(w, "NAME", "COMMAND")
	for _, h := range r.ByHand {
		row(w, h.Name, h.Command)
	}
}

// alike counts the first findings that differ at most in their port, and that need no look.
func alike(findings []doctor.Finding) int {
	n := 1
	for f := &findings[0]; n < len(findings) && f.Verdict != doctor.Look; n++ {
		if g := &findings[n]; f.Check != g.Check || f.Verdict != g.Verdict || f.Seen != g.Seen {
			break
		}
	}
	return n
}

// names says what findings are about.
func names(findings []doctor.Finding) string {
	if more := len(findings) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", findings[0].Of, more)
	}
	return findings[0].Of
}

// examine reads the box, twice unless apart is 0, and makes all checks.
func examine(ctx context.Context, a *app, apart time.Duration) doctor.Report {
	d := diagnosis{a: a, secrets: secrets{}, Readings: doctor.Readings{
		At: time.Now(), Client: version.Build(), Kernel: kernelRelease(), Remote: a.remote.url != "", NICs: map[string]doctor.NIC{},
	}}
	d.read(ctx, a.client(), apart)
	report := doctor.Examine(&d.Readings)
	for i := range report.Findings {
		f := &report.Findings[i]
		f.Seen, f.Remedy = d.secrets.hide(f.Seen), d.secrets.hide(f.Remedy)
	}
	return report
}

// diagnosis collects readings.
type diagnosis struct {
	a       *app
	secrets secrets
	doctor.Readings
}

// read collects all readings. Without a daemon there is nothing to read.
func (d *diagnosis) read(ctx context.Context, c *client.Client, apart time.Duration) {
	var err error
	if d.Version, err = c.Version(ctx); err != nil {
		d.NoBox = err.Error()
		return
	}
	d.Status, err = c.Status(ctx)
	d.note("status", err)
	features, err := c.Features(ctx)
	d.Features = features.Features
	d.note("features", err)
	groups, err := c.Groups(ctx)
	d.note("groups", err)
	for _, g := range groups.Groups[:min(len(groups.Groups), bundleGroups)] {
		whole, err := c.Group(ctx, g.Name)
		if client.KindOf(err) == api.NotFound {
			continue // it has ended
		}
		if d.note("group "+g.Name, err); err != nil {
			continue
		}
		d.secrets.of(&whole)
		d.Groups = append(d.Groups, whole)
	}
	d.Now = d.sample(ctx, c)
	for _, p := range d.Now.Ports {
		if !d.Remote {
			d.readNIC(ctx, p.Name)
		}
	}
	if apart == 0 {
		return
	}
	first := d.Now
	d.First = &first
	if d.a.every > 0 { // a test waits less
		apart = d.a.every
	}
	select {
	case <-ctx.Done():
	case <-time.After(apart):
	}
	d.Now = d.sample(ctx, c)
}

func (d *diagnosis) note(what string, err error) {
	if err == nil {
		return
	}
	if client.KindOf(err) == api.Unreachable { // it has ended meanwhile
		d.NoBox = err.Error()
	}
	if m := fmt.Sprintf("%s: %v", what, err); !slices.Contains(d.Missing, m) {
		d.Missing = append(d.Missing, m)
	}
}

// sample reads what grows.
func (d *diagnosis) sample(ctx context.Context, c *client.Client) doctor.Sample {
	s := doctor.Sample{At: time.Now(), NICs: map[string]api.Counters{}}
	ports, err := c.Ports(ctx)
	d.note("ports", err)
	stats, err := c.Stats(ctx)
	d.note("stats", err)
	s.Traffic, err = c.Traffic(ctx, "")
	d.note("traffic", err)
	s.Ports, s.Stats, s.Drops = ports.Ports, stats.Counters, onlyDrops(explain(api.Stats{Counters: maps.Clone(stats.Counters)}, api.Ports{})).Counters
	for _, p := range s.Ports {
		if !d.Remote {
			text := d.ethtool(ctx, "-S", p.Name)
			s.NICs[p.Name] = doctor.ParseStatistics(text)
		}
	}
	return s
}

// readNIC asks ethtool about a port.
func (d *diagnosis) readNIC(ctx context.Context, port string) {
	driver, channels, features := d.ethtool(ctx, "-i", port), d.ethtool(ctx, "-l", port), d.ethtool(ctx, "-k", port)
	n := d.NICs[port]
	n.Driver, n.Channels, n.Features = doctor.ParsePairs(driver), doctor.ParseChannels(channels), doctor.ParseSwitches(features)
	d.NICs[port] = n
}

// ethtool returns what ethtool says of a port. If it says nothing, its reason is noted.
func (d *diagnosis) ethtool(ctx context.Context, flag, port string) string {
	n := d.NICs[port]
	if n.Missing == nil {
		n.Missing = map[string]string{}
		d.NICs[port] = n
	}
	text, err := runProgram(ctx, "ethtool "+flag+" "+port)
	if err != nil {
		n.Missing[flag] = strings.Join(strings.Fields(fmt.Sprintf("ethtool %s %s: %v %s", flag, port, err, text)), " ")
		return ""
	}
	return text
}
