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
	"time"

	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

// site is a lab whose box may have a coordinator. Host 0 is the sender.
type site struct {
	*boxes.Single
	dir string // of the files
	at  string // the coordinator's address
}

const receivers = 3

func openSite(ctx context.Context, program string) (_ *site, err error) {
	s := &site{}
	if s.Single, err = boxes.NewSingle(ctx, bed.Options{Hosts: 1 + receivers}, program); err != nil {
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

func (s *site) Close() error { return errors.Join(s.Single.Close(), os.RemoveAll(s.dir)) }

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
