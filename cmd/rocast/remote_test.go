package main

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/server"
	"github.com/rocast/rocast/internal/testlab/certs"
)

// remotely makes a daemon answer on TCP, too, for a program with the name admin. It returns the
// flags by which a program with a name in its certificate reaches it.
func (d *daemon) remotely(t *testing.T) (flags func(name string) []string) {
	t.Helper()
	ca, err := certs.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string) neighbour.Files {
		cert, key, err := ca.Issue(t.TempDir(), time.Now().Add(time.Hour), name)
		if err != nil {
			t.Fatal(err)
		}
		return neighbour.Files{Cert: cert, Key: key, CA: ca.Path}
	}
	l, err := server.ListenForBoxes(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	s := server.NewForBoxes(d.control.Branches, d.control, zap.NewNop(), d.server, neighbour.API{Files: issue("leaf1"), Clients: []string{"admin"}, ReadClients: []string{"looker"}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	url := "https://" + l.Addr().(*net.TCPAddr).String()
	return func(name string) []string {
		f := issue(name)
		return []string{"--api", url, "--cert", f.Cert, "--key", f.Key, "--ca", f.CA, "--box", "leaf1"}
	}
}

// A program on another machine does what an operator on the box does. It sees no R_Keys.
func TestTheCommandsReachABoxOverTCP(t *testing.T) {
	d := startDaemon(t)
	flags := d.remotely(t)
	admin := flags("admin")
	d.must(t, append(admin, "group", "create", "-f", writeFile(t))...)
	var g api.Group
	if d.mustJSON(t, &g, append(admin, "group", "show", "g1")...); g.Name != "g1" || g.Memory[0].RKey != nil {
		t.Errorf("%+v", g)
	}
	if d.mustJSON(t, &g, "group", "show", "g1"); g.Memory[0].RKey == nil {
		t.Error("on the box root sees no R_Key")
	}
	exit, _, stderr := d.run(append(flags("another"), "group", "ls")...)
	if exit != exitRefused || !strings.Contains(stderr, `certificate "another" is named by neither clients: nor readClients:`) {
		t.Errorf("another program: exit %d, %s", exit, stderr)
	}
	looker := flags("looker")
	d.must(t, append(looker, "group", "show", "g1")...)
	exit, _, stderr = d.run(append(looker, "group", "rm", "g1")...)
	if exit != exitRefused || !strings.Contains(stderr, "the program looker may only read") {
		t.Errorf("a program that may read removes a group: exit %d, %s", exit, stderr)
	}
	wrong := flags("admin")
	wrong[len(wrong)-1] = "leaf2"
	if exit, _, stderr := d.run(append(wrong, "status")...); exit != exitUnreachable || !strings.Contains(stderr, "certificate is valid for leaf1, not leaf2") {
		t.Errorf("another box: exit %d, %s", exit, stderr)
	}
	wrong = flags("admin")
	wrong[7] = wrong[3] // --ca
	if exit, _, stderr := d.run(append(wrong, "status")...); exit != exitUnreachable || !strings.Contains(stderr, "certificate") {
		t.Errorf("another CA: exit %d, %s", exit, stderr)
	}
}

func TestFlagsOfARemoteDaemonThatCannotWork(t *testing.T) {
	d := &daemon{socket: "/nowhere"}
	for _, c := range []struct{ flags, want string }{
		{"--cert /c", "--cert needs --api URL; see rocast status --help"},
		{"--box leaf1", "--box needs --api URL; see rocast status --help"},
		{"--api leaf1:7471", "--api leaf1:7471 is not https://HOST:PORT; see rocast status --help"},
		{"--api http://leaf1:7471", "--api http://leaf1:7471 is not https://HOST:PORT; see rocast status --help"},
		{"--api https://leaf1", "--api https://leaf1 is not https://HOST:PORT; see rocast status --help"},
		{"--api https://leaf1:1", "--api needs --cert FILE; see rocast status --help"},
		{"--api https://leaf1:1 --cert /none --key /none", "--api needs --ca FILE; see rocast status --help"},
		{"--api https://leaf1:1 --cert /none --key /none --ca /none", "open /none: no such file or directory; see rocast status --help"},
	} {
		d.refused(t, exitUsage, api.Usage, c.want, append(strings.Fields(c.flags), "status")...)
	}
}
