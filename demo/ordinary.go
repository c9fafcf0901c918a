package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
)

// ordinary is traffic that belongs to no group. It has to pass through the same ports as if rocast
// were not there.
type ordinary struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	pings int
	tcp   int // MiB
	errs  []error
}

func (d *demo) startOrdinaryTraffic(ctx context.Context) *ordinary {
	o := &ordinary{}
	ctx, o.cancel = context.WithCancel(ctx)
	a, b := d.lab.Hosts[1], d.lab.Hosts[2]
	o.wg.Go(func() {
		for ctx.Err() == nil {
			_, err := a.NS.Exec("ping", "-c", "10", "-i", "0.02", "-W", "2", "-q", b.IP.String())
			var exit *exec.ExitError
			if errors.As(err, &exit) && ctx.Err() != nil {
				return
			}
			o.note(err, func() { o.pings += 10 })
		}
	})
	o.wg.Go(func() {
		for ctx.Err() == nil {
			err := d.tcpMiB(ctx)
			if ctx.Err() != nil {
				return
			}
			o.note(err, func() { o.tcp++ })
		}
	})
	return o
}

func (o *ordinary) note(err error, count func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.errs = append(o.errs, err)
		return
	}
	count()
}

// stop ends the traffic and returns what got through.
func (o *ordinary) stop() (string, error) {
	o.cancel()
	o.wg.Wait()
	if len(o.errs) > 0 {
		return "", fmt.Errorf("ordinary traffic: %w", o.errs[0])
	}
	return fmt.Sprintf("%d pings answered, %d MiB of TCP intact", o.pings, o.tcp), nil
}

// tcpMiB sends a MiB from receiver 1 to receiver 2 and compares hashes.
func (d *demo) tcpMiB(ctx context.Context) error {
	a, b := d.lab.Hosts[1], d.lab.Hosts[2]
	var listener net.Listener
	err := b.NS.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(b.IP.String(), "0"))
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	data := make([]byte, 1<<20)
	fill(data, uint64(d.seed)+2)
	got := make(chan [sha256.Size]byte, 1)
	go func() {
		defer close(got)
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		received, _ := io.ReadAll(c)
		got <- sha256.Sum256(received)
	}()
	var c net.Conn
	err = a.NS.Do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		return err
	}
	_, err = c.Write(data)
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	if sum := <-got; sum != sha256.Sum256(data) {
		return errors.New("TCP data differs")
	}
	return nil
}
