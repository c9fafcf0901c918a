package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Verdict is the outcome of a check.
type Verdict string

const (
	// OK: what was seen is what should be seen.
	OK Verdict = "ok"
	// Look: something is not as it should be. The finding's Remedy says what to do.
	Look Verdict = "look"
	// Unclear: the check cannot be made here, or not yet. The finding's Remedy says what it needs.
	Unclear Verdict = "cannot-tell"
)

// Finding is what a check has found of the box, or of one port or group.
type Finding struct {
	Check   string  `json:"check"`
	Of      string  `json:"of,omitempty"` // a port or a group; absent: the box
	Verdict Verdict `json:"verdict"`
	Seen    string  `json:"seen"`
	Want    string  `json:"want"` // what should be seen
	Remedy  string  `json:"remedy,omitempty"`
	Command string  `json:"command"` // by which a person goes on
}

// Report is what all checks have found.
type Report struct {
	At       time.Time       `json:"at"`
	Seconds  float64         `json:"seconds"` // between the two readings; 0: there was only one
	Counts   map[Verdict]int `json:"counts"`  // findings by verdict; every verdict has a key
	Findings []Finding       `json:"findings"`
	ByHand   []ByHand        `json:"byHand"` // what no check can see
}

// ByHand is something that a person has to try on real hardware.
type ByHand struct {
	Name    string `json:"name"`
	Unseen  string `json:"unseen"`  // what nobody has seen yet
	Command string `json:"command"` // PORT stands for a port of the box, HOST for a member's IP
	Shows   string `json:"shows"`   // what the command should show
}

// Check is a question about a box.
type Check struct {
	Name    string // never changes
	Want    string // what should be seen
	Command string // PORT stands for the port, in a check of ports
	judge   func(*Readings) []Finding
}

// Examine makes all checks. Findings that need a look come first.
func Examine(r *Readings) Report {
	report := Report{At: r.At, Seconds: r.seconds(), Counts: map[Verdict]int{OK: 0, Look: 0, Unclear: 0}, ByHand: onlyByHand()}
	for _, c := range Checks() {
		for _, f := range c.judge(r) {
			f.Check, f.Want, f.Command = c.Name, c.Want, strings.ReplaceAll(c.Command, "PORT", f.Of)
			report.Counts[f.Verdict]++
			report.Findings = append(report.Findings, f)
		}
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(urgency, a.Verdict), slices.Index(urgency, b.Verdict))
	})
	return report
}

// urgency is the order of findings in a report.
var urgency = []Verdict{Look, Unclear, OK}

// one is a finding of the box.
func one(v Verdict, seen, remedy string) []Finding {
	return []Finding{{Verdict: v, Seen: seen, Remedy: remedy}}
}
