package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/logs"
	"github.com/rocast/rocast/internal/testlab"
)

// freePort is a TCP port of the loopback that nothing listens on.
func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func withMetrics(t *testing.T) config.Config {
	t.Helper()
	c := testConfig(t)
	c.Metrics = freePort(t)
	return c
}

// get returns the status and the text of an answer; 0: nothing answers.
func get(url string) (status int, text string) {
	answer, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func TestTheDaemonServesMetricsHealthAndReadiness(t *testing.T) {
	c := withMetrics(t)
	client, stop := start(t, c, twin)
	url := "http://" + c.Metrics.String()
	testlab.Eventually(t, testlab.Patience, "the box is ready", func() bool { status, _ := get(url + "/readyz"); return status == http.StatusOK }, nil)
	if _, err := client.CreateGroup(t.Context(), []byte(notOwned)); err != nil {
		t.Fatal(err)
	}
	if status, text := get(url + "/readyz"); status != http.StatusServiceUnavailable || !strings.HasPrefix(text, "group g1 is waiting: 198.51.100.1: ") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	if status, text := get(url + "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, text)
	}
	if status, text := get(url + "/metrics"); status != http.StatusOK || !strings.Contains(text, `rocast_groups{state="waiting"} 1`) {
		t.Errorf("/metrics: %d %s", status, text)
	}
	for path, want := range map[string]string{"/ui/": "<title>rocast</title>", "/ui/page.js": "/v1/traffic", "/v1/traffic": `"state":"waiting"`, "/metrics": `rocast_member_trouble{`} {
		if status, text := get(url + path); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := get(url + "/v1/groups/g1"); status != http.StatusNotFound {
		t.Errorf("what has R_Keys is served: %d %s", status, text)
	}
	stop()
	if status, _ := get(url + "/healthz"); status != 0 {
		t.Error("it still listens")
	}
}

// A program that has the port takes no group down.
func TestATakenMetricsPortIsLogged(t *testing.T) {
	c := testConfig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.Metrics = netip.MustParseAddrPort(l.Addr().String())
	core, written := observer.New(zap.ErrorLevel)
	s, err := open(c, &logs.Log{Logger: zap.New(core)}, twin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.run(ctx) }()
	said := func() bool {
		return written.FilterMessageSnippet("rocastd carries groups without them").FilterField(zap.Stringer("listen", c.Metrics)).Len() == 1
	}
	testlab.Eventually(t, testlab.Patience, "the log says that the port is taken", said, nil)
	if _, err := client.New(c.Socket).CreateGroup(ctx, []byte(notOwned)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
