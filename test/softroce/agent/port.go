package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// openPort finds the virtio serial port by the name that QEMU gave it.
func openPort(name string) (io.ReadWriteCloser, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		got, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(got)) == name {
			file, err := os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(path))), os.O_RDWR, 0)
			return &port{File: file}, err
		}
	}
	return nil, fmt.Errorf("no virtio serial port is named %s", name)
}

// port is a virtio serial port. Reading it returns end of file until QEMU has told the guest that
// the other side is open.
type port struct {
	*os.File
	connected bool
}

const connectPoll = 5 * time.Millisecond

func (p *port) Read(b []byte) (int, error) {
	for {
		n, err := p.File.Read(b)
		if n > 0 {
			p.connected = true
		}
		if err != io.EOF || p.connected {
			return n, err
		}
		time.Sleep(connectPoll)
	}
}
