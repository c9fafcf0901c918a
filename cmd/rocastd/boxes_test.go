package main

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/internal/testlab/certs"
)

// withAPI returns a config whose API listens on a free port of the loopback.
func withAPI(t *testing.T, ca *certs.Authority, name string) config.Config {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	c := testConfig(t)
	cert, key, err := ca.Issue(t.TempDir(), time.Now().Add(time.Hour), name)
	if err != nil {
		t.Fatal(err)
	}
	c.API = neighbour.API{Listen: free.Addr().(*net.TCPAddr).AddrPort(), Files: neighbour.Files{Cert: cert, Key: key, CA: ca.Path}}
	return c
}

// A daemon listens for other boxes only where the config says so. It knows its name by its
// certificate.
func TestTheDaemonAnswersOtherBoxes(t *testing.T) {
	ca, err := certs.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	leaf2 := withAPI(t, ca, "leaf2")
	leaf2.Neighbours = []neighbour.Config{{Name: "leaf1", Address: netip.MustParseAddr("198.51.100.9"), URL: "https://127.0.0.1:1"}}
	client, stop := start(t, leaf2, twin)
	defer stop()
	if _, err := client.CreateGroup(t.Context(), []byte(notOwned)); err != nil {
		t.Fatal(err)
	}
	leaf1 := withAPI(t, ca, "leaf1")
	asking := neighbour.NewClient(leaf1.API.Files, []neighbour.Config{{Name: "leaf2", URL: "https://" + leaf2.API.Listen.String()}})
	tree, err := asking.Tree(t.Context(), "leaf2", "g1")
	if err != nil || tree.Box != "leaf2" || tree.Group.Name != "g1" {
		t.Errorf("%+v, %v", tree, err)
	}
	_, err = asking.PutBranch(t.Context(), "leaf2", "g1", api.Branch{Registration: api.Registration + 1})
	if want := "box leaf2 refuses: box leaf1 registers with version 3 and box leaf2 with version 2; run the same version of rocast on both"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	stop()
	if conn, err := net.Dial("tcp", leaf2.API.Listen.String()); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// A daemon without the files, or whose port is taken, says so and leaves nothing open.
func TestADaemonThatCannotAnswerOtherBoxesDoesNotStart(t *testing.T) {
	ca, err := certs.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	taken := withAPI(t, ca, "leaf1")
	l, err := net.Listen("tcp", taken.API.Listen.String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	missing := withAPI(t, ca, "leaf1")
	missing.API.Files.Cert = "/none"
	for want, c := range map[string]config.Config{
		"listen for other boxes on " + taken.API.Listen.String() + ": ": taken,
		"api: read the certificate /none and its key ":                  missing,
	} {
		log, err := newLog(c, new(bytes.Buffer))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the state directory is not locked any more
			if _, err := open(c, log, twin); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("\ngot  %v\nwant %s", err, want)
			}
		}
	}
}
