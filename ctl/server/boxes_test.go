package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/certs"
)

// fabric is boxes in a row, whose APIs listen on the loopback: b1 - b2 - b3. Host 10.N.0.H is
// attached to box N, whose link address is 10.9.0.N.
type fabric struct {
	ca    *certs.Authority
	boxes []*box
	core  zapcore.Core
	log   *observer.ObservedLogs // of what boxes ask each other
}

type box struct {
	*ctl.Controller
	name  string
	files neighbour.Files
	sw    *ctltest.Switch
	at    net.Listener
	stop  func()
}

func (f *fabric) files(t *testing.T, names ...string) neighbour.Files {
	t.Helper()
	cert, key, err := f.ca.Issue(t.TempDir(), time.Now().Add(time.Hour), names...)
	if err != nil {
		t.Fatal(err)
	}
	return neighbour.Files{Cert: cert, Key: key, CA: f.ca.Path}
}

func linkIP(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(n)}) }

func newFabric(t *testing.T) *fabric {
	t.Helper()
	f := &fabric{}
	f.core, f.log = observer.New(zap.WarnLevel)
	var err error
	if f.ca, err = certs.NewAuthority(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		b := &box{name: fmt.Sprint("b", n), files: f.files(t, fmt.Sprint("b", n))}
		b.at, err = ListenForBoxes(netip.MustParseAddrPort("127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		f.boxes = append(f.boxes, b)
	}
	for n := 1; n <= 3; n++ {
		f.open(t, n)
	}
	return f
}

func (f *fabric) open(t *testing.T, n int) {
	t.Helper()
	b := f.boxes[n-1]
	hops := map[string]nexthop.Hop{}
	var neighbours []neighbour.Config
	for other := 1; other <= 3; other++ {
		host := ctltest.Hop(1, "eth1", 1500, byte(other))
		if next := n + min(1, max(-1, other-n)); next != n {
			host = ctltest.Hop(2, "eth2", 1500, byte(next))
			host.Gateways = nexthop.GatewaysOf(linkIP(next))
		}
		for h := 1; h <= 2; h++ {
			hops[fmt.Sprintf("10.%d.0.%d", other, h)] = host
		}
		if other == n-1 || other == n+1 {
			neighbours = append(neighbours, neighbour.Config{Name: fmt.Sprint("b", other), Address: linkIP(other), URL: "https://" + f.boxes[other-1].at.Addr().String()})
			link := ctltest.Hop(2, "eth2", 1500, byte(other))
			link.Source = linkIP(n)
			hops[linkIP(other).String()] = link
		}
	}
	known, addresses := ctltest.NewHops(), ctltest.NewAddresses()
	known.Set(hops)
	addresses.Box[linkIP(n)] = true
	state, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b.sw = ctltest.NewSwitch("eth1", "eth2")
	b.Controller = ctl.New(ctl.Parts{
		Switch: b.sw, NextHops: known, Addresses: addresses, Store: state, Log: zap.NewNop(),
		Box: b.name, Boxes: neighbour.NewClient(b.files, neighbours), Neighbours: neighbours,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	programs := New(Config{Control: b.Controller, Services: b.Services, Reloader: &reloader{}, Metrics: http.NotFoundHandler(), Log: zap.NewNop(), Bounds: b.Bounds})
	s := NewForBoxes(b.Branches, b.Controller, zap.New(f.core), programs, neighbour.API{Files: b.files, Clients: []string{"monitor"}, ReadClients: []string{"looker"}})
	go func() { done <- s.Serve(ctx, b.at) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.stop = func() {}
	}
	t.Cleanup(func() { b.stop(); state.Close() })
}

const overThree = `name: g1
ip: 10.1.0.100
qpn: 1
mtu: 1024
members:
  - {ip: 10.1.0.1, qpn: 17, psn: 1000, role: source}
  - {ip: 10.1.0.2, qpn: 18, psn: 5}
  - {ip: 10.2.0.1, qpn: 19, psn: 6}
  - {ip: 10.3.0.1, qpn: 20, psn: 7}
`

func (f *fabric) groups() (names string) {
	for _, b := range f.boxes {
		for _, g := range b.Groups().Groups {
			names += fmt.Sprintf("%s %s %s %d; ", b.name, g.Name, g.State, g.MemberCount)
		}
	}
	return names
}

func TestAGroupSpansBoxesOverTLS(t *testing.T) {
	f := newFabric(t)
	if _, err := f.boxes[0].Create(t.Context(), []byte(overThree)); err != nil {
		t.Fatal(err)
	}
	if got, want := f.groups(), "b1 g1 ready 4; b2 g1 ready 3; b3 g1 ready 2; "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := f.log.Len(); n > 0 {
		t.Errorf("%d warnings", n)
	}
	tree, err := f.boxes[0].Tree(t.Context(), "g1")
	if err != nil || tree.Below[0].Below[0].Box != "b3" {
		t.Errorf("%+v, %v", tree, err)
	}
	if err := f.boxes[0].Remove("g1"); err != nil || f.groups() != "" {
		t.Errorf("%v, left %s", err, f.groups())
	}
}

// A box asks a neighbour what that shares between several boxes, for its own link address.
func TestABoxAsksWhatIsSharedOverTLS(t *testing.T) {
	f := newFabric(t)
	asks := func(n int) error {
		c := neighbour.NewClient(f.boxes[n].files, []neighbour.Config{{Name: "b1", URL: "https://" + f.boxes[0].at.Addr().String()}})
		_, err := c.AskEdge(t.Context(), "b1", api.EdgeQuestion{Protocol: api.EdgeProtocol})
		return err
	}
	for n, want := range map[int]string{
		1: "box b1 refuses: this box shares no copies; edges: in its rocastd.yaml says by which addresses it may",
		2: "box b1 refuses: box b3 is not a neighbour of box b1; add it to neighbours: in the config of b1",
	} {
		if err := asks(n); err == nil || err.Error() != want {
			t.Errorf("b%d: %v, want %s", n+1, err, want)
		}
	}
}

func TestABoxThatIsDownIsNamedAndNothingStays(t *testing.T) {
	f := newFabric(t)
	f.boxes[2].stop()
	_, err := f.boxes[0].Create(t.Context(), []byte(overThree))
	want := fmt.Sprintf("group g1 could not be set up: box b2 refuses: group g1 could not be set up: box b3 does not answer at https://%v (connect: connection refused); "+
		"is rocastd running there, with api: in its config?", f.boxes[2].at.Addr())
	if err == nil || err.Error() != want || f.groups() != "" {
		t.Errorf("\ngot  %v\nwant %s\nleft %s", err, want, f.groups())
	}
	if all := f.log.TakeAll(); len(all) != 1 || all[0].Message != "branch refused" || all[0].ContextMap()["upper"] != "b1" ||
		!strings.Contains(fmt.Sprint(all[0].ContextMap()["error"]), "box b3 does not answer") {
		t.Errorf("logged %+v", all)
	}
	// A sentence about the file may quote it.
	body, _ := json.Marshal(api.Branch{
		Registration: api.Registration, Root: "b1", Visited: []string{"b1"}, Version: 1, Lease: 60, Within: 1000,
		Link: api.LinkEnd{IP: "10.9.0.1", QPN: 900, PSN: 5}, File: "name: g7\nrkey: 0xdeadbeef\n",
	})
	status, message := f.ask(t, http.MethodPut, api.BranchesPath+"/g7", string(body), "b1")
	if all := f.log.TakeAll(); status != http.StatusBadRequest || !strings.Contains(message, "rkey") || len(all) != 1 || len(all[0].ContextMap()) != 2 {
		t.Errorf("answered %d %s, logged %+v", status, message, all)
	}
}

// ask sends a request to box b2 as a box with the names.
func (f *fabric) ask(t *testing.T, method, path, body string, names ...string) (status int, message string) {
	t.Helper()
	files := f.files(t, names...)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(f.ca.Path)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "b2"}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+f.boxes[1].at.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	var answer api.ErrorBody
	if err := json.Unmarshal(text, &answer); err != nil || answer.Error == nil {
		return response.StatusCode, string(text)
	}
	return response.StatusCode, answer.Error.Message
}

func TestWhatOtherBoxesMayAsk(t *testing.T) {
	f := newFabric(t)
	branch, err := json.Marshal(api.Branch{Registration: api.Registration})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body string
		names              []string
		status             int
		want               string
	}{
		{"GET", "/v1/groups", "", []string{"b1"}, 403, `certificate "b1" is named by neither clients: nor readClients: of api: on this box, so it has no answer to /v1/groups; add b1 to one of them`},
		{"GET", "/v1/groups", "", nil, 403, "the peer's certificate has no DNS name; make one with the name of the box as subject alternative name"},
		{"GET", "/v1/branches/g1", "", []string{"b9"}, 403, "box b9 is not a neighbour of box b2; add it to neighbours: in the config of b2"},
		{"POST", "/v1/groups", overThree, []string{"b1"}, 403, `certificate "b1" is named by neither clients: nor readClients: of api: on this box, so it has no answer to /v1/groups; add b1 to one of them`},
		{"PATCH", "/v1/branches/g1", "", []string{"b1"}, 405, "method PATCH is not allowed for /v1/branches/g1; use DELETE, GET, POST, PUT"},
		{"POST", "/v1/branches/g1", "", []string{"b1"}, 404, "box b2 does not ask box b1 for a part of group g1"},
		{"POST", "/v1/branches/g1", "", nil, 403, "the peer's certificate has no DNS name; make one with the name of the box as subject alternative name"},
		{"GET", "/v1/branches/g1", "", []string{"b1"}, 404, `there is no group "g1"; rocast group ls lists the groups`},
		{"GET", "/v1/branches/g1", "", nil, 403, "the peer's certificate has no DNS name; make one with the name of the box as subject alternative name"},
		{"PUT", "/v1/branches/g1", string(branch), []string{"b9", "b1"}, 403, "box b9 is not a neighbour of box b2; add it to neighbours: in the config of b2"},
		{"PUT", "/v1/branches/g1", "{", []string{"b1"}, 400, "the branch cannot be read (unexpected end of JSON input); run the same version of rocast on both boxes"},
		{"PUT", "/v1/branches/g1", string(bytes.Repeat([]byte(" "), api.MaxGroupFileBytes+1)), []string{"b1"}, 413, "the branch is longer than 1048576 bytes, which no group needs; split the group"},
		{"DELETE", "/v1/branches/g1", "", []string{"b1"}, 400, `version is ""; write a whole number up to 18446744073709551615`},
		{"DELETE", "/v1/branches/g1?version=1", "", []string{"b1"}, 404, `there is no group "g1"; rocast group ls lists the groups`},
		{"DELETE", "/v1/branches/g1?version=1a", "", []string{"b1"}, 400, `version is "1a"; write a whole number up to 18446744073709551615`},
		{"DELETE", "/v1/branches/g1?version=01", "", []string{"b1"}, 400, `version is "01", which has a leading zero; write a whole number up to 18446744073709551615 without one`},
		{"PUT", "/v1/branches/g1", string(branch), nil, 403, "the peer's certificate has no DNS name; make one with the name of the box as subject alternative name"},
		{"DELETE", "/v1/branches/g1?version=1", "", nil, 403, "the peer's certificate has no DNS name; make one with the name of the box as subject alternative name"},
	} {
		status, message := f.ask(t, c.method, c.path, c.body, c.names...)
		if status != c.status || message != c.want {
			t.Errorf("%s %s as %q: %d %s\nwant %d %s", c.method, c.path, c.names, status, message, c.status, c.want)
		}
	}
}

// A rocastd of before the trees, or one of another registration, is named.
func TestABoxOfAnotherVersionIsNamed(t *testing.T) {
	f := newFabric(t)
	old := serveAs(t, f.files(t, "b2"), func(w http.ResponseWriter, r *http.Request) {
		writeError(w, api.Errorf(api.NotFound, "there is no %s; the paths of the API begin with /v1/groups, /v1/ports and so on", r.URL.Path))
	})
	c := neighbour.NewClient(f.boxes[0].files, []neighbour.Config{{Name: "b2", URL: "https://" + old}})
	_, err := c.PutBranch(t.Context(), "b2", "g1", api.Branch{})
	if want := "box b2 runs a version of rocast that knows no branches; run the same version on both boxes"; err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

// serveAs serves with the files of a box.
func serveAs(t *testing.T, f neighbour.Files, handle http.HandlerFunc) (at string) {
	t.Helper()
	l, err := ListenForBoxes(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handle}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(neighbour.NewListener(l, f)) }()
	t.Cleanup(func() { s.Close(); <-done })
	return l.Addr().String()
}

// At boot the address of a link may come after the daemon.
func TestTheAddressMayComeLater(t *testing.T) {
	f := newFabric(t)
	for _, at := range []string{"192.0.2.77:0", "[2001:db8::77]:0"} {
		l, err := ListenForBoxes(netip.MustParseAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	_, err := ListenForBoxes(f.boxes[0].at.Addr().(*net.TCPAddr).AddrPort())
	if err == nil || !strings.Contains(err.Error(), "listen for other boxes on 127.0.0.1:") {
		t.Error(err)
	}
}

// A program on another machine has the API by its certificate, if the config names it. A box has
// not.
func TestProgramsReachABoxWithTheirCertificate(t *testing.T) {
	f := newFabric(t)
	b := f.boxes[0]
	as := func(name string) *client.Client {
		files := f.files(t, name)
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		text, err := os.ReadFile(files.CA)
		if err != nil || !pool.AppendCertsFromPEM(text) {
			t.Fatal(err)
		}
		return client.NewTLS("https://"+b.at.Addr().String(), &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "b1"})
	}
	monitor := as("monitor")
	here := strings.NewReplacer("  - {ip: 10.2.0.1, qpn: 19, psn: 6}\n", "", "  - {ip: 10.3.0.1, qpn: 20, psn: 7}\n", "",
		"psn: 5}", "psn: 5, confirm: true, regions: {va: 0, length: 64, rkey: 9}}", "mtu:", "memory: {va: 0, rkey: 7}\nmtu:").Replace(overThree)
	g, err := monitor.CreateGroup(t.Context(), []byte(here))
	if err != nil || g.State != api.Waiting || g.ClearToSend || g.Memory[0].RKey != nil || g.Members[1].Regions[0].RKey != nil {
		t.Fatalf("%+v, %v", g, err)
	}
	psn := uint32(5)
	g, err = monitor.Confirm(t.Context(), "g1", api.Confirmation{IP: "10.1.0.2", QPN: 18, State: "RTS", PSN: &psn})
	if err != nil || !g.ClearToSend || g.Members[1].Regions[0].RKey != nil {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err := monitor.WaitClear(t.Context(), "g1"); err != nil || g.Name != "g1" {
		t.Errorf("%+v, %v", g, err)
	}
	_, err = as("b2").Groups(t.Context())
	if want := `certificate "b2" is named by neither clients: nor readClients: of api: on this box, so it has no answer to /v1/groups; add b2 to one of them`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	looker := as("looker")
	if g, err := looker.Group(t.Context(), "g1"); err != nil || g.Memory[0].RKey != nil || g.Members[1].Regions[0].RKey != nil {
		t.Errorf("a program that may read: %+v, %v", g, err)
	}
	_, err = looker.RemoveGroup(t.Context(), "g1")
	if want := "the program looker may only read; name it in clients: instead of readClients: in rocastd.yaml"; err == nil || err.Error() != want || client.KindOf(err) != api.Forbidden {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := monitor.Group(t.Context(), "g1"); err != nil {
		t.Errorf("the group after that: %v", err)
	}
	b.stop()
	_, err = monitor.Groups(t.Context())
	if err == nil || client.KindOf(err) != api.Unreachable || !strings.Contains(err.Error(), "and do the certificates fit?") {
		t.Error(err)
	}
}

// Whoever reaches the listener for other boxes can make handshakes fail. The lines about that have
// one text, so the log holds back what repeats.
func TestHandshakesThatFailAreOneLineOfTheLog(t *testing.T) {
	core, written := observer.New(zap.DebugLevel)
	s := NewForBoxes(nil, nil, zap.New(core), New(Config{Metrics: http.NotFoundHandler()}), neighbour.API{})
	for client := range 2 {
		s.http.ErrorLog.Printf("http: TLS handshake error from 10.0.0.1:%d: EOF", client)
	}
	if all := written.All(); len(all) != 2 || all[0].Message != all[1].Message || all[1].ContextMap()["error"] != "http: TLS handshake error from 10.0.0.1:1: EOF" {
		t.Errorf("%+v", all)
	}
}

// Whoever reaches the listener for other boxes cannot take the connections of others, and no file
// descriptors without bound.
func TestAnAddressHasSoManyConnectionsToTheListenerForBoxes(t *testing.T) {
	f := newFabric(t)
	b := f.boxes[0]
	id, err := tls.LoadX509KeyPair(b.files.Cert, b.files.Key)
	if err != nil {
		t.Fatal(err)
	}
	served := func(from string) bool {
		at := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := tls.DialWithDialer(&at, "tcp", b.at.Addr().String(), &tls.Config{
			Certificates: []tls.Certificate{id}, InsecureSkipVerify: true, // who answers is not the question
		})
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	var open []net.Conn
	for range mostOfAPeer {
		conn, err := net.Dial("tcp", b.at.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		open = append(open, conn)
	}
	for range 2 { // before the second one is closed, the first one was logged
		if served("127.0.0.1") {
			t.Error("one more connection of that address is served")
		}
	}
	if !served("127.0.0.2") {
		t.Error("another address is not served")
	}
	if n := b.Bounds.Counts()[bounds.BoxConnections]; n == 0 {
		t.Error("it is not counted")
	}
	open[0].Close()
	testlab.Eventually(t, testlab.Patience, "the address is served again when one of its connections has ended", func() bool { return served("127.0.0.1") }, nil)
}
