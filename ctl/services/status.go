package services

import (
	"fmt"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
	"github.com/rocast/rocast/ctl/perftest"
)

// refusedFor is how long a status tells of a request that was refused because of others.
const refusedFor = time.Minute

// Status says what is wrong with the services, and what else is to be known of them: who keeps
// others out, and until when. It waits for nothing.
func (s *Services) Status(now time.Time) (problems []api.Problem, notes []string) {
	problems, notes = statusOf(s.cm.Troubles(), now)
	return problems, append(notes, waiting(s.perftest.List())...)
}

// waiting names the clients of perftest that wait for another one's run.
func waiting(services []perftest.Service) (notes []string) {
	for _, at := range services {
		for _, run := range at.Sessions {
			if run.State == perftest.Waiting {
				notes = append(notes, fmt.Sprintf("perftest on %v: client %v waits: %s", at.GroupIP, run.Client, run.Reason))
			}
		}
	}
	return notes
}

func statusOf(troubles []cm.Trouble, now time.Time) (problems []api.Problem, notes []string) {
	for _, t := range troubles {
		for _, c := range t.Silent {
			problems = append(problems, api.Problem{Of: api.OfService, Name: t.GroupIP.String(), State: api.Degraded, Reason: fmt.Sprintf(
				"RDMA-CM: source %v does not answer, and its connection ends at %s unless it does", c.Source, c.Ends.UTC().Format(time.TimeOnly))})
		}
		if r := t.Refused; now.Sub(r.At) < refusedFor {
			notes = append(notes, fmt.Sprintf("RDMA-CM on %v has refused %v at %s: %s", t.GroupIP, r.Source, r.At.UTC().Format(time.TimeOnly), r.Says))
		}
	}
	return problems, notes
}
