package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
)

// remote says how a daemon on another machine is reached: by the TCP listener that api: in its
// config names.
type remote struct {
	url           string // "": the daemon is on this machine
	cert, key, ca string // files
	box           string // the name in the box's certificate
}

func (r *remote) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&r.url, "api", "", "a daemon on another machine: https://HOST:PORT, the `URL` of api: in its config")
	flags.StringVar(&r.cert, "cert", "", "with --api: `file` with a certificate whose first DNS name clients: in that config has")
	flags.StringVar(&r.key, "key", "", "with --api: `file` with the key of the certificate")
	flags.StringVar(&r.ca, "ca", "", "with --api: `file` with the certificate of the boxes' CA")
	flags.StringVar(&r.box, "box", "", "with --api: the `name` in the box's certificate (default: the host of the URL)")
}

// check refuses flags that cannot work, before anything is sent.
func (r *remote) check(cmd *cobra.Command) error {
	if r.url == "" {
		for _, flag := range []string{"cert", "key", "ca", "box"} {
			if cmd.Flags().Changed(flag) {
				return usage(cmd, "--%s needs --api URL", flag)
			}
		}
		return nil
	}
	at, err := url.Parse(r.url)
	if err != nil || at.Scheme != "https" || at.Port() == "" || at.Path != "" {
		return usage(cmd, "--api %s is not https://HOST:PORT", r.url)
	}
	for _, f := range []struct{ flag, value string }{{"cert", r.cert}, {"key", r.key}, {"ca", r.ca}} {
		if f.value == "" {
			return usage(cmd, "--api needs --%s FILE", f.flag)
		}
	}
	if _, err := r.settings(); err != nil {
		return usage(cmd, "%v", err)
	}
	return nil
}

func (r *remote) settings() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(r.cert, r.key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(r.ca)
	if err != nil {
		return nil, err
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: x509.NewCertPool(), ServerName: r.box}
	settings.RootCAs.AppendCertsFromPEM(text) // a file without a certificate fails in the handshake
	return settings, nil
}

// client returns a client once check has found the flags right.
func (r *remote) client() *client.Client {
	settings, err := r.settings()
	if err != nil {
		settings = &tls.Config{} // nothing accepts it
	}
	return client.NewTLS(r.url, settings)
}
