package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocast/rocast/examples/lab"
)

// site is a lab whose box may have a coordinator. Host 0 is the sender.
type site struct {
	*lab.Lab
	dir string // of the files
	at  string // the coordinator's address
}

const receivers = 3

func openSite(ctx context.Context, program string) (_ *site, err error) {
	s := &site{}
	if s.Lab, err = lab.Open(ctx, 1+receivers, program); err != nil {
		return nil, err
	}
	s.dir, err = os.MkdirTemp("", "rcx")
	return s, err
}

// coordinate starts a coordinator, which ends with ctx.
func (s *site) coordinate(ctx context.Context, out io.Writer, within time.Duration) error {
	return s.Box.Do(func() error {
		listener, err := net.Listen("tcp", net.JoinHostPort(s.IP().String(), "0"))
		if err != nil {
			return err
		}
		s.at = listener.Addr().String()
		go newCoordinator(s.Daemon.Client(), s.GroupIP(), within, out).serve(ctx, listener)
		return nil
	})
}

func (s *site) Close() error { return errors.Join(s.Lab.Close(), os.RemoveAll(s.dir)) }

// copyOf is where host i has the file.
func (s *site) copyOf(i int) string { return filepath.Join(s.dir, fmt.Sprintf("host%d", i)) }

// dial connects host i to the coordinator.
func (s *site) dial(ctx context.Context, i int) (l *line, err error) {
	err = s.Hosts[i].NS.Do(func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.at)
		if err == nil {
			l = newLine(ctx, conn)
		}
		return err
	})
	return l, err
}

// receive is the program of receiver i, from 1. Like a process that is killed, it loses everything
// when ctx ends.
func (s *site) receive(ctx context.Context, i int) error {
	l, err := s.dial(ctx, i)
	if err != nil {
		return err
	}
	defer l.conn.Close()
	return receiveFile(ctx, softNIC{Endpoint: s.Hosts[i].RNIC}, l, s.Hosts[i].IP, s.copyOf(i))
}

// send is the program of the sender, which sends a file of random bytes to all receivers.
func (s *site) send(ctx context.Context, bytes int64, wrote func(chunks int) error) (*result, error) {
	file, err := os.Create(s.copyOf(0))
	if err != nil {
		return nil, err
	}
	_, err = io.CopyN(file, rand.Reader, bytes)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	l, err := s.dial(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer l.conn.Close()
	var to []netip.Addr
	for _, h := range s.Hosts[1:] {
		to = append(to, h.IP)
	}
	return sendFile(ctx, softNIC{Endpoint: s.Hosts[0].RNIC, wrote: wrote}, l, s.copyOf(0), to)
}

// demonstrate sends one file in a lab of its own.
func demonstrate(ctx context.Context, out io.Writer, program string, bytes int64) (err error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	s, err := openSite(ctx, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.coordinate(ctx, out, 10*time.Second); err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	for i := range receivers {
		tasks.Go(func() error { return s.receive(ctx, 1+i) })
	}
	began := time.Now()
	result, err := s.send(ctx, bytes, nil)
	return errors.Join(report(out, result, err, began), tasks.Wait())
}

// report prints who has the file. Its error says that not all have.
func report(out io.Writer, r *result, err error, began time.Time) error {
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "after %.1f s %d receivers have the file: %v\n", time.Since(began).Seconds(), len(r.Delivered), r.Delivered)
	var without []string
	for ip, reason := range r.Failed {
		without = append(without, fmt.Sprintf("%v lacks the file: %s", ip, reason))
	}
	if without != nil {
		return errors.New(strings.Join(without, "; "))
	}
	return nil
}
