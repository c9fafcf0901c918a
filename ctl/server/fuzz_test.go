package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/rocast/rocast/ctl/api"
)

// Bodies as users send them. The perftest service really listens on its group IP, so the IP is one
// of the loopback's.
const (
	newReceiver = "  - {ip: 10.77.0.3, qpn: 19, psn: 7, regions: [{va: 0x7f1000000000, length: 4096, rkey: 0x1235}]}\n"
	g2          = `name: g2
addressing: virtual-qpn
ip: 10.77.0.2
qpn: 0x500
mtu: 512
ack: quorum 1
nak: lower
silent-after: 200ms
evict: true
credits: merge
members:
  - {ip: 10.77.0.1, qpn: 21, psn: 0xfffffe, role: source}
  - {ip: 10.77.0.2, qpn: 22, psn: 5}
`
	upRequest = `{"groupIP": "127.0.0.210", "receivers": ["10.77.0.2"], "port": 18598}`
)

// The corpus uses indexes of bodies and asked: append new ones at the end.
var bodies = []string{
	"", "{}", "null", g1, g1 + newReceiver, g2, upRequest,
	strings.Replace(g1, "psn: 1000, role: source", "psn: 1000, sendPSN: 3, role: both", 1),
	strings.Replace(g1, "name: g1", "name: g3", 1), // its IP and QPN are taken
	strings.Replace(g1, "name: g1\nip: 10.77.0.100", "name: g4\naddressing: switch-ip\nip: 10.77.0.101", 1),
	`{"groupIP": "10.77.0.100", "receivers": ["10.77.0.2", "10.77.0.9"]}`,
	`{"groupIP": "127.0.0.210", "receivers": ["10.77.0.8", "10.77.0.9"]}`, // neither can be reached
	g2 + "port: 1\n", "name: &a g1\nip: *a\n", "name: g1\n---\nname: g2\n", "\xff\xfe\x00", "{\"name\": [[[[",
	`{"ip": "10.77.0.2", "qpn": 18, "state": "RTR", "psn": 5, "remoteQPN": 1, "mtu": 1024}`,
	`{"level": "debug"}`,
}

// asked has every route, some paths that do not exist, and methods that a route does not support.
// The routes that read a body come first.
var asked = []struct{ method, path string }{
	{"POST", "/v1/groups"}, {"PUT", "/v1/groups/g1"}, {"PUT", "/v1/groups/none"}, {"POST", "/v1/perftest"},
	{"GET", "/v1/groups"}, {"GET", "/v1/groups/g1"}, {"GET", "/v1/groups/none"}, {"GET", "/v1/perftest"}, {"GET", "/v1/ports"},
	{"GET", "/v1/stats"}, {"GET", "/v1/traffic"}, {"GET", "/v1/traffic/g1"}, {"GET", "/v1/traffic/none"}, {"GET", "/v1/status"}, {"GET", "/v1/features"}, {"GET", "/v1/version"}, {"GET", "/metrics"},
	{"DELETE", "/v1/groups/g1"}, {"DELETE", "/v1/groups/none"}, {"DELETE", "/v1/groups/%0a"},
	{"DELETE", "/v1/perftest/127.0.0.210"}, {"DELETE", "/v1/perftest/fe80::1%25e%0a"}, {"DELETE", "/v1/perftest/x"},
	{"POST", "/v1/groups/%0a"}, {"PATCH", "/v1/groups"}, {"POST", "/v1/stats"}, {"POST", "/metrics"}, {"PUT", "/v2/%0d%0a"}, {"POST", "//v1/groups"},
	{"GET", "/v1/events?seq=1"}, {"GET", "/v1/events?seq=x"}, {"POST", "/v1/groups/g1/ready"}, {"POST", "/v1/groups/none/ready"},
	{"GET", "/v1/log"}, {"PUT", "/v1/log"},
}

// edited returns a body in which the bytes at offset at are replaced. Small changes of a valid body
// get past the parser; the empty body gives any bytes.
func edited(body string, at uint16, cut uint8, put []byte) []byte {
	from := min(int(at), len(body))
	to := min(from+int(cut), len(body))
	return slices.Concat([]byte(body[:from]), put, []byte(body[to:]))
}

