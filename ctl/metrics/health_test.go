package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/internal/testlab"
)

// box is a Box with the given answers.
type box struct {
	source
	stuck  error
	status api.Status
}

func (b box) Alive() error       { return b.stuck }
func (b box) Status() api.Status { return b.status }

func ask(h http.Handler, method, path string) (status int, text string) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer.Code, answer.Body.String()
}

func TestHealthAndReadiness(t *testing.T) {
	degraded := api.Problem{Of: api.OfGroup, Name: "g1", State: api.Degraded, Reason: "slow"}
	gone := api.Problem{Of: api.OfPort, Name: "eth2", State: api.PortGone, Reason: "no interface has this name", Blocks: true}
	worker := api.Problem{Of: api.OfWorker, State: api.Stuck, Reason: "a thread", Blocks: true}
	for _, c := range []struct {
		box  box
		path string
		want int
		text string
	}{
		{box{status: api.Status{Ready: true}}, "/healthz", 200, "ok\n"},
		{box{status: api.Status{Ready: false}}, "/healthz", 200, "ok\n"}, // a restart would not help
		{box{stuck: errors.New("a thread is stuck")}, "/healthz", 503, "a thread is stuck\n"},
		{box{status: api.Status{Ready: true, Problems: []api.Problem{degraded}}}, "/readyz", 200, "ready\ngroup g1 is degraded: slow\n"},
		{box{status: api.Status{Ready: true}}, "/readyz", 200, "ready\n"},
		{box{status: api.Status{Problems: []api.Problem{gone, degraded}}}, "/readyz", 503, "port eth2 is gone: no interface has this name\n"},
		{box{status: api.Status{Problems: []api.Problem{worker}, More: 4}}, "/readyz", 503, "worker is stuck: a thread\nand up to 4 more\n"},
		{box{status: api.Status{Problems: []api.Problem{worker}, More: 1}}, "/readyz", 503, "worker is stuck: a thread\nand up to 1 more\n"},
		{box{}, "/", 404, "404 page not found\n"},
	} {
		if status, text := ask(Routes(c.box, http.NotFoundHandler()), "GET", c.path); status != c.want || text != c.text {
			t.Errorf("%s of %+v: %d %q, want %d %q", c.path, c.box, status, text, c.want, c.text)
		}
	}
	if status, _ := ask(Routes(box{}, http.NotFoundHandler()), "POST", "/readyz"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
}

// What a proxy has kept says nothing about the box of now.
func TestHealthIsNotKept(t *testing.T) {
	w := httptest.NewRecorder()
	Routes(box{}, http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", HealthPath, nil))
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q", got)
	}
}

// A limit of 0 is none: whoever connects and is silent would keep a connection for ever.
func TestEveryWaitIsLimited(t *testing.T) {
	for i, limit := range []time.Duration{requestWithin, answerWithin, idleWithin, readyWithin, scrapeWithin, openAgainAfter} {
		if limit < time.Second || limit > 5*time.Minute {
			t.Errorf("limit %d is %v", i, limit)
		}
	}
}

func TestAScrapeHasNoLint(t *testing.T) {
	status, text := ask(Routes(box{}, Handler(source{}, func() bool { return false })), "GET", api.MetricsPath)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{"go_goroutines ", "process_resident_memory_bytes ", "rocast_build_info{"} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
}

// The port may be taken when the daemon starts. Groups do not wait for it.
func TestAListenerIsOpenedOnceItsPortIsFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := taken.Addr().(*net.TCPAddr).AddrPort()
	core, logs := observer.New(zap.DebugLevel)
	l := Listener{At: netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), Handler: Routes(box{}, http.NotFoundHandler()), Log: zap.New(core), again: time.Millisecond}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Serve(ctx) }()
	tried := func() bool { return logs.FilterMessage("metrics cannot be served yet").Len() > 2 }
	testlab.Eventually(t, testlab.Patience, "the listener tries several times", tried, nil)
	taken.Close()
	url := "http://" + l.At.String() + HealthPath
	testlab.Eventually(t, testlab.Patience, "the listener answers", func() bool {
		answer, err := http.Get(url)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text) == "ok\n"
	}, nil)
	stop()
	<-done
	if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
		t.Errorf("%d errors are logged, want 1", n)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("it still listens")
	}
}

// A name of a web site that leads to the loopback has no answer.
func TestAListenerOfThisMachineIsAskedByItsAddress(t *testing.T) {
	here, everywhere := netip.MustParseAddrPort("127.0.0.1:7470"), netip.MustParseAddrPort("[::]:7470")
	ask := func(at netip.AddrPort, host string) (int, string) {
		r := httptest.NewRequest("GET", HealthPath, nil)
		r.Host = host
		w := httptest.NewRecorder()
		named(at, Routes(box{}, http.NotFoundHandler())).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, host := range []string{"127.0.0.1:7470", "127.0.0.1", "localhost:7470", "localhost", "[::1]:7470", "[::1]", "10.0.0.1:80"} {
		if status, text := ask(here, host); status != http.StatusOK {
			t.Errorf("%s: %d %s", host, status, text)
		}
	}
	for _, host := range []string{"evil.example:7470", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7470", ""} {
		if status, text := ask(here, host); status != http.StatusMisdirectedRequest || !strings.Contains(text, "is not a name of this listener; ask http://127.0.0.1:7470") {
			t.Errorf("%s: %d %s", host, status, text)
		}
		if status, _ := ask(everywhere, host); status != http.StatusOK {
			t.Errorf("%s of a listener for other machines: %d", host, status)
		}
	}
	if status, _ := ask(netip.MustParseAddrPort("[::1]:7470"), "evil.example"); status != http.StatusMisdirectedRequest {
		t.Errorf("on ::1: %d", status)
	}
}

// Connections that are held open do not keep the question about health from its answer, neither
// those of its own address nor those of many others: the oldest ones are closed.
func TestHealthIsAnsweredBesideManyConnections(t *testing.T) {
	conns, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	met := bounds.New(zap.NewNop())
	l := Listener{At: netip.MustParseAddrPort("127.0.0.1:1"), Handler: Routes(box{}, http.NotFoundHandler()), Log: zap.NewNop(), Bounds: met}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.serve(ctx, conns) }()
	connect := func(from int) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(from))}}
		conn, err := d.Dial("tcp", conns.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	healthy := func(from int) {
		t.Helper()
		conn := connect(from)
		_ = conn.SetDeadline(time.Now().Add(testlab.Patience))
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
		if answer, _ := io.ReadAll(conn); !strings.HasSuffix(string(answer), "\r\nok\n") {
			t.Errorf("from 127.0.0.%d: %q", from, answer)
		}
	}
	quiet := connect(99)
	var first net.Conn
	for range mostOfAnAddress {
		if conn := connect(1); first == nil {
			first = conn
		}
	}
	healthy(1)
	if n, err := first.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the oldest one is open: %d, %v", n, err)
	}
	for from := range mostOfAll/mostOfAnAddress + 1 {
		for range mostOfAnAddress {
			connect(2 + from)
		}
	}
	for from := range 20 {
		healthy(40 + from)
	}
	_, _ = io.WriteString(quiet, "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
	if answer, _ := io.ReadAll(quiet); !strings.HasSuffix(string(answer), "\r\nok\n") {
		t.Errorf("an address with one connection has lost it: %q", answer)
	}
	if n := met.Counts()[bounds.MetricsConnections]; n == 0 {
		t.Error("nothing is counted")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
