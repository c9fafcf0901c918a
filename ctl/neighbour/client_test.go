package neighbour

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/testlab/certs"
)

// authority signs the certificates of boxes.
type authority struct{ *certs.Authority }

func newAuthority(t *testing.T) authority {
	t.Helper()
	a, err := certs.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return authority{a}
}

// box writes the files of a box with the names.
func (a authority) box(t *testing.T, notAfter time.Time, names ...string) Files {
	t.Helper()
	cert, key, err := a.Issue(t.TempDir(), notAfter, names...)
	if err != nil {
		t.Fatal(err)
	}
	return Files{Cert: cert, Key: key, CA: a.Path}
}

var tomorrow = time.Now().Add(24 * time.Hour)

// listenWith answers over TLS with the files. The result has the name leaf2.
func listenWith(t *testing.T, f Files, handle http.HandlerFunc) Config {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", f.Server())
	if err != nil {
		t.Fatal(err)
	}
	return listenOn(t, l, handle)
}

func listenOn(t *testing.T, l net.Listener, handle http.HandlerFunc) Config {
	t.Helper()
	s := &http.Server{Handler: handle, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return Config{Name: "leaf2", URL: "https://" + l.Addr().String()}
}

func TestABoxAsksItsNeighbour(t *testing.T) {
	ca := newAuthority(t)
	var asked []string
	leaf2 := listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, r *http.Request) {
		name, err := PeerName(r.TLS)
		body, _ := io.ReadAll(r.Body)
		if !r.Close {
			t.Error("the connection is kept for further requests")
		}
		asked = append(asked, strings.Join([]string{name, r.Method, r.URL.String(), string(body)}, " "))
		if err != nil {
			t.Error(err)
		}
		switch r.Method {
		case http.MethodPut:
			io.WriteString(w, `{"version": 7, "link": {"ip": "10.9.0.2", "qpn": 5, "psn": 6}}`)
		case http.MethodGet:
			io.WriteString(w, `{"box": "leaf2", "group": {"name": "g1", "memberCount": 3, "waitingCount": 0, "state": "ready", "restored": false}}`)
		case http.MethodPost:
			io.WriteString(w, `{"name": "g1"}`)
		default:
			io.WriteString(w, `{"removed": "g1"}`)
		}
	})
	c := NewClient(ca.box(t, tomorrow, "leaf1", "other"), []Config{leaf2})
	answer, err := c.PutBranch(t.Context(), "leaf2", "g1", api.Branch{Version: 7})
	if err != nil || answer.Version != 7 || answer.Link != (api.LinkEnd{IP: "10.9.0.2", QPN: 5, PSN: 6}) {
		t.Errorf("%+v, %v", answer, err)
	}
	tree, err := c.Tree(t.Context(), "leaf2", "g1")
	if err != nil || tree.Box != "leaf2" || tree.Group.MemberCount != 3 {
		t.Errorf("%+v, %v", tree, err)
	}
	if err := c.DeleteBranch(t.Context(), "leaf2", "g1", 8); err != nil {
		t.Error(err)
	}
	if err := c.NotifyUpper(t.Context(), "leaf2", "g1"); err != nil {
		t.Error(err)
	}
	want := []string{"leaf1 PUT /v1/branches/g1 {", "leaf1 GET /v1/branches/g1 ", "leaf1 DELETE /v1/branches/g1?version=8 ", "leaf1 POST /v1/branches/g1 "}
	for i := range want {
		if i >= len(asked) || !strings.HasPrefix(asked[i], want[i]) {
			t.Errorf("asked %q", asked)
			break
		}
	}
	if len(asked) != 4 || !strings.Contains(asked[0], `"version":7`) {
		t.Errorf("asked %q", asked)
	}
}

// A peer is known by its certificate only.
func TestAPeerWithoutANameIsRefused(t *testing.T) {
	chain := [][]*x509.Certificate{{}}
	for _, c := range []struct {
		state *tls.ConnectionState
		name  string
		want  string
	}{
		{nil, "", "the peer has not presented a certificate"},
		{&tls.ConnectionState{}, "", "the peer has not presented a certificate"},
		{&tls.ConnectionState{VerifiedChains: chain, PeerCertificates: []*x509.Certificate{{}}}, "",
			"the peer's certificate has no DNS name; make one with the name of the box as subject alternative name"},
		{&tls.ConnectionState{VerifiedChains: chain, PeerCertificates: []*x509.Certificate{{DNSNames: []string{"a"}}}}, "a", ""},
		{&tls.ConnectionState{VerifiedChains: chain, PeerCertificates: []*x509.Certificate{{DNSNames: []string{"a", "b"}}}}, "a", ""},
	} {
		name, err := PeerName(c.state)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if name != c.name || got != c.want {
			t.Errorf("%q, %q; want %q, %q", name, got, c.name, c.want)
		}
	}
}

