package doctor

import (
	"maps"
	"testing"

	"github.com/rocast/rocast/ctl/api"
)

// The names are those of the drivers' sources.
func TestPacketsOfQueues(t *testing.T) {
	for _, c := range []struct {
		what, text string
		want       map[int]uint64
	}{
		{"mlx5, mlx4", "     rx_packets: 9\n     rx0_packets: 5\n     rx11_packets: 4\n     tx0_packets: 3\n     rx0_csum_none: 7\n", map[int]uint64{0: 5, 11: 4}},
		{"mlx5 with zero-copy", "     rx0_packets: 1\n     rx0_xsk_packets: 90\n     rx0_xsk_xdp_redirect: 90\n", map[int]uint64{0: 90}},
		{"virtio_net", "     rx_xdp_packets: 7\n     rx0_xdp_packets: 3\n     rx1_xdp_packets: 4\n     rx0_xdp_redirects: 3\n", map[int]uint64{0: 3, 1: 4}},
		{"veth", "     peer_ifindex: 5\n     rx_queue_0_xdp_packets: 6\n     tx_queue_0_xdp_xmit: 8\n", map[int]uint64{0: 6}},
		{"ice, ixgbe", "     rx_queue_3_packets: 2\n     tx_queue_3_packets: 2\n     rx_queue_3_bytes: 200\n", map[int]uint64{3: 2}},
		{"i40e", "     rx-2.packets: 5\n     rx-2.bytes: 500\n", map[int]uint64{2: 5}},
		{"ena", "     queue_1_rx_cnt: 5\n     queue_1_rx_bytes: 500\n     queue_1_tx_cnt: 3\n", map[int]uint64{1: 5}},
		{"bnxt_en", "     [0]: rx_ucast_packets: 12\n     [1]: rx_ucast_packets: 13\n     [0]: tx_ucast_packets: 9\n", map[int]uint64{0: 12, 1: 13}},
		{"none", "no stats available\n", map[int]uint64{}},
	} {
		if got := byQueue(ParseStatistics(c.text)); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestWhichCountersArePausesAndFaults(t *testing.T) {
	for name, want := range map[string]struct{ pause, fault bool }{
		"rx_prio3_pause": {true, false}, "tx_pause_ctrl_phy": {true, false}, "rx_priority_3_xoff.nic": {true, false}, // mlx5, ice
		"port.tx_priority_3_xoff_tx": {true, false}, "rx_pfc_ena_frames_pri3": {true, false}, "rx_flow_control_xoff": {true, false}, // i40e, bnxt_en, ixgbe
		"rx_prio3_pause_duration": {}, "rx_prio3_pause_transition": {}, "rx_priority_3_xon.nic": {}, "pfc_pri3_rx_transitions": {}, "pfc_pri3_rx_duration_us": {},
		"tx_pause_storm_error_events": {}, "rx_packets": {}, "rx0_xdp_drop": {}, "rx_queue_0_xdp_drops": {}, "ch0_eq_rearm": {},
		"rx_out_of_buffer": {false, true}, "rx_discards_phy": {false, true}, "rx_missed_errors": {false, true}, "rx_crc_errors.nic": {false, true},
		"rx_queue_0_drops": {false, true}, "tx_xsk_full": {false, true}, "rx_no_buffer_count": {false, true}, "rx_queue_0_xdp_tx_errors": {false, true},
	} {
		is := api.Counters{name: 1}
		if p, f := matching(is, pauses, noPauses), matching(is, faults, noFaults); len(p) == 1 != want.pause || len(f) == 1 != want.fault {
			t.Errorf("%s: a pause frame %t, a fault %t", name, len(p) == 1, len(f) == 1)
		}
	}
}

func TestWhatEthtoolSays(t *testing.T) {
	if c := ParseChannels(fixture(t, "mlx5-l.txt")); c != (Channels{0, 2, 63}) {
		t.Errorf("%+v", c)
	}
	if c := ParseChannels("Pre-set maximums:\nRX:\t2\nCurrent hardware settings:\nRX:\t1\nTX:\t1\nCombined:\tn/a\n"); c != (Channels{1, 0, 0}) {
		t.Errorf("%+v", c)
	}
	if s := ParseSwitches("Features for eth1:\nrx-checksumming: on [fixed]\n\ttx-a: off\nodd: maybe\n"); !maps.Equal(s, map[string]bool{"rx-checksumming": true, "tx-a": false}) {
		t.Errorf("%v", s)
	}
	if p := ParsePairs("driver: veth\na line\nbus-info: 0000:3b:00.0\n"); !maps.Equal(p, map[string]string{"driver": "veth", "bus-info": "0000:3b:00.0"}) {
		t.Errorf("%v", p)
	}
	if c := ParseStatistics("NIC statistics:\n     a: 1\n7\n: 9\nodd: x\n"); !maps.Equal(c, api.Counters{"a": 1}) {
		t.Errorf("%v", c)
	}
}

func TestALongListIsCut(t *testing.T) {
	counters := api.Counters{"zero": 0}
	for _, name := range "abcdefgh" {
		counters[string(name)] = 1
	}
	for _, want := range []string{"a 1, b 1, c 1, d 1, e 1, f 1, g 1, h 1", "a 1, b 1, c 1, d 1, e 1, f 1, g 1, h 1, and 1 more"} {
		if got := list(counters); got != want {
			t.Error(got)
		}
		counters["i"] = 1
	}
	if got := plural(1, "queue") + " " + plural(2, "queue"); got != "1 queue 2 queues" {
		t.Error(got)
	}
}
