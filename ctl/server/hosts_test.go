package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
)

// lobby answers hosts with what they have asked.
type lobby struct {
	left []string
	came chan struct{} // closed by a question that waits
}

func (h *lobby) Join(ctx context.Context, host netip.Addr, name string, r api.HostRequest, seen string) (api.HostGroup, error) {
	deadline, waits := ctx.Deadline()
	if r.Role == "wait" {
		close(h.came)
		<-ctx.Done()
		return api.HostGroup{Name: name, Reason: fmt.Sprint(context.Cause(ctx))}, nil
	}
	if r.Role == "sink" {
		return api.HostGroup{}, api.Errorf(api.BadRequest, "no such role")
	}
	return api.HostGroup{Name: name, IP: host.String(), State: seen, Reason: fmt.Sprint(waits, time.Until(deadline) > 15*time.Second)}, nil
}

func (h *lobby) Leave(_ context.Context, host netip.Addr, name string) error {
	h.left = append(h.left, fmt.Sprint(host, " leaves ", name))
	return nil
}

func (h *lobby) End(_ context.Context, host netip.Addr, name string, tell bool) error {
	h.left = append(h.left, fmt.Sprint(host, " ends ", name, " ", tell))
	return nil
}

// forHosts runs a server for hosts until the test ends, and returns its URL and its log.
func forHosts(t *testing.T, h Hosts) (url string, logs *observer.ObservedLogs, stop func()) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- NewForHosts(h, nil, zap.New(core), nil).Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), logs, stop
}

func request(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, strings.TrimSpace(string(text))
}

// A program speaks for the IP from which it comes, whatever it says.
func TestAHostSpeaksForItsIP(t *testing.T) {
	h := &lobby{}
	url, logs, _ := forHosts(t, h)
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"POST", "/v1/hosts/g1?wait=20&seen=x", `{"role": "source"}`, 200,
			`{"name":"g1","state":"x","version":"","ip":"127.0.0.1","clearToSend":false,"degraded":false,"reason":"true true"}`},
		{"POST", "/v1/hosts/g1", `{"role": "sink"}`, 400, `{"error":{"kind":"bad-request","message":"no such role"}}`},
		{"POST", "/v1/hosts/g1", `{"ip": "10.77.0.9"}`, 400, `{"error":{"kind":"bad-request","message":"the request cannot be read; write role, qpn, psn, members, mtu and regions, with VAs and R_Keys like 0x10000 in quotes"}}`},
		{"POST", "/v1/hosts/g1", `{"role": "source"` + strings.Repeat(" ", maxHostRequest) + `}`, 413, `{"error":{"kind":"too-large","message":"the request is longer than 4096 bytes, which no host needs; write one queue pair"}}`},
		{"POST", "/v1/hosts/g1?wait=21", `{}`, 400, `{"error":{"kind":"bad-request","message":"wait is \"21\"; write a whole number up to 20"}}`},
		{"DELETE", "/v1/hosts/g1", "", 200, `{"removed":"g1"}`},
		{"DELETE", "/v1/hosts/g2?whole=1", "", 200, `{"removed":"g2"}`},
		{"DELETE", "/v1/hosts/g3?whole=1&tell=1", "", 200, `{"removed":"g3"}`},
		{"DELETE", "/v1/hosts/g3?tell=1", "", 400, `{"error":{"kind":"bad-request","message":"tell says that the group ends; write whole=1 too"}}`},
		{"DELETE", "/v1/hosts/g3?whole=1&tell=x", "", 400, `{"error":{"kind":"bad-request","message":"tell is \"x\"; write a whole number up to 1"}}`},
		{"DELETE", "/v1/hosts/g2?whole=2", "", 400, `{"error":{"kind":"bad-request","message":"whole is \"2\"; write a whole number up to 1"}}`},
		{"GET", "/v1/groups", "", 404, `{"error":{"kind":"not-found","message":"there is no /v1/groups for hosts; the paths begin with /v1/hosts or /v1/edge"}}`},
	} {
		if status, answer := request(t, c.method, url+c.path, c.body); status != c.status || answer != c.answer {
			t.Errorf("%s %s: %d %s\nwant %d %s", c.method, c.path, status, answer, c.status, c.answer)
		}
	}
	if got := strings.Join(h.left, ", "); got != "127.0.0.1 leaves g1, 127.0.0.1 ends g2 false, 127.0.0.1 ends g3 true" {
		t.Error(got)
	}
	if n := logs.FilterMessage("a host was refused").Len(); n != 1 {
		t.Errorf("%d refusals in the log", n)
	}
}