// What is wrong is named in one sentence.
func TestWhatANeighbourDoesWrongIsSaid(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	ours, withoutName := ca.box(t, tomorrow, "leaf1"), ca.box(t, tomorrow)
	fine := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) }
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	pair, err := tls.LoadX509KeyPair(withoutName.Cert, withoutName.Key)
	if err != nil {
		t.Fatal(err)
	}
	nameless, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	nobody := Config{Name: "leaf2", URL: "https://" + free.Addr().String()}
	for what, c := range map[string]struct {
		ours Files
		box  Config
		want string
	}{
		"nobody listens": {ours, nobody, "box leaf2 does not answer at URL (connect: connection refused); is rocastd running there, with api: in its config?"},
		"another box": {ours, listenWith(t, ca.box(t, tomorrow, "leaf3"), fine),
			"the box at URL has a certificate for leaf3 and not for leaf2; correct the url of the neighbour leaf2, or the certificate there"},
		"before trees": {ours, listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"error": {"kind": "not-found", "message": "there is no `+r.URL.Path+`; the paths begin with /v1/groups"}}`)
		}), "box leaf2 runs a version of rocast that knows no branches; run the same version on both boxes"},
		"another CA": {ours, listenWith(t, stranger.box(t, tomorrow, "leaf2"), fine),
			"the certificate of box leaf2 at URL is not valid with the CA " + ca.Path},
		"too old":          {ours, listenWith(t, Files{}, fine), "box leaf2 does not answer at URL"},
		"we are not known": {Files{Cert: stranger.box(t, tomorrow, "leaf1").Cert}, nobody, "api: read the certificate "},
		"a refusal": {ours, listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"error": {"kind": "exists", "message": "group g1 exists"}}`)
		}), "box leaf2 refuses: group g1 exists"},
		"no reason": {ours, listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
			"the program at URL answers 418 without a reason; is it rocastd of box leaf2?"},
		"no reason in JSON": {ours, listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, `{}`)
		}), "the program at URL answers 418 without a reason; is it rocastd of box leaf2?"},
		"no name": {ours, listenOn(t, nameless, fine),
			"the box at URL has a certificate for no name and not for leaf2; correct the url of the neighbour leaf2, or the certificate there"},
		"no URL": {ours, Config{Name: "leaf2", URL: "https://[::1"}, "box leaf2: parse "},
		"it hangs up in mid-answer": {ours, listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{}`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), "box leaf2 does not answer at URL (unexpected EOF); is rocastd running there, with api: in its config?"},
		"another version": {ours, listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"vers": 1}`) }),
			`box leaf2 answers in a way that this box does not understand (json: unknown field "vers"); run the same version of rocast on both`},
		"it hangs up": {ours, listenWith(t, ca.box(t, tomorrow, "leaf2"), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			"box leaf2 does not answer at URL (EOF); is rocastd running there, with api: in its config?"},
	} {
		_, err := NewClient(c.ours, []Config{c.box}).PutBranch(t.Context(), "leaf2", "g1", api.Branch{})
		if want := strings.ReplaceAll(c.want, "URL", c.box.URL); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", what, err, want)
		}
	}
	_, err = NewClient(ours, nil).Tree(t.Context(), "leaf2", "g1")
	if want := "box leaf2 is not a neighbour; add it to neighbours: in the config"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A box that trusts both CAs, and has a certificate of the wrong one, is refused by the other side.
func TestABoxWithoutAnAcceptedCertificateIsRefused(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	box := listenWith(t, ca.box(t, tomorrow, "leaf2"), func(http.ResponseWriter, *http.Request) { t.Error("the request was carried out") })
	foreign := stranger.box(t, tomorrow, "leaf1")
	both, err := os.ReadFile(stranger.Path)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(ca.Path)
	if err != nil {
		t.Fatal(err)
	}
	foreign.CA = filepath.Join(t.TempDir(), "both.pem")
	if err := os.WriteFile(foreign.CA, append(both, own...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = NewClient(foreign, []Config{box}).Tree(t.Context(), "leaf2", "g1")
	if want := "box leaf2 at " + box.URL + " does not accept the certificate " + foreign.Cert; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	// Without any certificate nobody gets in.
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(own)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(box.URL, "https://"), &tls.Config{RootCAs: pool, ServerName: "leaf2"})
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Error(err)
	}
}

