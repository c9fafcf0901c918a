package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rocast/rocast/ctl/api"
)

// The number of time series of groups is bounded: at most api.MaxTraffic groups have some, those
// that are not ready first, and at most maxReceivers of their receivers.
const maxReceivers = 4096

// told are the events that are counted for each group: all that name one.
var told = eventsOfGroups()

func eventsOfGroups() (kinds []api.EventKind) {
	for _, m := range api.EventMeanings() {
		switch m.Kind {
		case api.PortWentDown, api.PortCameUp, api.PortFellBack, api.ConfigReloaded, api.ConfigRefused, api.FramesRefused, api.StoreAway, api.StoreBack: // they name none
		default:
			kinds = append(kinds, m.Kind)
		}
	}
	return kinds
}

var groupStates = []string{api.Ready, api.Waiting, api.Degraded, api.Failed}

var (
	groupState   = describe("group_state", "1 for the state that the group is in, 0 for the others.", "group", "state")
	groupKernel  = describe("group_kernel", "1 if the kernel carries the group, 0 if AF_XDP does.", "group")
	groupPackets = describe("group_packets_total", "Packets of the source that were forwarded, each once.", "group")
	groupBytes   = describe("group_payload_bytes_total", "Their payload.", "group")
	groupCopies  = describe("group_copies_total", "Copies sent to the receivers.", "group")
	groupSent    = describe("group_copied_payload_bytes_total", "Their payload.", "group")
	groupMapped  = describe("group_mapped_packets_total", "Packets that came as copies which the box above shares between several boxes.", "group")
	groupResent  = describe("group_resent_packets_total", "Packets that the source sent again, and that a receiver lacked.", "group")
	groupDropped = describe("group_dropped_frames_total", "Frames of the group that were refused, by reason.", "group", "reason")
	groupEvents  = describe("group_events_total", "What happened to the group and its members.", "group", "event")
	groupsOut    = describe("groups_left_out", "Groups that have no metrics of their own, because there are too many.")

	memberAcked    = member("acknowledged_packets_total", "Packets that the receiver has acknowledged since it takes part.")
	memberLag      = member("lag_packets", "Packets that were forwarded and that the receiver has not acknowledged.")
	memberAge      = member("lag_seconds", "Time since the first of them was forwarded.")
	memberNAKs     = member("naks_total", "How often the receiver asked for a packet again.")
	memberRNRs     = member("rnr_naks_total", "How often the receiver had posted no receive.")
	memberCNPs     = member("cnps_total", "How often the receiver reported congestion.")
	memberRepaired = member("repaired_packets_total", "Packets that the box sent the receiver again, alone or by a copy for its whole leg.")
	memberTrouble  = member("trouble", "1 while the member does not get on, with the reason in a word.", "trouble")

	sharePackets = share("packets_total", "Copies of new packets that left by the legs with this address, each for several receivers.")
	shareSaved   = share("saved_copies_total", "Copies that did not have to be made, because receivers share a leg.")
	shareMembers = share("members", "Receivers that share a leg with this address.")
	shareWorking = share("working_members", "Those of them that its copies reach. The others have copies of their own.")

	membersOut = describe("members_left_out", "Receivers of these groups that have no metrics of their own, because there are too many.")
)

func member(name, help string, labels ...string) *prometheus.Desc {
	return describe("member_"+name, help, append([]string{"group", "member", "remote_qpn"}, labels...)...)
}

// share describes a metric of the legs of a group that have one IP address. A leg that
// begins anew counts from 0. Its QPN is no label: each turn has another.
func share(name, help string) *prometheus.Desc {
	return describe("share_"+name, help, "group", "address")
}

var ofGroups = []*prometheus.Desc{
	groupState, groupKernel, groupPackets, groupBytes, groupCopies, groupSent, groupMapped, groupResent, groupDropped, groupEvents, groupsOut,
	memberAcked, memberLag, memberAge, memberNAKs, memberRNRs, memberCNPs, memberRepaired, memberTrouble, membersOut,
	sharePackets, shareSaved, shareMembers, shareWorking,
}

// sink takes the values of one scrape.
type sink chan<- prometheus.Metric

func (s sink) count(d *prometheus.Desc, value uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// traffic writes what groups and receivers have carried.
func (s sink) traffic(t api.Traffic) {
	room, out := maxReceivers, 0
	for i := range t.Groups {
		g := &t.Groups[i]
		if g.Unconfirmed {
			continue // whoever reaches the box makes such groups: no alert is about them
		}
		s.group(g)
		if len(g.Receivers) > room {
			out += len(g.Receivers)
			continue
		}
		room -= len(g.Receivers)
		for k := range g.Receivers {
			s.receiver(g.Name, &g.Receivers[k])
		}
		for _, leg := range byAddress(g.Shares) { // fewer than receivers
			s.share(g.Name, &leg)
		}
	}
	s.gauge(groupsOut, float64(t.More))
	s.gauge(membersOut, float64(out))
}

func (s sink) group(g *api.GroupTraffic) {
	for _, state := range groupStates {
		s.gauge(groupState, truth(g.State == state), g.Name, state)
	}
	s.gauge(groupKernel, truth(g.Carrier == api.CarrierKernel), g.Name)
	s.count(groupPackets, g.Packets, g.Name)
	s.count(groupBytes, g.Bytes, g.Name)
	s.count(groupCopies, g.Copies, g.Name)
	s.count(groupSent, g.CopyBytes, g.Name)
	s.count(groupMapped, g.Mapped, g.Name)
	s.count(groupResent, g.Resent, g.Name)
	for reason, n := range g.Drops {
		s.count(groupDropped, n, g.Name, reason)
	}
	if m := g.Source; m != nil {
		s.gauge(memberTrouble, 1, g.Name, m.IP, strconv.Itoa(int(m.RemoteQPN)), m.Trouble)
	}
	for _, kind := range told {
		s.count(groupEvents, g.Events[kind], g.Name, string(kind))
	}
}

func (s sink) receiver(group string, r *api.ReceiverTraffic) {
	labels := []string{group, r.IP, strconv.Itoa(int(r.RemoteQPN))}
	s.count(memberAcked, r.Acknowledged, labels...)
	s.gauge(memberLag, float64(r.Lag), labels...)
	s.gauge(memberAge, r.LagSeconds, labels...)
	s.count(memberNAKs, r.NAKs, labels...)
	s.count(memberRNRs, r.RNRs, labels...)
	s.count(memberCNPs, r.CNPs, labels...)
	s.count(memberRepaired, r.Repaired, labels...)
	if r.Trouble != "" {
		s.gauge(memberTrouble, 1, append(labels, r.Trouble)...)
	}
}

func (s sink) share(group string, leg *api.Share) {
	labels := []string{group, leg.IP}
	s.count(sharePackets, leg.Packets, labels...)
	s.count(shareSaved, leg.Saved, labels...)
	s.gauge(shareMembers, float64(leg.Members), labels...)
	s.gauge(shareWorking, float64(leg.Working), labels...)
}

// byAddress adds the legs of a group that have the same address: those behind several ports may.
func byAddress(legs []api.Share) (sums []api.Share) {
	for i := range legs {
		leg := &legs[i]
		k := slices.IndexFunc(sums, func(s api.Share) bool { return s.IP == leg.IP })
		if k < 0 {
			k, sums = len(sums), append(sums, api.Share{IP: leg.IP})
		}
		sum := &sums[k]
		sum.Packets += leg.Packets
		sum.Saved += leg.Saved
		sum.Members += leg.Members
		sum.Working += leg.Working
	}
	return sums
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
