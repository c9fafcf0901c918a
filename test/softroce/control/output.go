package control

import (
	"bytes"
	"context"
	"io"
	"sync"
)

// maxOutputBytes bounds what is kept of one output stream of a process. Later bytes are discarded.
const maxOutputBytes = 16 << 20

// Output collects what a process prints. Receiving never waits for a reader. So a process whose
// output nobody reads does not block the other processes of its guest.
type Output struct {
	mu     sync.Mutex
	text   []byte
	read   int           // bytes of text that ReadLine has returned
	change chan struct{} // closed and replaced whenever text grows, and at the end
	ended  bool
}

func newOutput() *Output { return &Output{change: make(chan struct{})} }

// String is everything that was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// ReadLine returns the next line without its newline. After the last line it returns io.EOF.
func (o *Output) ReadLine(ctx context.Context) (string, error) {
	for {
		line, change, err := o.nextLine()
		if err != nil || change == nil {
			return line, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// nextLine returns a line, or a channel that is closed when the caller should ask again.
func (o *Output) nextLine() (line string, change <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := o.text[o.read:]
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		o.read += i + 1
		return string(rest[:i]), nil, nil
	}
	if !o.ended {
		return "", o.change, nil
	}
	if len(rest) == 0 {
		return "", nil, io.EOF
	}
	o.read = len(o.text)
	return string(rest), nil, nil
}

func (o *Output) append(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b[:min(len(b), maxOutputBytes-len(o.text))]...)
	o.changed()
}

func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed()
}

func (o *Output) changed() {
	close(o.change)
	o.change = make(chan struct{})
}
