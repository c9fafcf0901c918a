package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/plot/plotter"

	"github.com/rocast/rocast/bench/plots"
	"github.com/rocast/rocast/bench/scale"
)

// workload is how long messages are: the part of them that has so many bytes at most. Between two
// bounds all lengths come equally often.
type workload struct {
	name  string
	span  scale.Time // in which requests begin
	parts []float64
	bytes []float64
}

// The workloads that MC-RDMA names, as the traffic generator of HPCC has them
// (alibaba-edu/High-Precision-Congestion-Control, traffic_gen). Web search is that of DCTCP.
var workloads = []workload{
	{"Alibaba storage", 2 * scale.Millisecond,
		[]float64{0.2293, 0.6921, 0.8061, 0.9047, 0.9353, 0.9677, 0.9753, 1},
		[]float64{4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3, 2e6}},
	{"web search", 20 * scale.Millisecond,
		[]float64{0.15, 0.20, 0.30, 0.40, 0.53, 0.60, 0.70, 0.80, 0.90, 0.97, 1},
		[]float64{10e3, 20e3, 30e3, 50e3, 80e3, 200e3, 1e6, 2e6, 5e6, 10e6, 30e6}},
}

// at returns the length of which a part of all messages is shorter.
func (w *workload) at(part float64) int64 {
	below, from := 0.0, 0.0
	for i, p := range w.parts {
		if part < p {
			return max(1, int64(from+(w.bytes[i]-from)*(part-below)/(p-below)))
		}
		below, from = p, w.bytes[i]
	}
	return int64(from)
}

func (w *workload) mean() (bytes float64) {
	below, from := 0.0, 0.0
	for i, p := range w.parts {
		bytes += (p - below) * (from + w.bytes[i]) / 2
		below, from = p, w.bytes[i]
	}
	return bytes
}

// storageHosts is the number of clients, and of storage nodes. The clients are in the first three
// pods of the fat tree, and the nodes in the others.
const storageHosts = 27

const readsText = "MC-RDMA, figure 8: a fat tree of 54 hosts at 100 Gb/s, 27 clients and 27 storage nodes. Requests come at random times (Poisson), half of them reads. " +
	"A write goes from a client to a node, which replicates it to a node in each of the other two pods; a read comes from a node. *load* is what requests carry, as a part of the " +
	"clients' links, without replication. Mean time in us of a read, and of a write with its replication."

const readsAfter = "With web search MC-RDMA states about 30 % less time for a read than the others at its highest load, without the times. A node sends a write once to a group and " +
	"twice with fan-out, and reads from that node wait. A chain spreads the same work over two nodes. MC-RDMA's writes take about as long with all ways, and here a group's take less."

// reads is figure 8 of MC-RDMA: reads beside writes that are replicated.
func (s *session) reads() error {
	x := section{
		name: "reads", title: "Reads from replicated storage", text: readsText, after: readsAfter,
		columns: []string{"workload", "load", "", "reads", "writes", "read / group's"},
		brief:   &brief{in: 1, cells: []string{"0.5"}},
		plot:    &plots.Curves{File: "scale-reads.svg", X: "load", Y: "mean time of a read; 1 is the group's"},
	}
	for i := range workloads {
		w := &workloads[i]
		lines := make([]plots.Curve, len(replicated))
		for _, load := range pick(s, []float64{0.3}, []float64{0.1, 0.3, 0.5}) {
			first := 0.0
			for j := range replicated {
				r, err := s.stored(w, &replicated[j], load)
				if err != nil {
					return err
				}
				if j == 0 {
					first = r.read
				}
				x.rows = append(x.rows, []string{w.name, fmt.Sprint(load), replicated[j].name, fmt.Sprintf("%.1f", micros(r.read)), fmt.Sprintf("%.1f", micros(r.write)),
					fmt.Sprintf("%.2f", r.read/first)})
				lines[j].Name = w.name + ", " + replicated[j].name
				lines[j].Points = append(lines[j].Points, plotter.XY{X: load, Y: r.read / first})
			}
		}
		x.plot.Lines = append(x.plot.Lines, lines[1:]...)
	}
	s.sections = append(s.sections, x)
	return nil
}

// means are mean times in seconds.
type means struct{ read, write float64 }

// stored lets clients read and write for the workload's time, and waits until all requests have
// ended.
func (s *session) stored(w *workload, by *way, load float64) (m means, err error) {
	c := s.mcRDMA()
	c.MessageBytes = int(w.at(1))
	n, err := scale.New(c)
	if err != nil {
		return m, err
	}
	random := rand.New(rand.NewPCG(s.seed, 8))
	pause := w.mean() * 8 / (load * float64(c.Rate) * storageHosts) // seconds between two requests
	span := pick(s, w.span/10, w.span)
	var failed error
	var reads, writes int
	var next func()
	next = func() {
		if n.Now() >= span || failed != nil {
			return
		}
		// The same draws for each way, whatever it is.
		client, node, bytes, isRead := random.IntN(storageHosts), random.IntN(storageHosts), w.at(random.Float64()), random.IntN(2) == 0
		var replicas []int
		for pod := range 2 {
			replicas = append(replicas, storageHosts+(node/podHosts+1+pod)%3*podHosts+random.IntN(podHosts))
		}
		node += storageHosts
		from, to, began := client, node, n.Now()
		if isRead {
			from, to = node, client
		}
		f, err := n.Send(from, to, bytes)
		failed = errors.Join(failed, err)
		if err == nil && isRead {
			f.Then(func() { m.read += (n.Now() - began).Seconds(); reads++ })
		} else if err == nil {
			f.Then(func() {
				failed = errors.Join(failed, by.begin(n, node, replicas, bytes, func() { m.write += (n.Now() - began).Seconds(); writes++ }))
			})
		}
		n.At(n.Now()+scale.Time(random.ExpFloat64()*pause*float64(scale.Second)), next)
	}
	n.At(0, next)
	if err := errors.Join(s.finish(n), failed); err != nil {
		return m, err
	}
	if reads == 0 || writes == 0 {
		return m, fmt.Errorf("%d reads and %d writes have ended", reads, writes)
	}
	return means{m.read / float64(reads), m.write / float64(writes)}, nil
}
