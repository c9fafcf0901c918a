package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// ErrLost is the error of every process whose guest was powered off.
var ErrLost = errors.New("the guest's control stream has ended")

// writeTimeout bounds how long a command waits for a guest that does not read, for instance a
// paused guest.
const writeTimeout = 10 * time.Second

// Client is the lab's end of the stream to one guest. Its methods may be called from any goroutine.
type Client struct {
	conn  net.Conn
	hello chan Hello
	done  chan struct{} // closed when the stream has ended

	booted bool // an agent has said hello; only receive uses it

	writing sync.Mutex

	mu        sync.Mutex
	lastID    uint32
	processes map[uint32]*Process
}

// NewClient starts reading the stream. The client owns conn.
func NewClient(conn net.Conn) *Client {
	c := &Client{
		conn: conn, hello: make(chan Hello, 1), done: make(chan struct{}), processes: map[uint32]*Process{},
	}
	go c.receive()
	return c
}

// Hello waits for the agent. It may be called once for each boot of the guest.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	select {
	case hello := <-c.hello:
		if hello.Error != "" {
			return hello, errors.New(hello.Error)
		}
		return hello, nil
	case <-c.done:
		return Hello{}, ErrLost
	case <-ctx.Done():
		return Hello{}, fmt.Errorf("wait for the agent: %w", context.Cause(ctx))
	}
}

// Start runs a command in the guest. It does not wait until the guest has started the command. A
// command that cannot be started exits with Exit.Error set.
func (c *Client) Start(command Command) (*Process, error) {
	p := &Process{client: c, Stdout: newOutput(), Stderr: newOutput(), exited: make(chan struct{})}
	c.mu.Lock()
	c.lastID++
	p.id = c.lastID
	c.processes[p.id] = p
	c.mu.Unlock()
	if err := c.send(frame{KindStart, p.id, mustJSON(command)}); err != nil {
		c.forget(p.id)
		return nil, err
	}
	return p, nil
}

// Close ends the stream.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

func (c *Client) receive() {
	defer c.end()
	for {
		f, err := readFrame(c.conn)
		if err != nil {
			return
		}
		c.handle(f)
	}
}

func (c *Client) handle(f frame) {
	if f.kind == KindHello {
		var hello Hello
		if err := json.Unmarshal(f.payload, &hello); err != nil {
			hello.Error = "unreadable hello: " + err.Error()
		}
		if c.booted {
			c.lose() // what ran before the guest rebooted
		}
		c.booted = true
		c.hello <- hello
		return
	}
	c.mu.Lock()
	p := c.processes[f.process]
	c.mu.Unlock()
	if p == nil {
		return
	}
	switch f.kind {
	case KindStdout:
		p.Stdout.append(f.payload)
	case KindStderr:
		p.Stderr.append(f.payload)
	case KindExit:
		c.forget(f.process)
		p.exit(f.payload)
	}
}

func (c *Client) forget(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.processes, id)
}

func (c *Client) end() {
	c.conn.Close()
	close(c.done)
	c.lose()
}

// lose ends the processes whose exit will never be known.
func (c *Client) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.processes {
		delete(c.processes, id)
		p.finish(Exit{}, ErrLost)
	}
}

func (c *Client) send(f frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	select {
	case <-c.done:
		return ErrLost
	default:
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return errors.Join(ErrLost, err)
	}
	if _, err := c.conn.Write(appendFrame(nil, f)); err != nil {
		// A part of the frame may be sent, so no frame can follow.
		c.conn.Close()
		return errors.Join(ErrLost, err)
	}
	return nil
}

// Process is a process in the guest.
type Process struct {
	Stdout, Stderr *Output

	client *Client
	id     uint32
	exited chan struct{}
	status Exit
	err    error
}

// Write sends bytes to the stdin of the process.
func (p *Process) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), chunkBytes)
		if err := p.client.send(frame{KindStdin, p.id, rest[:n]}); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// CloseStdin makes the process read end of file. It may be called once.
func (p *Process) CloseStdin() error { return p.client.send(frame{KindStdinEOF, p.id, nil}) }

// Signal sends a signal to the process and its children.
func (p *Process) Signal(signal syscall.Signal) error {
	return p.client.send(frame{KindSignal, p.id, []byte{byte(signal)}})
}

// Done is closed when the process has exited and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.exited }

// Wait waits until the process has exited and its output is complete. If ctx ends first, the
// process is killed.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.exited:
		return p.status, p.err
	case <-ctx.Done():
		return Exit{}, errors.Join(context.Cause(ctx), p.Signal(syscall.SIGKILL))
	}
}

func (p *Process) exit(payload []byte) {
	var status Exit
	err := json.Unmarshal(payload, &status)
	p.finish(status, err)
}

func (p *Process) finish(status Exit, err error) {
	p.status, p.err = status, err
	p.Stdout.close()
	p.Stderr.close()
	close(p.exited)
}
