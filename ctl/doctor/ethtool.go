package doctor

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/rocast/rocast/ctl/api"
)

// Channels are the queues of a NIC. 0: it has none of a kind, or ethtool does not say.
type Channels struct{ RX, Combined, MaxCombined int }

// ParsePairs reads lines of a name, a colon and a text, as ethtool -i has them.
func ParsePairs(text string) map[string]string {
	pairs := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			pairs[name] = strings.TrimSpace(value)
		}
	}
	return pairs
}

// ParseSwitches reads what ethtool -k and ethtool -a say: a name, and on or off. Behind these may
// be a remark such as [fixed].
func ParseSwitches(text string) map[string]bool {
	switches := map[string]bool{}
	for name, value := range ParsePairs(text) {
		switch word, _, _ := strings.Cut(value, " "); word {
		case "on":
			switches[name] = true
		case "off":
			switches[name] = false
		}
	}
	return switches
}

// ParseChannels reads what ethtool -l says: first the maxima, then what is.
func ParseChannels(text string) Channels {
	most, now, _ := strings.Cut(text, "Current hardware settings:")
	number := func(text, name string) int {
		n, _ := strconv.Atoi(ParsePairs(text)[name]) // n/a is 0
		return n
	}
	return Channels{number(now, "RX"), number(now, "Combined"), number(most, "Combined")}
}

// ParseStatistics reads what ethtool -S says.
func ParseStatistics(text string) api.Counters {
	counters := api.Counters{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ':') // bnxt_en: [0]: rx_ucast_packets: 12
		if n, err := strconv.ParseUint(strings.TrimSpace(line[at+1:]), 10, 64); at > 0 && err == nil {
			counters[line[:at]] = n
		}
	}
	return counters
}

var (
	pauses = regexp.MustCompile(`(?i)pause|xoff|pfc_ena`)
	// What these count is no frame.
	noPauses = regexp.MustCompile(`(?i)duration|transition|xon|storm|_us$`)
	faults   = regexp.MustCompile(`(?i)drop|discard|miss|err|out_of_buffer|no_?buf|no_dma|crc|xsk_full|tx_full`)
	// A frame that the classifier has merged or that the NIC's filter keeps away is no fault. Nor
	// is one without a filter of the flow director (ixgbe), nor a page that is not in a cache.
	noFaults = regexp.MustCompile(`(?i)xdp_drop|steer_missed|fdir_|cache|irqs|interrupt|pause|xoff|eq_rearm`)
	// queue finds the number of a receive queue in the name of its counter of packets: rx0_packets
	// (mlx5), rx0_xsk_packets, rx0_xdp_packets (virtio_net), rx_queue_0_xdp_packets (veth),
	// rx_queue_0_packets (ice, ixgbe), rx-0.packets (i40e), queue_0_rx_cnt (ena), [0]:
	// rx_ucast_packets (bnxt_en).
	queue = regexp.MustCompile(`^(?:rx_?(?:queue_)?-?(\d+)[_.](?:xdp_|xsk_)?packets|queue_(\d+)_rx_cnt|\[(\d+)\]: rx_ucast_packets)$`)
)

// matching leaves the counters whose names match one expression and not the other one.
func matching(counters api.Counters, yes, no *regexp.Regexp) api.Counters {
	left := api.Counters{}
	for name, n := range counters {
		if yes.MatchString(name) && !no.MatchString(name) {
			left[name] = n
		}
	}
	return left
}

// byQueue returns the packets of each receive queue. Drivers count a packet under more than one
// name, or a queue's packets for XDP under another one, so the largest counter of a queue is taken.
func byQueue(counters api.Counters) map[int]uint64 {
	packets := map[int]uint64{}
	for name, n := range counters {
		if m := queue.FindStringSubmatch(name); m != nil {
			q, _ := strconv.Atoi(m[1] + m[2] + m[3]) // digits
			packets[q] = max(packets[q], n)
		}
	}
	return packets
}
