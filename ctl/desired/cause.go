package desired

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"time"
)

// probeTime bounds the questions to one member of etcd.
const probeTime = time.Second

// cause says why etcd has not answered in time. etcd's client only says that the time is over, also
// where a certificate is refused.
func (d *Desired) cause(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, endpoint := range d.config.Endpoints {
		if u, bad := url.Parse(endpoint); bad == nil {
			if why := d.probe(u); why != nil {
				return why
			}
		}
	}
	return err
}

// probe connects to a member of etcd. It returns nil if that is possible.
func (d *Desired) probe(u *url.URL) error {
	conn, err := net.DialTimeout("tcp", u.Host, probeTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	if d.config.TLS == nil {
		return nil
	}
	config := d.config.TLS.Clone()
	config.ServerName, config.NextProtos = u.Hostname(), []string{"h2"}
	secure := tls.Client(conn, config)
	_ = conn.SetDeadline(time.Now().Add(probeTime))
	if err := secure.Handshake(); err != nil {
		return err
	}
	// With TLS 1.3, a server that refuses the client's certificate says so after the handshake.
	if _, err := secure.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
