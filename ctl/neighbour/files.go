package neighbour

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// Files are the paths of a box's certificate, its key, and the CA's certificate.
type Files struct{ Cert, Key, CA string }

// identity is the content of the files.
type identity struct {
	name string // of this box
	cert tls.Certificate
	ca   *x509.CertPool
}

// Name returns this box's name: the first DNS name of its certificate. An error says which file is
// wrong.
func (f Files) Name() (string, error) {
	id, err := f.read()
	return id.name, err
}

func (f Files) read() (identity, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return identity{}, fmt.Errorf("api: read the certificate %s and its key %s: %w", f.Cert, f.Key, err)
	}
	if len(cert.Leaf.DNSNames) == 0 {
		return identity{}, fmt.Errorf("api: the certificate %s has no DNS name; make one with the name of this box as subject "+
			"alternative name", f.Cert)
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return identity{}, fmt.Errorf("api: read the CA's certificate: %w", err)
	}
	id := identity{name: cert.Leaf.DNSNames[0], cert: cert, ca: x509.NewCertPool()}
	if !id.ca.AppendCertsFromPEM(text) {
		return identity{}, fmt.Errorf("api: %s holds no certificate; write the PEM form of the CA's", f.CA)
	}
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: id.ca, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return identity{}, fmt.Errorf("api: the certificate %s is not valid with the CA %s (%w), so no other box would accept it",
			f.Cert, f.CA, err)
	}
	return id, nil
}

// Server returns the settings of the listener. A peer must present a certificate of the CA.
func (f Files) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			id, err := f.read()
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{id.cert}, ClientCAs: id.ca,
				ClientAuth: tls.RequireAndVerifyClientCert,
			}, err
		},
	}
}

// NewListener wraps a listener for other boxes.
func NewListener(l net.Listener, f Files) net.Listener { return tls.NewListener(l, f.Server()) }

// client returns the settings for a connection to the neighbour with a name.
func (f Files) client(name string) (*tls.Config, error) {
	id, err := f.read()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{id.cert}, RootCAs: id.ca, ServerName: name,
	}, err
}

// PeerName returns the name of the box at the other end of a connection, once its certificate has
// been verified.
func PeerName(state *tls.ConnectionState) (string, error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return "", errors.New("the peer has not presented a certificate")
	}
	names := state.PeerCertificates[0].DNSNames
	if len(names) == 0 {
		return "", errors.New("the peer's certificate has no DNS name; make one with the name of the box as subject alternative name")
	}
	return names[0], nil
}
