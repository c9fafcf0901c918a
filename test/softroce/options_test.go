//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/test/softroce/control"
)

const (
	optionLimit  = 60 * time.Second // of one run
	optionsLimit = 2 * time.Hour    // of all

	// endLimit is how long the programs of a run may take to end when one of them has.
	endLimit = 20 * time.Second
)

// TestPerftestOptions runs perftest with each option to three receivers, and compares what happens
// with the table of docs/operate.md. A run works, is refused by a sentence, or perftest itself ends
// it, or it hangs. A program that does not end is named.
func TestPerftestOptions(t *testing.T) {
	s := openStage(t, kernels()[0], buildRocast(t, testContext(t, 5*time.Minute)))
	ctx := testContext(t, optionsLimit)
	version, err := s.Guests[0].Run(ctx, "dash", "-c", "ib_write_bw --version 2>&1 | head -1")
	must(t, err)
	head := optionsHead(strings.TrimPrefix(strings.TrimSpace(version), "Version: "), s.Guests[0].Kernel)
	cells := map[string][2]string{}
	for way, byCM := range []bool{false, true} {
		t.Run(map[bool]string{false: "TCP", true: "RDMA-CM"}[byCM], func(t *testing.T) {
			if byCM {
				s.cmUp(t, ctx, groupIP, ipv4, perftestPort, "perftest")
			} else {
				s.helperUp(t, ctx)
			}
			for _, run := range optionRuns {
				began := time.Now()
				row := cells[run]
				row[way] = s.try(t, ctx, strings.Fields(run), byCM)
				cells[run] = row
				t.Logf("%5.1f s  %s: %s", time.Since(began).Seconds(), run, row[way])
			}
		})
	}
	var rows strings.Builder
	for _, run := range optionRuns {
		rows.WriteString(optionRow(run, cells[run][0], cells[run][1]))
	}
	t.Log("\n" + head + rows.String())
	if *update {
		must(t, writePage(optionsBegin, optionsEnd, head+rows.String()))
	}
	page, err := os.ReadFile(sessionPage)
	must(t, err)
	_, table, err := cutPage(string(page), optionsBegin, optionsEnd)
	must(t, err)
	if !strings.HasSuffix(table, rows.String()) {
		t.Errorf("%s has another table; make perftest-options UPDATE=1 writes this one", sessionPage)
	}
}

// try runs one command line, and returns what becomes of it, as the table has it.
func (s *stage) try(t *testing.T, ctx context.Context, run []string, byCM bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, optionLimit)
	defer cancel()
	args := run[1:]
	if byCM {
		args = append([]string{"-R"}, args...)
	}
	switch {
	case slices.Contains(args, "-a"): // every size up to 8 MiB
		args = append(args, "-n", "5")
	case slices.Contains(args, "-D"):
		args = append(args, "-s", "4096")
	default:
		args = append(args, "-s", "4096", "-n", "100")
	}
	began := time.Now()
	var programs []*control.Process // that of the source last
	defer func() {
		for _, p := range programs {
			_ = p.Signal(syscall.SIGKILL) // fails if it has ended
			<-p.Done()
		}
	}()
	start := func(guest *Guest, more ...string) *control.Process {
		all, err := guest.perftestArgs(ctx, run[0], append(args, more...))
		must(t, err)
		p, err := guest.Start(all...)
		must(t, err)
		programs = append(programs, p)
		return p
	}
	for _, guest := range s.Guests[1:] {
		// With -z the programs connect by RDMA-CM too, and then talk by queue pairs of their own.
		if p := start(guest); !guest.listens(ctx, p, byCM || slices.Contains(args, "-z")) {
			return "perftest: " + lastLine(p)
		}
	}
	source := start(s.Guests[0], groupIP.String())
	select {
	case <-source.Done():
	case <-ctx.Done():
	}
	ends, stop := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer stop()
	well, late := true, ""
	for i, p := range programs {
		select {
		case <-p.Done():
			exit, err := p.Wait(ends)
			well = well && err == nil && exit.OK()
		case <-ends.Done():
			well = false
			if late = "; stop the receivers' programs"; i == len(programs)-1 {
				late = "; stop the source's program"
			}
		}
	}
	if well {
		return "works"
	}
	if reason := s.refusedSince(t, context.WithoutCancel(ctx), began, byCM); reason != "" {
		return "refused: " + reason + late
	}
	if late != "" {
		return "hangs" + late
	}
	return "perftest: " + lastLine(source)
}

// listens returns when a server waits for its client, or false if it has ended.
func (g *Guest) listens(ctx context.Context, p *control.Process, byCM bool) bool {
	for {
		if _, err := g.Run(ctx, "dash", "-c", listens(byCM)); err == nil {
			return true
		}
		select {
		case <-p.Done():
			return false
		case <-ctx.Done():
			return false
		default:
		}
	}
}

var (
	anyReceiver  = regexp.MustCompile(`10\.77\.0\.[234]\b`)
	anyQueuePair = regexp.MustCompile(`queue pair 0x[0-9a-f]+`)
)

// refusedSince is why the box has refused or ended a run that began after a time; "": it has not.
// Which receiver and which queue pair the sentence names differs from run to run.
func (s *stage) refusedSince(t *testing.T, ctx context.Context, began time.Time, byCM bool) (reason string) {
	t.Helper()
	if byCM {
		for _, c := range s.cms(t, ctx).Connections {
			if c.Began.After(began) && !strings.HasSuffix(c.Reason, "disconnected") {
				reason = c.Reason
			}
		}
	} else {
		out, err := s.ask(ctx, "perftest", "ls")
		must(t, err)
		var list api.Perftests
		must(t, json.Unmarshal(out, &list))
		for _, r := range list.Perftests[0].Runs {
			if r.Began.After(began) && r.State == "refused" {
				reason = r.Reason
			}
		}
	}
	reason = anyQueuePair.ReplaceAllString(anyReceiver.ReplaceAllString(reason, "10.77.0.2"), "queue pair N")
	return strings.ReplaceAll(reason, "|", `\|`)
}

// lastLine is the last line that a program has printed.
func lastLine(p *control.Process) string {
	text := strings.TrimSpace(p.Stdout.String() + "\n" + p.Stderr.String())
	line := text[strings.LastIndexByte(text, '\n')+1:]
	return strings.ReplaceAll(strings.TrimSpace(line), "|", `\|`)
}
