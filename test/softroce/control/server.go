package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Serve says hello and runs the commands of the other side until the stream ends.
func Serve(stream io.ReadWriter, hello Hello) error {
	s := &server{stream: stream, running: map[uint32]*running{}}
	if err := s.send(frame{kind: KindHello, payload: mustJSON(hello)}); err != nil {
		return err
	}
	for {
		f, err := readFrame(stream)
		if err != nil {
			return err
		}
		s.handle(f)
	}
}

type server struct {
	writing sync.Mutex
	stream  io.Writer

	mu      sync.Mutex
	running map[uint32]*running
}

// running is a started process and the input that waits for it. A process that reads slowly blocks
// no other process.
type running struct {
	cmd   *exec.Cmd
	input chan []byte   // nil: end of file
	gone  chan struct{} // closed when the process has exited
}

// maxQueuedInput bounds the frames that wait for the stdin of one process. If more arrive, the
// whole stream waits.
const maxQueuedInput = 256

func (s *server) handle(f frame) {
	if f.kind == KindStart {
		s.start(f)
		return
	}
	s.mu.Lock()
	p := s.running[f.process]
	s.mu.Unlock()
	if p == nil {
		return // it exited before this frame arrived
	}
	switch f.kind {
	case KindStdin:
		p.queue(f.payload)
	case KindStdinEOF:
		p.queue(nil)
	case KindSignal:
		// The process group has the children of a shell too.
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.Signal(f.payload[0]))
	}
}

func (s *server) start(f frame) {
	p, stdin, err := s.launch(f)
	if err != nil {
		s.exit(f.process, Exit{Code: -1, Error: err.Error()})
		return
	}
	s.mu.Lock()
	s.running[f.process] = p
	s.mu.Unlock()
	go p.write(stdin)
	go func() {
		err := p.cmd.Wait()
		close(p.gone)
		s.mu.Lock()
		delete(s.running, f.process)
		s.mu.Unlock()
		s.exit(f.process, exitOf(p.cmd, err))
	}()
}

func (s *server) launch(f frame) (*running, io.WriteCloser, error) {
	var command Command
	if err := json.Unmarshal(f.payload, &command); err != nil {
		return nil, nil, err
	}
	if len(command.Args) == 0 {
		return nil, nil, errors.New("no command given")
	}
	cmd := exec.Command(command.Args[0], command.Args[1:]...)
	cmd.Env = append(os.Environ(), command.Env...)
	cmd.Stdout = &output{s, KindStdout, f.process}
	cmd.Stderr = &output{s, KindStderr, f.process}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return &running{cmd: cmd, input: make(chan []byte, maxQueuedInput), gone: make(chan struct{})}, stdin, nil
}

func (p *running) queue(payload []byte) {
	select {
	case p.input <- payload:
	case <-p.gone:
	}
}

// write passes the input on to the process. It returns when the process exits or at end of file. If
// the process has closed its stdin, the rest of the input is discarded.
func (p *running) write(stdin io.WriteCloser) {
	defer stdin.Close()
	for {
		select {
		case payload := <-p.input:
			if payload == nil {
				return
			}
			_, _ = stdin.Write(payload)
		case <-p.gone:
			return
		}
	}
}

func exitOf(cmd *exec.Cmd, err error) Exit {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal().String()}
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 || err == nil {
		return Exit{Code: code}
	}
	return Exit{Code: -1, Error: fmt.Sprintf("wait: %v", err)}
}

func (s *server) exit(process uint32, e Exit) {
	_ = s.send(frame{kind: KindExit, process: process, payload: mustJSON(e)})
}

func (s *server) send(f frame) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.stream.Write(appendFrame(nil, f))
	return err
}

// output sends what a process prints as frames.
type output struct {
	server  *server
	kind    Kind
	process uint32
}

func (o *output) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), chunkBytes)
		if err := o.server.send(frame{o.kind, o.process, rest[:n]}); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}
