// Package lab is what the examples run in when they have no real lab: hosts with soft RDMA NICs in
// network namespaces, and a box with rocastd between them.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/boxes"
)

// Lab is a bed with a daemon in its box.
type Lab struct {
	*bed.Bed
	Daemon *boxes.Daemon
	dir    string
}

// Open builds the lab and starts the daemon, which is the program at this path. Close removes all.
func Open(ctx context.Context, hosts int, program string) (_ *Lab, err error) {
	l := &Lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.dir, err = os.MkdirTemp("", "rcx"); err != nil { // short: the path of a socket has its limit
		return nil, err
	}
	if l.Bed, err = bed.New(bed.Options{Hosts: hosts}); err != nil {
		return nil, err
	}
	l.Daemon = &boxes.Daemon{Program: program, Config: filepath.Join(l.dir, "rocastd.yaml"), Socket: filepath.Join(l.dir, "s")}
	config := fmt.Sprintf("ports: [%s]\nsocket: %s\nstateDir: %s\n", strings.Join(l.Ports(), ", "), l.Daemon.Socket, filepath.Join(l.dir, "state"))
	if err := os.WriteFile(l.Daemon.Config, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return l, l.Daemon.Start(ctx, l.Box)
}

// Close ends the daemon and removes the lab.
func (l *Lab) Close() (err error) {
	if l.Daemon != nil {
		err = l.Daemon.Kill()
	}
	if l.Bed != nil {
		err = errors.Join(err, l.Bed.Close())
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// Program returns the path of a rocastd that was built for a test. It skips the test if the lab
// cannot be built here.
func Program(t *testing.T) string {
	t.Helper()
	testlab.NeedRoot(t)
	if testing.Short() {
		t.Skip("under the race detector the soft NICs are so slow that the story takes a minute")
	}
	program, err := boxes.Program()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// Main is the TestMain of an example.
func Main(m *testing.M) {
	code := m.Run()
	boxes.RemoveProgram()
	os.Exit(code)
}
