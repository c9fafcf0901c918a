// Package certs makes certificates for boxes of tests and demos.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Lifetime is how long certificates are valid.
const Lifetime = 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	Path string // of its own certificate

	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority makes an authority and writes its certificate into dir.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key, Path: filepath.Join(dir, "ca.pem"), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(Lifetime), IsCA: true, BasicConstraintsValid: true,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return a, write(a.Path, "CERTIFICATE", der)
}

// Issue writes box.pem and box.key into dir: a certificate with the names, and its key.
func (a *Authority) Issue(dir string, notAfter time.Time, names ...string) (cert, key string, err error) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names, NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, secret.Public(), a.key)
	if err != nil {
		return "", "", err
	}
	text, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return "", "", err
	}
	cert, key = filepath.Join(dir, "box.pem"), filepath.Join(dir, "box.key")
	return cert, key, errors.Join(write(cert, "CERTIFICATE", der), write(key, "PRIVATE KEY", text))
}

func write(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