// FuzzRequest sends any request. No request makes the daemon panic or return an internal error. A
// request that fails returns one sentence and changes nothing. A user without the right to change
// groups changes nothing, and a user without the right to see R_Keys sees none. Everything that a
// request made can be removed without a trace.
func FuzzRequest(f *testing.F) {
	for i := range asked {
		for j := range bodies {
			if i < 4 || strings.HasSuffix(asked[i].path, api.ReadyPath) || bodies[j] == g1 {
				f.Add(uint8(i), uint8(j), uint16(0), uint8(0), []byte{})
			}
		}
	}
	h := newHall(f)
	f.Fuzz(func(t *testing.T, ask, from uint8, at uint16, cut uint8, put []byte) {
		a, body := asked[int(ask)%len(asked)], edited(bodies[int(from)%len(bodies)], at, cut, put)
		for _, p := range []peer{{uid: 1000}, {uid: 1001, change: true}, root} {
			answer := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(withPeer(t.Context(), p), a.method, a.path, bytes.NewReader(body))
			h.ServeHTTP(answer, request)
			mayChange := answer.Code/100 == 2 && p.change && a.method != http.MethodGet
			err := errors.Join(judge(answer, p), h.settle(t, mayChange))
			if err != nil {
				t.Errorf("%s %s of %v with %q: %d %s: %v", a.method, a.path, p, body, answer.Code, answer.Body, err)
			}
		}
	})
}

// hall is a server with its test doubles, and its footprint while g1 is the only group.
type hall struct {
	http.Handler
	*Server
	twins
	clean string
}

func newHall(t testing.TB) *hall {
	s, w := newServer(t)
	h := &hall{Handler: s.routes(), Server: s, twins: w}
	h.reset(t)
	h.clean = h.footprint()
	return h
}

// settle checks that only permitted changes were made, and that they can be reversed.
func (h *hall) settle(t testing.TB, mayChange bool) error {
	now := h.footprint()
	if now == h.clean {
		return nil
	}
	h.reset(t)
	if after := h.footprint(); after != h.clean {
		return fmt.Errorf("it left\n%s where there was\n%s", after, h.clean)
	}
	if !mayChange {
		return fmt.Errorf("it changed\n%s to\n%s", h.clean, now)
	}
	return nil
}

// footprint lists everything that a request can leave behind: groups, perftest services, table,
// addresses, tracked hosts and files.
func (h *hall) footprint() string {
	b := new(strings.Builder)
	show := func(v any) {
		text, err := json.Marshal(v)
		fmt.Fprintln(b, string(text), err)
	}
	for _, g := range h.Control.Groups().Groups {
		shown, err := h.Control.Group(g.Name)
		show(shown)
		fmt.Fprintln(b, err)
	}
	show(h.Services.Perftests())
	for g := range h.sw.Table().All {
		fmt.Fprintln(b, g.Name, len(g.Paths))
	}
	fmt.Fprintln(b, h.addresses, h.hops.Tracked())
	files, _ := filepath.Glob(filepath.Join(h.dir, "groups", "*"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		fmt.Fprintf(b, "%s %q %v\n", filepath.Base(file), text, err)
	}
	return b.String()
}

// reset removes everything and creates g1.
func (h *hall) reset(t testing.TB) {
	t.Helper()
	for _, g := range h.Control.Groups().Groups {
		if err := h.Control.Remove(g.Name); err != nil {
			t.Error(err)
		}
	}
	for _, p := range h.Services.Perftests().Perftests {
		if err := h.Services.PerftestDown(p.GroupIP); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.Control.Create(t.Context(), []byte(g1)); err != nil {
		t.Error(err)
	}
}

// maxSentenceBytes bounds an error: the longest value with every byte escaped, and the text around
// it.
const maxSentenceBytes = 5000

// judge checks an answer against the rules that every client relies on.
func judge(answer *httptest.ResponseRecorder, p peer) error {
	switch {
	case !p.secretsToo && strings.Contains(answer.Body.String(), `"rkey":`):
		return errors.New("an R_Key is shown")
	case answer.Code/100 == 5:
		return errors.New("the daemon takes the fault on itself")
	case answer.Code/100 < 4:
		return nil
	}
	var got api.ErrorBody
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || got.Error == nil {
		return errors.New("no error in JSON")
	}
	switch message := got.Error.Message; {
	case got.Error.Status() != answer.Code && (answer.Code != http.StatusMethodNotAllowed || got.Error.Kind != api.BadRequest):
		return fmt.Errorf("kind %s goes with status %d", got.Error.Kind, got.Error.Status())
	case message == "" || message != strings.TrimSpace(message) || strings.HasSuffix(message, "."):
		return errors.New("no sentence as ours are")
	case strings.ContainsFunc(message, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("not one line of text")
	case len(message) > maxSentenceBytes:
		return fmt.Errorf("%d bytes are no sentence", len(message))
	}
	return nil
}
