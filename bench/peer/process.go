package peer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/lab"
)

const (
	startPatience = 60 * time.Second // loading 100,000 groups takes a while
	stopPatience  = 10 * time.Second
)

// process is a forwarder that writes "ready" to its stdout and ends when its stdin is closed. So it
// also ends when this process ends, for whatever reason.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	ended  chan error
}

// launch starts a command in the box, bound to the switch's CPUs, writes input to its stdin, and
// waits until it is ready.
func launch(s Setting, cmd *exec.Cmd, input []byte) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan error, 1)}
	err := p.launch(s, input)
	if err != nil && p.cmd.Process != nil {
		err = errors.Join(err, p.stop())
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w: %s", cmd.Args[0], err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return p, nil
}

func (p *process) launch(s Setting, input []byte) (err error) {
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdout.Close()
	p.cmd.Stdout, p.cmd.Stderr = theirs, &p.stderr
	err = errors.Join(start(s, p.cmd), theirs.Close())
	if p.cmd.Process == nil {
		return err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	if _, err := p.stdin.Write(input); err != nil {
		return err
	}
	if err := stdout.SetReadDeadline(time.Now().Add(startPatience)); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		return fmt.Errorf("it did not become ready (%q): %w", line, err)
	}
	return nil
}

// start starts a command in the box's namespace. The child inherits the CPUs of the thread that
// starts it.
func start(s Setting, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s.Lab.Box.Do(func() error {
		var own unix.CPUSet
		if err := unix.SchedGetaffinity(0, &own); err != nil {
			return err
		}
		if err := lab.Pin(0, s.CPUs.Switch...); err != nil {
			return err
		}
		err := cmd.Start()
		return errors.Join(err, unix.SchedSetaffinity(0, &own))
	})
}

// stop asks the process to end, and waits.
func (p *process) stop() error {
	timer := time.AfterFunc(stopPatience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.stdin.Close() // fails if the process has ended, which Wait reports
	if err := <-p.ended; err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Args[0], err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}

func (p *process) forwarder(also ...func() error) *Forwarder {
	return &Forwarder{PIDs: []int{p.cmd.Process.Pid}, stop: func() error {
		errs := []error{p.stop()}
		for _, f := range also {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}}
}
