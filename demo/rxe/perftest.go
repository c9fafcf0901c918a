package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/rocast/rocast/internal/testlab"
)

// onHost runs the command of its arguments with the RDMA device $0 only.
const onHost = "set -e\n" + testlab.OnlyDevice + `only_device "$0"
exec "$@"`

// lowest is the priority of perftest's programs. They poll, and would take the CPU from the
// kernel's workers, which are the NICs here.
const lowest = 19

// program is ib_write_bw on one host.
type program struct {
	host  int
	cmd   *exec.Cmd
	out   testlab.Output
	ended chan struct{}
	err   error // known when ended is closed
}

// start starts ib_write_bw -R on a host. Without -F the source fails if it cannot measure the clock
// of its CPU, which happens where the CPU is emulated and busy; with -F its rates are 0.00 then.
func (l *lab) start(ctx context.Context, host int, args ...string) (*program, error) {
	p := &program{host: host, ended: make(chan struct{})}
	line := append([]string{"netns", "exec", l.Hosts[host].NS.Name(), "sh", "-c", onHost, l.devices[host], "ib_write_bw", "-R", "-F"}, args...)
	p.cmd = exec.CommandContext(ctx, "ip", line...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	l.programs = append(l.programs, p)
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, syscall.Setpriority(syscall.PRIO_PROCESS, p.cmd.Process.Pid, lowest)
}

// wait waits until the program has ended well.
func (p *program) wait() error {
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("ib_write_bw on host %d: %w\n%s", p.host+1, p.err, &p.out)
	}
	return nil
}

// listens reports whether the program waits for a connection.
func (p *program) listens(ctx context.Context) (bool, error) {
	select {
	case <-p.ended:
		return false, errors.Join(fmt.Errorf("ib_write_bw on host %d ended before it listened", p.host+1), p.wait())
	default:
	}
	out, err := exec.CommandContext(ctx, "rdma", "resource", "show", "cm_id").Output()
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "LISTEN") && strings.Contains(line, fmt.Sprintf(" pid %d ", p.cmd.Process.Pid)) {
			return true, nil
		}
	}
	return false, nil
}

// runs are the programs of one run: that of the source first.
type runs []*program

// write starts a run of so many WRITEs.
func (l *lab) write(ctx context.Context, writes int) (all runs, err error) {
	n := strconv.Itoa(writes)
	for host := 1; host <= receivers; host++ {
		p, err := l.start(ctx, host, "-n", n)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		if err := until(ctx, "ib_write_bw to listen", func() (bool, error) { return p.listens(ctx) }); err != nil {
			return nil, err
		}
	}
	source, err := l.start(ctx, 0, "-n", n, l.GroupIP().String())
	return append(runs{source}, all...), err
}

// wait waits until all programs have ended well, or one of them has not: the others may then wait
// for ever.
func (r runs) wait() error {
	ended := make(chan error, len(r))
	for _, p := range r {
		go func() { ended <- p.wait() }()
	}
	for range r {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// result is the table that the program has printed.
func (p *program) result() (string, error) {
	_, table, found := strings.Cut(p.out.String(), "#bytes")
	if !found {
		return "", fmt.Errorf("ib_write_bw on host %d printed no result:\n%s", p.host+1, &p.out)
	}
	lines := strings.SplitN("#bytes"+table, "\n", 3)
	if len(lines) < 3 || len(strings.Fields(lines[1])) < 5 {
		return "", fmt.Errorf("the result of ib_write_bw on host %d is %q", p.host+1, lines)
	}
	result := strings.TrimSpace(lines[0]) + "\n" + strings.TrimSpace(lines[1])
	if strings.Fields(lines[1])[3] == "0.00" {
		result += "\n(0.00: ib_write_bw could not measure the clock of this CPU, which is emulated or busy)"
	}
	return result, nil
}

// counters are those of a host's RDMA device, as rdma statistic names them.
func (l *lab) counters(ctx context.Context, host int) (map[string]uint64, error) {
	out, err := exec.CommandContext(ctx, "rdma", "statistic", "show", "link", l.devices[host]+"/1").Output()
	if err != nil {
		return nil, err
	}
	return parseCounters(string(out)), nil
}

// parseCounters reads pairs of a name and a number. Other words are left out.
func parseCounters(text string) map[string]uint64 {
	counters := map[string]uint64{}
	words := strings.Fields(text)
	for i := 1; i < len(words); i++ {
		if n, err := strconv.ParseUint(words[i], 10, 64); err == nil {
			counters[words[i-1]] = n
		}
	}
	return counters
}
