package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
)

// nic is how a host makes queue pairs: by verbs (verbs.go), or, in tests, in software.
type nic interface {
	// open makes a queue pair with memory of so many bytes.
	open(ctx context.Context, bytes int64) (endpoint, error)
}

// endpoint is a queue pair with memory.
type endpoint interface {
	local() queuePair
	connect(ctx context.Context, peer queuePair) (state string, err error)
	load(path string) error              // reads a file into the memory
	save(path string, bytes int64) error // writes the first bytes of the memory to a file
	// write writes the memory to that of the peer, chunk by chunk, and returns when the peer has
	// acknowledged everything.
	write(ctx context.Context, peer queuePair, bytes int64) error
	close()
}

const (
	pathMTU    = 1024
	chunkBytes = 1 << 20 // of a WRITE
)

// memoryFor is the memory that a file takes at each host: it is written in whole chunks.
func memoryFor(bytes int64) int64 { return (bytes + chunkBytes - 1) / chunkBytes * chunkBytes }

// receiveFile waits for a transfer and saves what arrives at path.
func receiveFile(ctx context.Context, n nic, l *line, own netip.Addr, path string) error {
	m, err := l.ask(message{Receiver: &own}, 0)
	if err != nil {
		return err
	}
	ep, err := n.open(ctx, m.Prepare)
	if err != nil {
		_ = l.send(message{Error: err.Error()})
		return err
	}
	defer ep.close()
	local := ep.local()
	if m, err = l.ask(message{QP: &local}, 0); err != nil {
		return err
	}
	if m.Connect == nil {
		return errors.New("the coordinator does not say to whom to connect")
	}
	state, err := ep.connect(ctx, *m.Connect)
	if err != nil {
		_ = l.send(message{Error: err.Error()})
		return err
	}
	if m, err = l.ask(message{State: state}, 0); err != nil {
		return err
	}
	if err := ep.save(path, m.Save); err != nil {
		_ = l.send(message{Error: err.Error()})
		return err
	}
	hash, err := hashOf(path)
	return errors.Join(err, l.send(message{Saved: hash}))
}

// sendFile sends a file to receivers, and returns who has it.
func sendFile(ctx context.Context, n nic, l *line, path string, to []netip.Addr) (*result, error) {
	hash, err := hashOf(path)
	if err != nil {
		return nil, err
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	ep, err := n.open(ctx, memoryFor(file.Size()))
	if err != nil {
		return nil, err
	}
	defer ep.close()
	if err := ep.load(path); err != nil {
		return nil, err
	}
	m, err := l.ask(message{Request: &request{From: ep.local(), To: to, Bytes: file.Size()}}, 0)
	if err != nil {
		return nil, err
	}
	if m.Clear == nil {
		return nil, errors.New("the coordinator does not say where to send to")
	}
	if _, err := ep.connect(ctx, *m.Clear); err != nil {
		return nil, err
	}
	if err := ep.write(ctx, *m.Clear, memoryFor(file.Size())); err != nil {
		return nil, err // and the connection ends, which tells the coordinator
	}
	m, err = l.ask(message{Sent: hash}, 0)
	return m.Result, err
}

// hashOf is the SHA-256 of a file.
func hashOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
