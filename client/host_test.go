package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

// hosts answers like a box whose group gets on by one state with each question.
type hosts struct {
	t      *testing.T
	states []HostGroup
	asked  []string
	// secrets are what the questions show.
	secrets []string
	hang    func() // called where no state is left
}

func (h *hosts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request HostRequest
	_ = json.NewDecoder(r.Body).Decode(&request)
	ip, _, _ := strings.Cut(r.RemoteAddr, ":")
	if r.Method == http.MethodDelete {
		h.asked = append(h.asked, fmt.Sprint(r.Method, " ", r.URL, " from ", ip))
		_ = json.NewEncoder(w).Encode(api.Removed{Name: "g1"})
		return
	}
	h.asked = append(h.asked, fmt.Sprint(r.Method, " ", r.URL.Path, " seen ", r.URL.Query().Get("seen"), " from ", ip, " ready ", request.Ready, " QPN ", request.QPN))
	h.secrets = append(h.secrets, request.Secret)
	if len(h.states) == 0 {
		h.hang()
		<-r.Context().Done()
		return
	}
	_ = json.NewEncoder(w).Encode(h.states[0])
	h.states = h.states[1:]
}

func newHosts(t *testing.T, states ...HostGroup) (*hosts, *Host) {
	t.Helper()
	h := &hosts{t: t, states: states}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return h, NewHost(netip.MustParseAddrPort(strings.TrimPrefix(s.URL, "http://")), netip.MustParseAddr("127.0.0.2"))
}