func TestFilesThatCannotBeUsedAreNamed(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	good := ca.box(t, tomorrow, "leaf1")
	if name, err := good.Name(); err != nil || name != "leaf1" {
		t.Errorf("%q, %v", name, err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*Files)) Files { f := good; change(&f); return f }
	for want, f := range map[string]Files{
		"api: read the certificate /none and its key ":                                with(func(f *Files) { f.Cert = "/none" }),
		"api: read the CA's certificate: open /none":                                  with(func(f *Files) { f.CA = "/none" }),
		"api: " + empty + " holds no certificate; write the PEM form of the CA's":     with(func(f *Files) { f.CA = empty }),
		" has no DNS name; make one with the name of this box as subject alternative": ca.box(t, tomorrow),
		" is not valid with the CA " + stranger.Path:                                  with(func(f *Files) { f.CA = stranger.Path }),
		"so no other box would accept it":                                             ca.box(t, time.Now().Add(-time.Minute), "leaf1"),
	} {
		if _, err := f.Name(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
}

// A certificate that is replaced counts from the next connection on.
func TestACertificateMayBeReplacedWhileTheDaemonRuns(t *testing.T) {
	ca := newAuthority(t)
	files := ca.box(t, tomorrow, "leaf3")
	box := listenWith(t, files, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) })
	c := NewClient(ca.box(t, tomorrow, "leaf1"), []Config{box})
	if _, err := c.Tree(t.Context(), "leaf2", "g1"); err == nil {
		t.Error("leaf3 is taken for leaf2")
	}
	next := ca.box(t, tomorrow, "leaf2")
	for from, to := range map[string]string{next.Cert: files.Cert, next.Key: files.Key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Tree(t.Context(), "leaf2", "g1"); err != nil {
		t.Error(err)
	}
}

func TestARequestEndsWithItsContext(t *testing.T) {
	ca := newAuthority(t)
	ended := make(chan struct{})
	box := listenWith(t, ca.box(t, tomorrow, "leaf2"), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(ended) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := NewClient(ca.box(t, tomorrow, "leaf1"), []Config{box}).Tree(ctx, "leaf2", "g1")
	if err == nil || !strings.Contains(err.Error(), "does not answer at") {
		t.Error(err)
	}
	<-ended // the asked box hears of it
}

// The state of thousands of groups may be due at one time, and a box serves only so many
// connections from one address: what is more waits here, and what is for another box does not.
func TestABoxIsNotAskedTooOftenAtOnce(t *testing.T) {
	const more = 8
	ca := newAuthority(t)
	var inside, most atomic.Int64
	entered, leave, errs := make(chan struct{}), make(chan struct{}), make(chan error, MostAtOnce+more)
	leaf2 := listenWith(t, ca.box(t, tomorrow, "leaf2"), func(w http.ResponseWriter, _ *http.Request) {
		n := inside.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		entered <- struct{}{}
		<-leave
		inside.Add(-1)
		io.WriteString(w, `{}`)
	})
	leaf3 := listenWith(t, ca.box(t, tomorrow, "leaf3"), func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) })
	leaf3.Name = "leaf3"
	c := NewClient(ca.box(t, tomorrow, "leaf1"), []Config{leaf2, leaf3})
	for range MostAtOnce + more {
		go func() {
			_, err := c.Tree(t.Context(), "leaf2", "g1")
			errs <- err
		}()
	}
	for range MostAtOnce {
		<-entered
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Tree(over, "leaf2", "g1"); err == nil || !strings.Contains(err.Error(), "box leaf2 does not answer at") {
		t.Error(err)
	}
	if _, err := c.Tree(t.Context(), "leaf3", "g1"); err != nil {
		t.Error(err)
	}
	for range more {
		leave <- struct{}{}
		<-entered // one that had to wait
	}
	for range MostAtOnce {
		leave <- struct{}{}
	}
	for range MostAtOnce + more {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n != MostAtOnce {
		t.Errorf("%d requests were under way at once, want %d", n, MostAtOnce)
	}
}
