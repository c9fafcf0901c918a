package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/rocast/rocast/bench/scale"
)

const (
	parameterServers = 5
	workersOfServer  = 6

	// podHosts is the number of hosts of a pod of MC-RDMA's fat tree, which it calls a rack.
	podHosts = 9
)

const trainingText = "MC-RDMA, figure 9: a fat tree of 54 hosts at 100 Gb/s. Each of 5 parameter servers in one pod gets a message from each of its 6 workers in other " +
	"pods, and when it has all of them it sends one of this size to all six. Mean time of such an iteration in ms, of %d at each server."

const trainingAfter = "MC-RDMA states 6.1, 11.3 and 10.8 ms for 8 MB with its groups, fan-out and chain. Six messages have to come over a server's link, " +
	"whatever brings the answer: 4.2 ms for 8 MiB. What a chain of slices costs its hosts' CPUs is not simulated."

// training is figure 9 of MC-RDMA: servers gather from workers and send back, again and again.
func (s *session) training() error {
	iterations := pick(s, 2, 10)
	x := section{
		name: "training", title: "Iterations of distributed training", text: fmt.Sprintf(trainingText, iterations), after: trainingAfter,
		columns: []string{"message"},
	}
	for i := range replicated {
		x.columns = append(x.columns, replicated[i].name)
	}
	x.columns = append(x.columns, "fan-out / group", "chain / group")
	for _, bytes := range pick(s, []int64{mega}, []int64{mega, 4 * mega, 8 * mega}) {
		row := []string{fmt.Sprintf("%d MiB", bytes/mega)}
		var took []float64
		for i := range replicated {
			t, err := s.trained(&replicated[i], bytes, iterations)
			if err != nil {
				return err
			}
			took = append(took, t)
			row = append(row, fmt.Sprintf("%.2f", t*1e3))
		}
		x.rows = append(x.rows, append(row, fmt.Sprintf("%.2f", took[1]/took[0]), fmt.Sprintf("%.2f", took[2]/took[0])))
	}
	s.sections = append(s.sections, x)
	return nil
}

// trained returns how long an iteration takes on average, in seconds.
func (s *session) trained(w *way, bytes int64, iterations int) (mean float64, err error) {
	c := s.mcRDMA()
	c.MessageBytes = int(bytes)
	n, err := scale.New(c)
	if err != nil {
		return 0, err
	}
	drawn := rand.New(rand.NewPCG(s.seed, 9)).Perm(c.Hosts() - podHosts)
	var failed error
	var ended scale.Time // of all iterations of all servers
	for server := range parameterServers {
		var workers []int
		for _, h := range drawn[server*workersOfServer:][:workersOfServer] {
			workers = append(workers, podHosts+h)
		}
		left := iterations
		var gather func()
		gather = func() {
			if left--; left < 0 {
				ended += n.Now()
				return
			}
			missing := len(workers)
			for _, from := range workers {
				f, err := n.Send(from, server, bytes)
				if err != nil {
					failed = errors.Join(failed, err)
					return
				}
				f.Then(func() {
					if missing--; missing == 0 {
						failed = errors.Join(failed, w.begin(n, server, workers, bytes, gather))
					}
				})
			}
		}
		n.At(0, gather)
	}
	if err := errors.Join(s.finish(n), failed); err != nil {
		return 0, err
	}
	return ended.Seconds() / float64(parameterServers*iterations), nil
}
