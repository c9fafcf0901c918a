package server

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/api"
)

// asker remembers for which host the server asks.
type asker struct {
	host     netip.Addr
	question api.EdgeQuestion
}

func (a *asker) AskEdge(_ context.Context, host netip.Addr, q api.EdgeQuestion) (api.EdgeAnswer, error) {
	a.host, a.question = host, q
	return api.EdgeAnswer{Number: 7, Mappings: []api.EdgeMapping{}}, nil
}

// forEdges returns the URL of a server for hosts whose edges ask e.
func forEdges(t *testing.T, e Edges) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- NewForHosts(&lobby{}, e, zap.NewNop(), nil).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// An edge asks from the IP from which it comes. For which host, the box's config has to allow.
func TestAnEdgeAsksForItsIP(t *testing.T) {
	a := &asker{}
	url := forEdges(t, a)
	for _, c := range []struct {
		method, body string
		status       int
		answer       string
	}{
		{"POST", `{"protocol": 1, "have": 5, "waitMs": 20, "attach": "tcx", "mapped": 3, "host": "10.77.0.9"}`, 200, `{"number":7,"mappings":[]}`},
		{"POST", `{"protocol": "1"}`, 400, "the question cannot be read: "},
		{"POST", `{"protocol": 1` + strings.Repeat(" ", maxEdgeRequest) + `}`, 413, "the request is longer than 16384 bytes, which no edge needs"},
		{"GET", "", 405, ""},
	} {
		if status, answer := request(t, c.method, url+api.EdgePath, c.body); status != c.status || !strings.Contains(answer, c.answer) {
			t.Errorf("%s %.40s: %d %s\nwant %d %s", c.method, c.body, status, answer, c.status, c.answer)
		}
	}
	for text, want := range map[string]int{"1000000000000": 20_000, "20000": 20_000, "-1": 0, "20": 20} {
		request(t, "POST", url+api.EdgePath, `{"protocol": 1, "have": 5, "attach": "tcx", "mapped": 3, "waitMs": `+text+"}")
		if a.question.Wait != want {
			t.Errorf("a question that waits %s ms may wait %d", text, a.question.Wait)
		}
	}
	request(t, "POST", url+api.EdgePath, `{"protocol": 1, "have": 5, "waitMs": 20, "attach": "tcx", "mapped": 3}`)
	want := api.EdgeQuestion{Protocol: 1, Have: 5, Wait: 20, Attach: "tcx", Mapped: 3}
	if a.host != netip.MustParseAddr("127.0.0.1") || a.question != want {
		t.Errorf("asked for %v: %+v", a.host, a.question)
	}
	request(t, "POST", url+api.EdgePath, `{"protocol": 1, "have": 5, "waitMs": 20, "attach": "tcx", "mapped": 3, "host": "10.77.0.9"}`)
	want.Host = netip.MustParseAddr("10.77.0.9")
	if a.host != netip.MustParseAddr("127.0.0.1") || a.question != want {
		t.Errorf("asked for %v: %+v", a.host, a.question)
	}
}