// A web site that lets its own name lead here has that name in its requests.
func TestHostsAskByAnAddress(t *testing.T) {
	url, _, _ := forHosts(t, &lobby{})
	for host, want := range map[string]int{
		"evil.example": 403, "evil.example:7472": 403, "127.0.0.1.evil.example": 403, "10.77.0.254:7472": 200, "10.77.0.254": 200, "[fd77::1]:7472": 200,
		"fd77::1": 200, // as librocast writes it
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/hosts/g1", strings.NewReader(`{"role": "source"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, a.StatusCode, want)
		}
	}
}

// A page in a browser on a host can send texts and forms anywhere, and must not speak for the host.
func TestAPageInABrowser(t *testing.T) {
	url, _, _ := forHosts(t, &lobby{})
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
		a, err := http.Post(url+"/v1/hosts/g1", kind, strings.NewReader(`{"role": "source"}`))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if a.StatusCode != 400 || !strings.Contains(string(text), "; write application/json") {
			t.Errorf("%q: %d %s", kind, a.StatusCode, text)
		}
	}
}

// One host cannot take the connections of others, nor all hosts the daemon's file descriptors.
func TestHostsHaveSoManyConnections(t *testing.T) {
	met := bounds.New(zap.NewNop())
	l := NewForHosts(&lobby{}, nil, zap.NewNop(), met).bound(nil).(*crowd)
	for range mostOfAHost {
		if !l.seats.Take("10.77.0.1") {
			t.Fatal("a connection is refused before there are too many")
		}
	}
	if l.seats.Take("10.77.0.1") {
		t.Error("one host has too many connections")
	}
	all := mostOfAHost
	for i := 0; l.seats.Take(fmt.Sprint("10.77.1.", i/mostOfAHost)); i++ {
		all++
	}
	if all != mostOfHosts {
		t.Errorf("%d connections of all hosts; %d wanted", all, mostOfHosts)
	}
	l.seats.Free("10.77.0.1")
	if !l.seats.Take("10.77.1.200") {
		t.Error("no other connection is served after one has ended")
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	l.Listener = &once{conn: from{ours}, end: make(chan struct{})}
	go func() {
		_, _ = io.ReadAll(theirs) // until the listener closes it
		l.Listener.Close()
	}()
	if conn, err := l.Accept(); err == nil || conn != nil {
		t.Errorf("%v, %v: one more is served", conn, err)
	}
	if n := met.Counts()[bounds.HostConnections]; n != 1 {
		t.Errorf("counted %d", n)
	}
}

// from is a connection from 10.77.0.1.
type from struct{ net.Conn }

func (from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 77, 0, 1), Port: 5} }

// once is a listener with one connection.
type once struct {
	conn net.Conn
	end  chan struct{}
}

func (o *once) Accept() (conn net.Conn, err error) {
	if conn, o.conn = o.conn, nil; conn != nil {
		return conn, nil
	}
	<-o.end
	return nil, net.ErrClosed
}

func (o *once) Close() error   { close(o.end); return nil }
func (o *once) Addr() net.Addr { return nil }

// A question that waits ends when the daemon stops, and is not taken for one whose host has gone.
func TestHostsThatWaitWhenTheDaemonStops(t *testing.T) {
	h := &lobby{came: make(chan struct{})}
	url, _, stop := forHosts(t, h)
	go func() {
		<-h.came
		stop()
	}()
	if status, answer := request(t, "POST", url+"/v1/hosts/g1?wait=20", `{"role": "wait"}`); status != 200 || !strings.Contains(answer, "the daemon stops") {
		t.Errorf("%d %s", status, answer)
	}
}
