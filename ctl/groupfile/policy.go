package groupfile

import (
	"time"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/feedback"
)

const (
	// minSilentAfter is a few periods of the timer that looks for silent receivers
	// (feedback.TimerPeriod), and is longer than the time in which a loaded host answers.
	minSilentAfter = 10 * time.Millisecond
	// maxSilentAfter is much longer than the time after which any source gives up.
	maxSilentAfter = time.Hour
	// minCNPInterval is shorter than the interval of any NIC. maxCNPInterval is so long that a
	// source hardly slows down.
	minCNPInterval = time.Microsecond
	maxCNPInterval = 100 * time.Millisecond
)

// policyFields returns the keys of feedback.Policy. docs/merging.md explains the keys to users.
func (p *parser) policyFields() []yamldoc.Field {
	policy := &p.Policy
	return []yamldoc.Field{
		{Key: "ack", Set: yamldoc.Into(&policy.Ack, choice(feedback.ParseAck))},
		{Key: "nak", Set: yamldoc.Into(&policy.Nak, choice(feedback.ParseNak))},
		{Key: "on-fatal", Set: yamldoc.Into(&policy.OnFatal, choice(feedback.ParseFatal))},
		{Key: "speak", Set: yamldoc.Into(&policy.Speak, choice(feedback.ParseSpeak))},
		{Key: "silent-after", Set: yamldoc.Into(&policy.SilentAfter, silentAfter)},
		{Key: "evict", Set: yamldoc.Into(&policy.Evict, yamldoc.Value.Bool)},
		{Key: "cnp", Set: yamldoc.Into(&policy.CNP, choice(feedback.ParseCNP))},
		{Key: "cnp-interval", Set: yamldoc.Into(&policy.CNPInterval, cnpInterval)},
		{Key: "credits", Set: yamldoc.Into(&policy.Credits, choice(feedback.ParseCredits))},
		{Key: "source-switch", Set: yamldoc.Into(&policy.Switch, choice(feedback.ParseSwitch))},
	}
}

// Zero means never, or no limit.
var (
	silentAfter = duration(minSilentAfter, maxSilentAfter, "from 10ms to 1h; write one such as 200ms, or 0 for never")
	cnpInterval = duration(minCNPInterval, maxCNPInterval, "from 1us to 100ms; write one such as 50us, or 0 for no "+
		"limit")
)

// duration accepts 0 and times from shortest to longest. limits states these bounds in the error
// message.
func duration(shortest, longest time.Duration, limits string) func(yamldoc.Value) (time.Duration, error) {
	return func(v yamldoc.Value) (time.Duration, error) {
		text, err := v.Text()
		if err != nil {
			return 0, err
		}
		d, err := time.ParseDuration(text)
		if err != nil || d != 0 && (d < shortest || d > longest) {
			return 0, v.Errorf("%q is not a time %s", text, limits)
		}
		return d, nil
	}
}

// checkPolicy sets the default that depends on another key, and refuses keys that have no effect.
func (p *parser) checkPolicy() error {
	if p.Lines["on-fatal"] == 0 && p.Policy.Ack != feedback.AckAll {
		p.Policy.OnFatal = feedback.FatalEvict // a quorum exists to continue without some receivers
	}
	if p.Policy.Evict && p.Policy.SilentAfter == 0 {
		return yamldoc.Errorf(p.Lines["evict"], "evict has no effect without silent-after, which says when a "+
			"receiver counts as silent; add silent-after: 200ms, or remove evict")
	}
	if p.Policy.CNPInterval != 0 && p.Policy.CNP == feedback.CNPAll {
		return yamldoc.Errorf(p.Lines["cnp-interval"], "cnp-interval has no effect with cnp: all, which passes "+
			"every notification; remove one of them")
	}
	return nil
}
