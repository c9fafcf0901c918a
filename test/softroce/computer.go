package softroce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/rocast/rocast/test/softroce/control"
)

// ErrOff says that a guest is powered off.
var ErrOff = errors.New("powered off")

// computer is a guest as far as it does not matter what it is used for.
type computer struct {
	name  string
	mu    sync.Mutex
	on    *machine
	clock reading // see lastReading
}

// powerOn keeps the machine that start starts, which says hello when it can be used.
func (c *computer) powerOn(start func() (*machine, error)) (*machine, error) {
	if c.machine() != nil {
		return nil, errors.New("it is on")
	}
	m, err := start()
	if err == nil {
		c.setMachine(m)
	}
	return m, err
}

// PowerOff cuts the power: peers get no goodbye, and every process of the guest is lost. The guest
// may already be off.
func (c *computer) PowerOff() {
	c.mu.Lock()
	m := c.on
	c.on, c.clock = nil, reading{}
	c.mu.Unlock()
	if m != nil {
		m.powerOff()
	}
}

// Pause stops the guest between two instructions. Its NIC accepts no more frames, and the guest
// does not notice.
func (c *computer) Pause() error { return c.signal(syscall.SIGSTOP) }

// Resume continues a paused guest.
func (c *computer) Resume() error {
	c.lastReading(reading{})
	return c.signal(syscall.SIGCONT)
}

func (c *computer) signal(s syscall.Signal) error {
	m := c.machine()
	switch {
	case m == nil:
		return c.off()
	case m.remove != nil:
		return fmt.Errorf("%s is a namespace and cannot be paused", c.name)
	}
	return m.cmd.Process.Signal(s)
}

// Start starts a command.
func (c *computer) Start(args ...string) (*control.Process, error) {
	m := c.machine()
	if m == nil {
		return nil, c.off()
	}
	return m.control.Start(control.Command{Args: args})
}

// Run runs a command to its end and returns its stdout. If the exit status is not zero, the error
// has the stderr of the command.
func (c *computer) Run(ctx context.Context, args ...string) (string, error) {
	p, err := c.Start(args...)
	if err != nil {
		return "", err
	}
	exit, err := p.Wait(ctx)
	if err == nil && !exit.OK() {
		err = errors.New(exit.String())
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w\n%s", c.name, args[0], err, p.Stderr)
	}
	return p.Stdout.String(), err
}

// died is an error if the machine has ended although nobody cut the power. Mostly the kernel of the
// guest has panicked, and then the console says why.
func (c *computer) died() error {
	m := c.machine()
	if m == nil {
		return nil
	}
	select {
	case <-m.exited:
		return fmt.Errorf("%s has died (%v); its console:\n%s", c.name, m.cmd.ProcessState, c.Console())
	default:
		return nil
	}
}

// Console is the end of what the kernel of the guest printed, for the report of a failed story.
func (c *computer) Console() string {
	if m := c.machine(); m != nil {
		return m.console.String()
	}
	return ""
}

func (c *computer) machine() *machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.on
}

func (c *computer) setMachine(m *machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = m
}

func (c *computer) off() error { return fmt.Errorf("%s: %w", c.name, ErrOff) }

// Put writes a file into the guest.
func (c *computer) Put(ctx context.Context, name string, content []byte) error {
	p, err := c.Start("dash", "-c", `umask 022; cat >"$0" && chmod +x "$0"`, name)
	if err != nil {
		return err
	}
	if _, err := p.Write(content); err != nil {
		return err
	}
	if err := p.CloseStdin(); err != nil {
		return err
	}
	exit, err := p.Wait(ctx)
	if err == nil && !exit.OK() {
		err = errors.New(exit.String())
	}
	if err != nil {
		return fmt.Errorf("%s: write %s: %w\n%s", c.name, name, err, p.Stderr)
	}
	return nil
}
