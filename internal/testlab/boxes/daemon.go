package boxes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// Daemon is a rocastd in a box. It may be started again after it was killed.
type Daemon struct {
	Program, Config, Socket string // paths

	process *os.Process
	ended   chan struct{} // closed when the process has ended
	log     testlab.Output
	dir     string // that Remove removes
}

// NewDaemon writes a config of these lines into a new directory, where the daemon has its socket
// and its state too. Remove removes it.
func NewDaemon(program, lines string) (*Daemon, error) {
	dir, err := os.MkdirTemp("", "rcd") // short: the path of a socket has its limit
	if err != nil {
		return nil, err
	}
	netns.RemoveAtSignal(dir)
	d := &Daemon{Program: program, Config: filepath.Join(dir, "rocastd.yaml"), Socket: filepath.Join(dir, "s"), dir: dir}
	if err := d.Configure(lines); err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

// Configure writes another config, for the next start.
func (d *Daemon) Configure(lines string) error {
	text := fmt.Sprintf("socket: %s\nstateDir: %s\n%s", d.Socket, d.StateDir(), lines)
	return os.WriteFile(d.Config, []byte(text), 0o600)
}

// StateDir is where a daemon of NewDaemon keeps its state.
func (d *Daemon) StateDir() string { return filepath.Join(d.dir, "state") }

// Remove ends a daemon of NewDaemon and removes its files.
func (d *Daemon) Remove() error {
	_ = d.Kill() // it may have ended
	return os.RemoveAll(d.dir)
}

// Client talks to the daemon.
func (d *Daemon) Client() *client.Client { return client.New(d.Socket) }

// Start starts the daemon in a box and waits until it answers.
func (d *Daemon) Start(ctx context.Context, in *netns.NS) error {
	command := exec.Command(d.Program, "--config", d.Config)
	command.Stdout, command.Stderr = &d.log, &d.log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_ = os.Remove(d.Socket)
	if err := in.Do(command.Start); err != nil {
		return err
	}
	ended := make(chan struct{})
	d.process, d.ended = command.Process, ended
	go func() { defer close(ended); _ = command.Wait() }()
	for {
		if _, err := d.Client().Version(ctx); err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("rocastd ended:\n%s", d.Log())
		case <-ctx.Done():
			return fmt.Errorf("rocastd does not answer:\n%s", d.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends the daemon without a warning, if it runs.
func (d *Daemon) Kill() error {
	if d.process == nil {
		return nil
	}
	err := d.process.Kill()
	<-d.ended
	d.process = nil
	return err
}

// Stop asks the daemon, which runs, to end, and waits until it has.
func (d *Daemon) Stop() error {
	if err := d.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-d.ended
	d.process = nil
	return nil
}

// CPUTime returns what the daemon, which runs, has used since it was started.
func (d *Daemon) CPUTime() (time.Duration, error) { return testlab.CPUTime(d.process.Pid) }

// Log is what the daemon has logged, over all starts.
func (d *Daemon) Log() string { return d.log.String() }