func TestAHostJoinsAndLeaves(t *testing.T) {
	box, h := newHosts(t,
		HostGroup{Name: "g1", State: api.HostGathering, Version: "a", Came: []string{"127.0.0.2"}},
		HostGroup{Name: "g1", State: api.HostRunning, Version: "b", QPN: 77},
		HostGroup{Name: "g1", State: api.HostRunning, Version: "b"},
		HostGroup{Name: "g1", State: api.HostRunning, Version: "c", ClearToSend: true},
		HostGroup{Name: "g1", State: api.HostRunning, Version: "c"},
		HostGroup{Name: "g1", State: api.HostRunning, Version: "d", Degraded: true},
	)
	own := HostRequest{Role: "source", QPN: 18, Members: 2, MTU: 1024}
	if g, err := h.Join(t.Context(), "g1", own); err != nil || g.QPN != 77 {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err := h.Ready(t.Context(), "g1", own); err != nil || !g.ClearToSend {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err := h.Follow(t.Context(), "g1", own, "c"); err != nil || !g.Degraded {
		t.Errorf("%+v, %v", g, err)
	}
	if err := h.Leave(t.Context(), "g1"); err != nil {
		t.Error(err)
	}
	if err := h.End(t.Context(), "g2"); err != nil {
		t.Error(err)
	}
	want := []string{
		"POST /v1/hosts/g1 seen  from 127.0.0.2 ready false QPN 18",
		"POST /v1/hosts/g1 seen a from 127.0.0.2 ready false QPN 18",
		"POST /v1/hosts/g1 seen  from 127.0.0.2 ready true QPN 18",
		"POST /v1/hosts/g1 seen b from 127.0.0.2 ready true QPN 18",
		"POST /v1/hosts/g1 seen  from 127.0.0.2 ready true QPN 18",
		"POST /v1/hosts/g1 seen c from 127.0.0.2 ready true QPN 18",
		"DELETE /v1/hosts/g1 from 127.0.0.2",
		"DELETE /v1/hosts/g2?whole=1&tell=1 from 127.0.0.2",
	}
	if got := strings.Join(box.asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("asked\n%s", got)
	}
}

// A program whose time is over hears for whom the group waits.
func TestAHostThatWaitsInVain(t *testing.T) {
	for want, state := range map[string]HostGroup{
		"group g1 is not complete (context canceled): only these have come: 10.0.0.1 10.0.0.2": {Name: "g1", State: api.HostGathering, Came: []string{"10.0.0.1", "10.0.0.2"}},
		"group g1 is not complete (context canceled): 10.0.0.3 is away":                        {Name: "g1", State: api.HostRunning, Reason: "10.0.0.3 is away"},
	} {
		box, h := newHosts(t, state)
		ctx, cancel := context.WithCancel(t.Context())
		box.hang = cancel
		_, err := h.Ready(ctx, "g1", HostRequest{})
		if err == nil || err.Error() != want || KindOf(err) != api.Unavailable {
			t.Errorf("\ngot  %v\nwant %s", err, want)
		}
	}
}

// A member that waits hears that its group has ended, and one that follows the group too.
func TestAGroupThatHasEnded(t *testing.T) {
	const reason = "10.0.0.1 has left, and group g1 has ended with it"
	ended := HostGroup{Name: "g1", State: api.HostEnded, Version: "e", Reason: reason}
	_, h := newHosts(t, ended, ended)
	if _, err := h.Ready(t.Context(), "g1", HostRequest{}); err == nil || err.Error() != reason || KindOf(err) != api.NotFound {
		t.Error(err)
	}
	if g, err := h.Follow(t.Context(), "g1", HostRequest{}, "d"); err != nil || g.State != api.HostEnded || g.Reason != reason {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestABoxWithoutHosts(t *testing.T) {
	h := NewHost(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddr("127.0.0.2"))
	_, err := h.Join(t.Context(), "g1", HostRequest{})
	const want = "no daemon answers on 127.0.0.1:1 (connection refused); is rocastd running there, with hosts: in its config, and is 127.0.0.2 an address of this host?"
	if err == nil || err.Error() != want || KindOf(err) != api.Unreachable {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
}

// A program that names no secret shows that of its environment.
func TestTheSecretOfAHost(t *testing.T) {
	running := HostGroup{Name: "g1", State: api.HostRunning}
	box, h := newHosts(t, running, running, running)
	for i := range 3 {
		if i == 1 {
			t.Setenv(SecretVariable, "of all")
		}
		own := HostRequest{}
		if i == 2 {
			own.Secret = "own"
		}
		if _, err := h.Join(t.Context(), "g1", own); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(box.secrets, ", "); got != ", of all, own" {
		t.Error(got)
	}
}

// The edge of a host says which mappings it has, and is told those of its IP.
func TestAskEdge(t *testing.T) {
	var heard EdgeQuestion
	box := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/edge" || !strings.HasPrefix(r.RemoteAddr, "127.0.0.2:") {
			t.Errorf("%s %s from %s", r.Method, r.URL, r.RemoteAddr)
		}
		_ = json.NewDecoder(r.Body).Decode(&heard)
		_, _ = w.Write([]byte(`{"number": 8, "mappings": [{"group": "g1", "to": "239.77.0.1", "addPSN": 5, "regions": [{"va": "0xffffffffffff0000", "rkey": "0x1"}]}]}`))
	}))
	t.Cleanup(box.Close)
	h := NewHost(netip.MustParseAddrPort(strings.TrimPrefix(box.URL, "http://")), netip.MustParseAddr("127.0.0.2"))
	answer, err := h.AskEdge(t.Context(), EdgeQuestion{Have: 7, Wait: 20, Attach: "tcx", Mapped: 3})
	if want := (EdgeQuestion{Protocol: 1, Have: 7, Wait: 20, Attach: "tcx", Mapped: 3}); heard != want || err != nil {
		t.Errorf("the box heard %+v, want %+v; %v", heard, want, err)
	}
	if answer.Number != 8 || len(answer.Mappings) != 1 {
		t.Fatalf("%+v", answer)
	}
	if m := answer.Mappings[0]; m.To != netip.MustParseAddr("239.77.0.1") || m.Regions[0].VA != 0xffffffffffff0000 || m.Regions[0].RKey != 1 {
		t.Errorf("%+v", m)
	}
}
