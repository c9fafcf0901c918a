package metrics

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rocast/rocast/ctl/api"
)

// trafficSource has groups that carry something.
type trafficSource struct {
	source
	t api.Traffic
}

func (s trafficSource) Traffic() api.Traffic { return s.t }

// scrape returns the lines about groups and members.
func scrape(t *testing.T, s Source) (lines []string) {
	t.Helper()
	answer := httptest.NewRecorder()
	Handler(s, func() bool { return false }).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if ofOneGroup(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// ofOneGroup reports whether a line is about single groups and members.
func ofOneGroup(line string) bool {
	return slices.ContainsFunc([]string{"rocast_group_", "rocast_member_", "rocast_share_", "rocast_groups_left", "rocast_members_left"},
		func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

func TestAScrapeHasGroupsAndReceivers(t *testing.T) {
	got := scrape(t, trafficSource{t: api.Traffic{More: 7, Groups: []api.GroupTraffic{
		{
			Name: "g1", State: api.Degraded, Carrier: api.CarrierKernel, Packets: 1, Bytes: 2, Copies: 3, CopyBytes: 4, Mapped: 9, Resent: 5,
			Drops: api.Counters{"wrong-vlan": 6}, Events: map[api.EventKind]uint64{api.MemberStalled: 8, api.PortCameUp: 1},
			Source: &api.SourceTraffic{IP: "10.77.0.1", RemoteQPN: 1, Trouble: api.TroubleFrames},
			Receivers: []api.ReceiverTraffic{{
				IP: "10.77.0.2", RemoteQPN: 1, Trouble: api.TroubleStalled, Acknowledged: 9, Lag: 10, LagSeconds: 0.5,
				NAKs: 11, RNRs: 12, CNPs: 13, Repaired: 14,
			}},
			Shares: []api.Share{
				{IP: "239.77.0.3", QPN: 77, Packets: 10, Saved: 12, Members: 2, Working: 1}, {IP: "239.77.0.4", QPN: 79, Members: 2},
				{IP: "239.77.0.3", QPN: 78, Packets: 5, Saved: 4, Members: 1, Working: 1},
			},
		},
		{Name: "stranger", State: api.Waiting, Unconfirmed: true, Receivers: []api.ReceiverTraffic{{IP: "10.77.0.2", Trouble: api.TroubleUnconfirmed}}},
		{Name: "idle", State: api.Ready, Carrier: api.CarrierAFXDP, Receivers: []api.ReceiverTraffic{{IP: "10.77.0.2", RemoteQPN: 3}}},
	}}})
	for _, want := range strings.Split(`rocast_group_state{group="g1",state="degraded"} 1
rocast_group_state{group="g1",state="ready"} 0
rocast_group_state{group="idle",state="ready"} 1
rocast_group_kernel{group="g1"} 1
rocast_member_trouble{group="g1",member="10.77.0.1",remote_qpn="1",trouble="frames-refused"} 1
rocast_group_kernel{group="idle"} 0
rocast_group_packets_total{group="g1"} 1
rocast_group_payload_bytes_total{group="g1"} 2
rocast_group_copies_total{group="g1"} 3
rocast_group_copied_payload_bytes_total{group="g1"} 4
rocast_group_mapped_packets_total{group="g1"} 9
rocast_group_resent_packets_total{group="g1"} 5
rocast_group_dropped_frames_total{group="g1",reason="wrong-vlan"} 6
rocast_group_events_total{event="member-stalled",group="g1"} 8
rocast_group_events_total{event="member-stalled",group="idle"} 0
rocast_groups_left_out 7
rocast_members_left_out 0
rocast_member_acknowledged_packets_total{group="g1",member="10.77.0.2",remote_qpn="1"} 9
rocast_member_lag_packets{group="g1",member="10.77.0.2",remote_qpn="1"} 10
rocast_member_lag_seconds{group="g1",member="10.77.0.2",remote_qpn="1"} 0.5
rocast_member_naks_total{group="g1",member="10.77.0.2",remote_qpn="1"} 11
rocast_member_rnr_naks_total{group="g1",member="10.77.0.2",remote_qpn="1"} 12
rocast_member_cnps_total{group="g1",member="10.77.0.2",remote_qpn="1"} 13
rocast_member_repaired_packets_total{group="g1",member="10.77.0.2",remote_qpn="1"} 14
rocast_member_trouble{group="g1",member="10.77.0.2",remote_qpn="1",trouble="stalled"} 1
rocast_member_lag_packets{group="idle",member="10.77.0.2",remote_qpn="3"} 0
rocast_share_packets_total{address="239.77.0.3",group="g1"} 15
rocast_share_packets_total{address="239.77.0.4",group="g1"} 0
rocast_share_saved_copies_total{address="239.77.0.3",group="g1"} 16
rocast_share_saved_copies_total{address="239.77.0.4",group="g1"} 0
rocast_share_members{address="239.77.0.3",group="g1"} 3
rocast_share_members{address="239.77.0.4",group="g1"} 2
rocast_share_working_members{address="239.77.0.3",group="g1"} 2
rocast_share_working_members{address="239.77.0.4",group="g1"} 0`, "\n") {
		if !slices.Contains(got, want) {
			t.Errorf("there is no %s", want)
		}
	}
	for _, no := range []string{"port-up", `trouble=""`} {
		if strings.Contains(strings.Join(got, "\n"), no) {
			t.Errorf("there is a %s", no)
		}
	}
	if n := len(got); n != 2*(4+7+len(told)+7)+2+1+2+2*4 {
		t.Errorf("%d lines:\n%s", n, strings.Join(got, "\n"))
	}
}

// However many receivers there are, the number of time series is bounded, and what is left out is
// said.
func TestTheReceiversOfAScrapeAreBounded(t *testing.T) {
	var s trafficSource
	for i := range 6 {
		g := api.GroupTraffic{Name: fmt.Sprint("g", i)}
		for k := range 1000 {
			g.Receivers = append(g.Receivers, api.ReceiverTraffic{IP: fmt.Sprint(k)})
		}
		s.t.Groups = append(s.t.Groups, g)
	}
	s.t.Groups[5].Receivers = s.t.Groups[5].Receivers[:96] // fits
	lags := 0
	lines := scrape(t, s)
	for _, line := range lines {
		if strings.HasPrefix(line, "rocast_member_lag_packets") {
			lags++
		}
	}
	if lags != maxReceivers || !slices.Contains(lines, "rocast_members_left_out 1000") {
		t.Errorf("%d receivers have a lag", lags)
	}
}

// Everything that a scrape has is described, and the reverse.
func TestWhatIsDescribedIsCollected(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(collector{trafficSource{t: api.Traffic{Groups: []api.GroupTraffic{
		{Name: "g", Drops: api.Counters{"x": 1}, Receivers: []api.ReceiverTraffic{{IP: "1", Trouble: "stalled"}}, Shares: []api.Share{{IP: "239.77.0.3"}}},
	}}}}); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 200)
	collector{}.Describe(described)
	if len(families) != len(described) {
		t.Errorf("%d metrics are described, and %d collected", len(described), len(families))
	}
}
