package desired

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/rocast/rocast/ctl/yamldoc"
)

// Settings are the key etcd of the daemon's config.
type Settings struct {
	Endpoints     []string
	Prefix        string
	Lease         time.Duration
	Cert, Key, CA string // paths; "": none
}

// On reports whether the groups of this box are kept in etcd.
func (s *Settings) On() bool { return len(s.Endpoints) > 0 }

const (
	defaultPrefix = "/rocast"
	defaultLease  = 5 * time.Second
	// etcd grants no lease that is shorter than one and a half of its election timeouts.
	minLease, maxLease = 2 * time.Second, time.Hour
)

// ReadSettings reads the key etcd.
func ReadSettings(v yamldoc.Value) (s Settings, err error) {
	s.Prefix, s.Lease = defaultPrefix, defaultLease
	err = v.Fields(
		yamldoc.Field{Key: "endpoints", Set: s.readEndpoints, Needed: "endpoints: [URL, ...], the clients' URLs of etcd's members"},
		yamldoc.Field{Key: "prefix", Set: yamldoc.Into(&s.Prefix, prefix)},
		yamldoc.Field{Key: "lease", Set: yamldoc.Into(&s.Lease, lease)},
		yamldoc.Field{Key: "cert", Set: yamldoc.Into(&s.Cert, yamldoc.Value.Path)},
		yamldoc.Field{Key: "key", Set: yamldoc.Into(&s.Key, yamldoc.Value.Path)},
		yamldoc.Field{Key: "ca", Set: yamldoc.Into(&s.CA, yamldoc.Value.Path)},
	)
	switch {
	case err != nil:
	case (s.Cert == "") != (s.Key == ""):
		err = v.Errorf("needs cert and key together; write both, or neither")
	case (s.Cert != "" || s.CA != "") && !strings.HasPrefix(s.Endpoints[0], "https:"):
		err = v.Errorf("names certificates, and its endpoints do not use TLS; write endpoints that begin with https:")
	}
	return s, err
}

func (s *Settings) readEndpoints(v yamldoc.Value) error {
	err := v.Each("endpoint", func(item yamldoc.Value) error {
		text, err := item.Text()
		if err != nil {
			return err
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			return item.Errorf("%q is not the URL of a member of etcd; write https://HOST:PORT or http://HOST:PORT", text)
		}
		if len(s.Endpoints) > 0 && !strings.HasPrefix(s.Endpoints[0], u.Scheme+":") {
			return item.Errorf("%q uses TLS or not, unlike the endpoints above; write the same for all", text)
		}
		s.Endpoints = append(s.Endpoints, text)
		return nil
	})
	if err == nil && len(s.Endpoints) == 0 {
		err = v.Errorf("names no URL; name at least one")
	}
	return err
}

func prefix(v yamldoc.Value) (string, error) {
	text, err := v.Text()
	if err == nil && (!path.IsAbs(text) || path.Clean(text) != text || text == "/") {
		err = v.Errorf("%q is not a prefix of keys; write one such as /rocast, without a slash at its end", text)
	}
	return text, err
}

func lease(v yamldoc.Value) (time.Duration, error) {
	text, err := v.Text()
	if err == nil {
		err = v.Decimal(text)
	}
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < minLease || d > maxLease || d%time.Second != 0 {
		return 0, v.Errorf("%q is not a time of whole seconds from %v to %v; write one such as 5s", text, minLease, maxLease)
	}
	return d, nil
}

// Config returns how the box with a name connects. It reads the certificates.
func (s *Settings) Config(box string) (Config, error) {
	c := Config{Endpoints: s.Endpoints, Prefix: s.Prefix, Box: box, Lease: s.Lease}
	if !strings.HasPrefix(s.Endpoints[0], "https:") {
		return c, nil
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return c, fmt.Errorf("etcd: read the certificate %s and its key %s: %w", s.Cert, s.Key, err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	if s.CA != "" {
		text, err := os.ReadFile(s.CA)
		if err != nil {
			return c, fmt.Errorf("etcd: read the CA's certificate: %w", err)
		}
		if c.TLS.RootCAs = x509.NewCertPool(); !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return c, fmt.Errorf("etcd: %s holds no certificate; write the PEM form of the CA's", s.CA)
		}
	}
	return c, nil
}
