package services

import (
	"fmt"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/cm"
)

// refusedFor is how long a status tells of a request that was refused because of others.
const refusedFor = time.Minute

// Status says what is wrong with the services, and what else is to be known of them: who keeps
// others out, and until when. It waits for nothing.
func (s *Services) Status(now time.Time) (problems []api.Problem, notes []string) {
	return statusOf(s.cm.Troubles(), now)
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
