package main

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/gather"
)

// A daemon listens for hosts only where the config says so, and makes a group of what two of them
// say: here one that the box refuses, because both are the box.
func TestTheDaemonAnswersHosts(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().(*net.TCPAddr).AddrPort()
	c := testConfig(t)
	c.Hosts = gather.Config{Listen: at, GroupIPs: []netip.Addr{netip.MustParseAddr("10.77.0.200")}}
	log, err := newLog(c, new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(c, log, twin); err == nil || !strings.HasPrefix(err.Error(), "listen for hosts on "+at.String()+": ") {
		t.Errorf("the port is taken, and %v", err)
	}
	free.Close()
	_, stop := start(t, c, twin)
	defer stop()
	join := func(last byte, role string) error {
		host := client.NewHost(at, netip.AddrFrom4([4]byte{127, 0, 0, last}))
		_, err := host.Join(t.Context(), "g1", client.HostRequest{Role: role, QPN: 100 + uint32(last), Members: 2, MTU: 1024})
		return err
	}
	outcomes := make(chan error, 2)
	go func() { outcomes <- join(1, "source") }()
	go func() { outcomes <- join(2, "receiver") }()
	for range 2 {
		if err := <-outcomes; err == nil || !strings.Contains(err.Error(), "127.0.0.") {
			t.Errorf("%v", err)
		}
	}
	stop()
	if conn, err := net.Dial("tcp", at.String()); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}
