package services

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/groupip"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/internal/testlab"
)

// The proxy really opens sockets at its group IP, so the IP is one of the loopback's. One of them
// is raw, which needs root.
const cmRequest = `{"groupIP": "127.0.0.220", "receivers": ["10.77.0.2", "10.77.0.3"], "port": 7174}`

// A receiver that does not answer may come later, so the service is up; whoever started it hears of
// the receiver.
func TestRDMACMNamesReceiversThatDoNotAnswer(t *testing.T) {
	testlab.NeedRoot(t)
	w := newWorld()
	hop := w.hops.Hop(addr("10.77.0.3"))
	hop.Silent, hop.Reason = true, "10.77.0.3 does not answer"
	w.hops.Set(map[string]nexthop.Hop{"10.77.0.3": hop})
	up, err := w.CMUp(t.Context(), []byte(cmRequest))
	if err != nil || strings.Join(up.Notes, " ") != "10.77.0.3 does not answer" {
		t.Errorf("%q, %v", up.Notes, err)
	}
	if list := w.CMs().CMs; len(list) != 1 || list[0].Notes != nil {
		t.Errorf("%+v", list)
	}
	if err := w.CMDown("127.0.0.220"); err != nil {
		t.Error(err)
	}
}

func TestTheConfigsRDMACMComesUpWithTheDaemon(t *testing.T) {
	testlab.NeedRoot(t)
	w := newWorld()
	w.CM = []cm.Config{{Config: groupip.Config{GroupIP: addr("127.0.0.222"), Receivers: []netip.Addr{addr("10.77.0.2")}, Port: 7174}, Memory: cm.PrivateData}}
	if missing := w.bringUp(t.Context(), w.helpers(), true); len(missing) != 0 {
		t.Errorf("%+v", missing)
	}
	if list := w.CMs().CMs; len(list) != 1 || list[0].Memory != "private-data" {
		t.Errorf("%+v", list)
	}
	w.Close()
	w.expect(t, nothing)
}

// While a connection is established, its reason has what the box sees of its group. Before that and
// behind it the reason is the connection's own.
func TestAConnectionsReasonHasWhatTheBoxSees(t *testing.T) {
	w := newWorld()
	for _, tt := range []struct {
		state              cm.State
		group, about, want string
	}{
		{cm.Established, "one", "", "sees one"},
		{cm.Established, "one", "it goes on", "it goes on; sees one"},
		{cm.Established, "healthy", "it goes on", "it goes on"},
		{cm.Established, "healthy", "", ""},
		{cm.Established, "", "", ""},
		{cm.Making, "one", "", ""},
		{cm.Over, "one", "the source disconnected", "the source disconnected"},
	} {
		got := w.described(&cm.Connection{Source: addr("10.77.0.1"), State: tt.state, Group: tt.group, Reason: tt.about, Receivers: 2})
		if got.Reason != tt.want || got.State != tt.state.String() || got.Source != "10.77.0.1" || got.Group != tt.group || got.Receivers != 2 {
			t.Errorf("%v, %q: %+v, want %q", tt.state, tt.group, got, tt.want)
		}
	}
}

// Regions that come to a running group do not reach other boxes, so no connection could be made.
func TestRDMACMWithRegionsRefusesReceiversBehindBoxes(t *testing.T) {
	testlab.NeedRoot(t)
	w := newWorld()
	w.control.behind[addr("10.77.0.3")] = []string{"b2"}
	const want = "RDMA-CM on 127.0.0.224: memory is regions and receiver 10.77.0.3 is behind box b2, which hears of a group's memory only when " +
		"the group begins; leave that receiver out, or let the receivers say their memory when they accept (private-data)"
	request := `{"groupIP": "127.0.0.224", "receivers": ["10.77.0.2", "10.77.0.3"], "port": 7174, "memory": "regions"}`
	if _, err := w.CMUp(t.Context(), []byte(request)); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	w.CM = []cm.Config{{Config: groupip.Config{GroupIP: addr("127.0.0.224"), Receivers: []netip.Addr{addr("10.77.0.3")}, Port: 7174}, Memory: cm.ByRegions}}
	if missing := w.bringUp(t.Context(), w.helpers(), true); len(missing) != 1 {
		t.Errorf("%+v", missing)
	}
	if n := w.hops.Tracked(); n != 0 || len(w.CMs().CMs) != 0 {
		t.Errorf("%d addresses are tracked; up: %+v", n, w.CMs())
	}
	near := strings.Replace(request, `, "10.77.0.3"`, "", 1)
	if _, err := w.CMUp(t.Context(), []byte(near)); err != nil {
		t.Error(err)
	}
	if err := w.CMDown("127.0.0.224"); err != nil {
		t.Error(err)
	}
}
