package sim

import (
	"testing"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
)

// crediting is calm with end-to-end credits: the receivers have 4, 6 and 8 receives, and post each
// again at once.
func crediting() Scenario {
	s := calm()
	s.Policy.Credits = feedback.CreditsMerge
	for i := range s.Hosts {
		s.Hosts[i].FlowControl = true
	}
	for i, receives := range []int{4, 6, 8} {
		s.Hosts[1+i].Receives = receives
	}
	return s
}

// With merged credits a source waits for receives. Without a limit it meets receivers that are not
// ready.
func TestMergedCreditsKeepTheSourceBack(t *testing.T) {
	run := func(policy feedback.CreditPolicy) (refused, waited uint64) {
		s := crediting()
		s.Policy.Credits = policy
		for i := range s.Hosts {
			s.Hosts[i].RepostAfter = 20 * s.Hosts[i].ToHost.Delay
		}
		c := mustHold(t, s).Source
		return c.Get(rnic.RNRNAKsReceived), c.Get(rnic.CreditWaits)
	}
	often, hardly := run(feedback.CreditsUnlimited)
	rarely, waited := run(feedback.CreditsMerge)
	if hardly > 1 || waited < 10 { // before the first ACK a source knows of no credits
		t.Errorf("%d messages waited where there is no limit, %d where there is one", hardly, waited)
	}
	if often < 10 || rarely > often*2/3 {
		t.Errorf("%d RNR NAKs where there is no limit, %d where there is one", often, rarely)
	}
}
