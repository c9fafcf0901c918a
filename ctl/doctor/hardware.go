package doctor

import "slices"

// Hardware returns what nobody has seen yet, because it takes real NICs. It is the table
// docs/install.md#what-only-real-hardware-can-show. Where a check has the same name, the check sees
// as much of it as a box can tell.
func Hardware() []ByHand {
	return []ByHand{
		{"attach", "native XDP on a ConnectX, and its strides", "rocast port ls",
			"ATTACH `native` and MODE `copy` for each port, at MTU 1500 and at 4200. If 4200 is `generic`: `ethtool --set-priv-flags PORT rx_striding_rq off`, and restart rocastd"},
		{"headers", "whether the classifier sees the headers of long frames on a ConnectX with strides", "rocast stats",
			"at MTU 4200, while `ib_write_bw -R -m 4096 GROUP-IP` runs: `classifier-redirect_data` grows and `classifier-pass_truncated` does not. Else as above"},
		{"copies", "zero-copy: `mode: zero-copy` in rocastd.yaml, and restart rocastd", "ethtool -S PORT",
			"MTU 1500: `rx_xsk_packets` and `tx_xsk_xmit` grow with the traffic (mlx5), and `rocast port ls` has MODE `zero-copy`. MTU 4200: mlx5 refuses it"},
		{"queues", "queues of a NIC that has many: `ethtool -L PORT combined 4`, and restart rocastd", "ethtool -l PORT",
			"`Combined: 4`, and QUEUES 4 in `rocast port ls`"},
		{"spread", "spread among queues: `workers: 2`, and `ib_write_bw -R -q 8 GROUP-IP`", "ethtool -S PORT",
			"`rx0_packets`, `rx1_packets` and so on grow alike, at the latest after `ethtool -N PORT rx-flow-hash udp4 sdfn`"},
		{"kernel-engine", "redirecting in the driver: the kernel engine between two ports of a NIC", "rocast group show NAME",
			"`engine kernel (auto)`, and the number of packets that the kernel carried grows; `tx_xdp_xmit` of `ethtool -S PORT` grows (mlx5)"},
		{"vlan", "VLAN offloads: tagged hosts, then `ethtool -K PORT rxvlan off txvlan off`", "rocast drops",
			"before: `wrong-vlan` grows, and `rocast port ls` names the command. After: it stands still, and the group carries data"},
		{"pause", "PFC: a lossless priority at the switch and at all NICs, and one receiver that is slow", "ethtool -S PORT",
			"`rx_prio3_pause` of the port to that receiver grows and nothing is lost there (`rocast port ls`: LOST 0); `tx_prio3_pause` stands still while the box keeps up"},
		{"congestion", "DCQCN with CNPs of a NIC: ECN at all hosts, `egress` with `kmin`, and a unicast flow to one receiver", "rocast stats",
			"`cnp-passed` grows; at the receiver `np_cnp_sent` of `rdma statistic show` grows, at the source `rp_cnp_handled`; the source slows down, and no copy is lost"},
		{"credits", "flow-control credits of a ConnectX, which sends code 0", "rocast capture --group NAME -w g1.pcapng",
			"the AETH of receivers' ACKs has credit code 0, that of the ACKs to the source 31; `ib_send_bw -R -r 16 GROUP-IP` is as fast as to one receiver"},
		{"timers", "adaptive retransmission and slow restart of a ConnectX: `mlxreg -d DEV --reg_name ROCE_ACCL --get`", "systemctl restart rocastd",
			"in the middle of `ib_write_bw -R -D 30 GROUP-IP`, with these settings on and off: the run goes on, without *transport retry counter exceeded*"},
		{"answers", "whether a ConnectX checks the source IP, the MSN or an upper bound of ACKs", "rdma statistic show",
			"at the source, after a run over a lossy link: `packet_seq_err`, `local_ack_timeout_err` and `req_remote_invalid_request` as after a run with one receiver"},
		{"rules", "steering a group to one queue", "ethtool -N PORT flow-type udp4 dst-ip GROUP-IP action 1",
			"`Added rule with ID`; then only `rx1_packets` grows"},
		{"stick", "a switch that sends the packets of a receiver's address to a box with one port (`addressing: virtual-qpn`)", "rocast stats",
			"`classifier-redirect_data` grows, and the group carries data"},
		{"dpu", "an edge in a DPU, behind Open vSwitch, or behind a bridge that filters VLANs", "rocast-edge status",
			"the box answers, and what was mapped grows; `rocast group show NAME` has WORKING equal to MEMBERS"},
	}
}

// onlyByHand returns those of Hardware of which there is no check.
func onlyByHand() (list []ByHand) {
	for _, h := range Hardware() {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return c.Name == h.Name }) {
			list = append(list, h)
		}
	}
	return list
}
