package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os/exec"

	"github.com/rocast/rocast/roce"
)

// verbsNIC makes queue pairs of the host's RDMA device, by a program that uses libibverbs: the one
// in test/softroce/verbs, which takes commands on its stdin and answers with lines of JSON.
type verbsNIC struct {
	program string
	ip      netip.Addr
}

type verbsEndpoint struct {
	queuePair
	process *exec.Cmd
	stdin   io.WriteCloser
	answers *bufio.Scanner
}

// answer is a line of the program. Event decides which of the other keys are there.
type answer struct {
	Event   string   `json:"event"`
	QPN     roce.QPN `json:"qpn"`
	VA      uint64   `json:"va"`
	RKey    uint32   `json:"rkey"`
	State   string   `json:"state"`
	Status  string   `json:"status"`
	Message string   `json:"message"`
}

func (n verbsNIC) open(ctx context.Context, bytes int64) (endpoint, error) {
	e := &verbsEndpoint{queuePair: queuePair{IP: n.ip, PSN: roce.PSN(rand.Uint32N(1 << 24))}}
	e.process = exec.CommandContext(ctx, n.program, fmt.Sprintf("ip=%v", n.ip), fmt.Sprintf("psn=%d", e.PSN), fmt.Sprintf("bytes=%d", bytes))
	stdout, err := e.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if e.stdin, err = e.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := e.process.Start(); err != nil {
		return nil, err
	}
	e.answers = bufio.NewScanner(stdout)
	local, err := e.await("local")
	e.QPN, e.VA, e.RKey = local.QPN, local.VA, local.RKey
	if err != nil {
		e.close()
	}
	return e, err
}

// await returns the next line with this event.
func (e *verbsEndpoint) await(event string) (a answer, err error) {
	for e.answers.Scan() {
		a = answer{}
		if err := json.Unmarshal(e.answers.Bytes(), &a); err != nil {
			return a, fmt.Errorf("%s: %q: %w", e.process.Path, e.answers.Text(), err)
		}
		switch a.Event {
		case event:
			return a, nil
		case "error":
			return a, errors.New(a.Message)
		}
	}
	return a, fmt.Errorf("%s has ended: %w", e.process.Path, errors.Join(e.answers.Err(), io.ErrUnexpectedEOF))
}

func (e *verbsEndpoint) ask(event, format string, args ...any) (answer, error) {
	if _, err := fmt.Fprintf(e.stdin, format+"\n", args...); err != nil {
		return answer{}, err
	}
	return e.await(event)
}

func (e *verbsEndpoint) local() queuePair { return e.queuePair }

func (e *verbsEndpoint) connect(_ context.Context, peer queuePair) (string, error) {
	a, err := e.ask("state", "connect ip=%v qpn=%d psn=%d mtu=%d", peer.IP, peer.QPN, e.PSN, pathMTU)
	return a.State, err
}

func (e *verbsEndpoint) load(path string) error {
	_, err := e.ask("loaded", "load file=%s", path)
	return err
}

func (e *verbsEndpoint) save(path string, bytes int64) error {
	_, err := e.ask("saved", "save file=%s bytes=%d", path, bytes)
	return err
}

func (e *verbsEndpoint) write(_ context.Context, peer queuePair, bytes int64) error {
	a, err := e.ask("done", "write va=%d rkey=%d bytes=%d count=%d depth=16", peer.VA, peer.RKey, chunkBytes, bytes/chunkBytes)
	if err == nil && a.Status != "success" {
		err = fmt.Errorf("the transfer ended with %q", a.Status)
	}
	return err
}

// close ends the program; the kernel releases what it had.
func (e *verbsEndpoint) close() {
	e.stdin.Close()
	_ = e.process.Wait()
}
