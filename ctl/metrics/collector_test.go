package metrics

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/version"
)

type source struct{}

func (source) Stats() api.Stats {
	return api.Stats{
		Counters: api.Counters{"forwarded": 7, "classifier-redirect-data": 9},
		Retained: api.Retained{Packets: 10, Buffers: 11, Room: 12},
	}
}

func (source) PortList() api.Ports {
	return api.Ports{Ports: []api.Port{{
		Name: "eth1", RxFrames: 1, RxBytes: 2, TxFrames: 3, TxBytes: 4, TxLost: 5, Marked: 20, QueueFull: 21, RepairsPutOff: 22, Kernel: api.Counters{"rx-ring-full": 6},
	}}}
}

func (source) Status() api.Status {
	return api.Status{Problems: []api.Problem{{Of: api.OfBox, Name: "classifier-pass_no_socket"}, {Of: api.OfPort, Name: "eth1"}, {Of: api.OfGroup, Name: "g4"}}}
}

func (source) Traffic() api.Traffic { return api.Traffic{Groups: []api.GroupTraffic{{Name: "g1"}}} }

func (source) Groups() api.Groups {
	return api.Groups{Groups: []api.GroupSummary{
		{Name: "g1", State: api.Ready}, {Name: "g2", State: api.Waiting, WaitingCount: 2}, {Name: "g3", State: api.Ready},
		{Name: "g4", State: api.Degraded}, {Name: "stranger", State: api.Waiting, WaitingCount: 3, Unconfirmed: true},
	}}
}

func (source) BoundsMet() map[bounds.Bound]uint64 {
	return map[bounds.Bound]uint64{bounds.HostGroups: 3}
}

func TestAScrape(t *testing.T) {
	answer := httptest.NewRecorder()
	Handler(source{}, func() bool { return true }).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "rocast_") && !ofOneGroup(line) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	v := version.Build()
	want := `rocast_bound_met_total{bound="host-groups"} 3
` + fmt.Sprintf("rocast_build_info{goversion=%q,revision=%q,version=%q} 1", v.Go, v.Commit, v.Version) + `
rocast_classified_frames_total{verdict="redirect-data"} 9
rocast_config_stale 1
rocast_frames_total{reason="forwarded"} 7
rocast_groups{state="degraded"} 1
rocast_groups{state="failed"} 0
rocast_groups{state="ready"} 2
rocast_groups{state="waiting"} 1
rocast_groups_unconfirmed 1
rocast_port_ecn_marked_total{port="eth1"} 20
rocast_port_kernel_total{event="rx-ring-full",port="eth1"} 6
rocast_port_queue_full_total{port="eth1"} 21
rocast_port_receive_bytes_total{port="eth1"} 2
rocast_port_receive_frames_total{port="eth1"} 1
rocast_port_repairs_put_off_total{port="eth1"} 22
rocast_port_transmit_bytes_total{port="eth1"} 4
rocast_port_transmit_frames_total{port="eth1"} 3
rocast_port_transmit_lost_total{port="eth1"} 5
rocast_repair_buffers 11
rocast_repair_buffers_max 12
rocast_repair_retained_packets 10
rocast_trouble{name="classifier-pass_no_socket",of="box"} 1
rocast_waiting_members 2`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
