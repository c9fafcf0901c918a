// Package metrics exports the daemon's counters to Prometheus, and reports whether the box is alive
// and ready, on a TCP listener of its own.
//
// The number of time series is bounded. Label values are reasons, ports and states, and groups and
// members up to a bound (groups.go): there may be a million of them.
package metrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/ctl/version"
)

// Source provides the values. A ctl.Controller is a Source.
type Source interface {
	PortList() api.Ports
	Stats() api.Stats
	Groups() api.Groups
	Traffic() api.Traffic
	// BoundsMet returns how often each bound was met.
	BoundsMet() map[bounds.Bound]uint64
	Status() api.Status
}

// classifierPrefix is the prefix of the classifier's counters in the counters of the data path.
const classifierPrefix = "classifier-"

var (
	frames     = describe("frames_total", "Frames of groups, by what became of them.", "reason")
	classified = describe("classified_frames_total", "Frames the classifier saw, by its verdict.", "verdict")
	rxFrames   = describe("port_receive_frames_total", "Frames of groups received.", "port")
	rxBytes    = describe("port_receive_bytes_total", "Bytes of them.", "port")
	txFrames   = describe("port_transmit_frames_total", "Frames sent.", "port")
	txBytes    = describe("port_transmit_bytes_total", "Bytes of them.", "port")
	txLost     = describe("port_transmit_lost_total", "Frames the port could not take.", "port")
	marked     = describe("port_ecn_marked_total", "Copies marked as having met congestion.", "port")
	queueFull  = describe("port_queue_full_total", "Copies lost because the port's queue was full.", "port")
	putOff     = describe("port_repairs_put_off_total", "Repairs that waited because repairs had their share of the queue.", "port")
	kernel     = describe("port_kernel_total", "What the kernel did to the port's sockets.", "port", "event")
	retained   = describe("repair_retained_packets", "Packets that are kept for repair.")
	buffers    = describe("repair_buffers", "Buffers of 4 KiB in which they are kept.")
	room       = describe("repair_buffers_max", "Buffers that may be used for them.")
	groups     = describe("groups", "Groups, by state, without those that are not confirmed.", "state")
	unproven   = describe("groups_unconfirmed", "Groups that hosts have made and not confirmed yet. They have no other metrics.")
	waiting    = describe("waiting_members", "Members of groups that cannot be reached, or whose program has not confirmed.")
	boundsMet  = describe("bound_met_total", "How often somebody was refused because of a bound, by bound.", "bound")
	trouble    = describe("trouble", "1 for each thing that does not work and is neither a port nor a group.", "of", "name")
	build      = describe("build_info", "1, with the daemon's version, its commit and the version of Go.", "version", "revision", "goversion")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rocast_"+name, help, labels, nil)
}

// Limits for scrapes: Prometheus' own patience by default, and a few scrapers.
const (
	scrapeWithin = 10 * time.Second
	maxScrapes   = 8
)

// Handler returns the handler that answers a scrape with the values of source, and with those of
// the process and of the Go runtime. stale reports whether the config file is not what runs.
func Handler(source Source, stale func() bool) http.Handler {
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rocast_config_stale", Help: "1 if the config file is not what runs: it has changed, or cannot be read.",
	}, func() float64 { return truth(stale()) })
	registry.MustRegister(collector{source}, gauge, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Timeout: scrapeWithin, MaxRequestsInFlight: maxScrapes})
}

type collector struct{ source Source }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{frames, classified, rxFrames, rxBytes, txFrames, txBytes, txLost, marked, queueFull, putOff, kernel, retained, buffers, room, groups, unproven, waiting, boundsMet, trouble, build}, ofGroups...) {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := sink(out)
	stats := c.source.Stats()
	for d, n := range map[*prometheus.Desc]int{retained: stats.Retained.Packets, buffers: stats.Retained.Buffers, room: stats.Retained.Room} {
		s.gauge(d, float64(n))
	}
	for name, value := range stats.Counters {
		if verdict, ok := strings.CutPrefix(name, classifierPrefix); ok {
			s.count(classified, value, verdict)
		} else {
			s.count(frames, value, name)
		}
	}
	for _, p := range c.source.PortList().Ports {
		s.count(rxFrames, p.RxFrames, p.Name)
		s.count(rxBytes, p.RxBytes, p.Name)
		s.count(txFrames, p.TxFrames, p.Name)
		s.count(txBytes, p.TxBytes, p.Name)
		s.count(txLost, p.TxLost, p.Name)
		s.count(marked, p.Marked, p.Name)
		s.count(queueFull, p.QueueFull, p.Name)
		s.count(putOff, p.RepairsPutOff, p.Name)
		for event, value := range p.Kernel {
			s.count(kernel, value, p.Name, event)
		}
	}
	for bound, n := range c.source.BoundsMet() {
		s.count(boundsMet, n, string(bound))
	}
	c.collectGroups(s)
	status := c.source.Status()
	for _, p := range status.Problems {
		if p.Of != api.OfPort && p.Of != api.OfGroup {
			s.gauge(trouble, 1, p.Of, p.Name)
		}
	}
	s.traffic(c.source.Traffic())
}

func (c collector) collectGroups(s sink) {
	states, waitingMembers, unconfirmed := map[string]int{}, 0, 0
	for _, g := range c.source.Groups().Groups {
		if g.Unconfirmed {
			unconfirmed++
			continue
		}
		states[g.State]++
		waitingMembers += g.WaitingCount
	}
	for _, state := range groupStates {
		s.gauge(groups, float64(states[state]), state)
	}
	s.gauge(waiting, float64(waitingMembers))
	s.gauge(unproven, float64(unconfirmed))
	v := version.Build()
	s.gauge(build, 1, v.Version, v.Commit, v.Go)
}
