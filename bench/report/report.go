package report

import (
	"fmt"
	"strings"
	"time"
)

// Report is one run of the benchmark.
type Report struct {
	Form       string    `json:"form"` // full or short
	Began      time.Time `json:"began"`
	Seconds    float64   `json:"seconds"` // how long the run took
	Machine    Machine   `json:"machine"`
	Peers      []Peer    `json:"peers"`
	Throughput []Row     `json:"throughput"`
	Latency    []Latency `json:"latency"`
	Changes    *Changes  `json:"changes,omitempty"`
	Left       []Left    `json:"left"` // what did not run
}

// Machine is what the run was made on.
type Machine struct {
	Version string `json:"version"` // of rocast
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	Go      string `json:"go"`
	C       string `json:"c,omitempty"`   // compiler
	OVS     string `json:"ovs,omitempty"` // Open vSwitch
	// Load is the load average of the last minute before the run.
	Load float64 `json:"load"`
}

// Peer is a contestant.
type Peer struct {
	Name     string `json:"name"`
	What     string `json:"what"`
	Rewrites string `json:"rewrites"`
	Merges   bool   `json:"merges"`
}

// Sections of the throughput measurement.
const (
	SectionMain      = "main"
	SectionPayload   = "payload"
	SectionReceivers = "receivers"
	SectionGroups    = "groups"
	SectionWorkers   = "workers"
)

// Setting is what was sent, and to how many.
type Setting struct {
	Payload   int    `json:"payload"` // bytes
	Receivers int    `json:"receivers"`
	Groups    int    `json:"groups"`
	Pattern   string `json:"pattern,omitempty"` // hot or random, with more than one group
	Workers   int    `json:"workers"`
}

// Row is one setting and what each contestant did with it.
type Row struct {
	Section string `json:"section"`
	Setting
	Cells []Cell `json:"cells"`
}

// Cell is one contestant in one setting.
type Cell struct {
	Peer string `json:"peer"`
	// Window is how many packets the source had unacknowledged at most.
	Window  int      `json:"window"`
	Samples []Sample `json:"samples"` // by round

	// Computed by Summarize: thousands of copies for each CPU-second of the switch, and for each
	// second.
	PerCPU Spread `json:"kCopiesPerCPUSecond"`
	Rate   Spread `json:"kCopiesPerSecond"`
}

// Sample is one contestant in one round.
type Sample struct {
	Seconds float64 `json:"seconds"`
	Copies  uint64  `json:"copies"` // taken by the receivers in order, each once
	// CPU-seconds of the switch: of the forwarder's processes, and of the kernel threads that work
	// for it.
	ProcessCPU float64 `json:"processCPUSeconds"`
	KernelCPU  float64 `json:"kernelCPUSeconds"`
	// HostsCPU is all CPU time that was used on the hosts' CPU. While that CPU is idle, every
	// packet that the source has unacknowledged is with the switch, so the switch has work. A CPU
	// that is never idle may keep the switch waiting.
	HostsCPU float64 `json:"hostsCPUSeconds"`
	// Waited is how long the source slept with its window closed.
	Waited float64 `json:"sourceWaitedSeconds"`
	// Disturbed is how long the forwarder's threads were ready and had no CPU.
	Disturbed float64 `json:"disturbedSeconds"`
	Sent      uint64  `json:"sent"` // by the source, Resent among them
	Resent    uint64  `json:"resent"`
	WentBack  uint64  `json:"wentBack"`
	Repeated  uint64  `json:"repeated"` // copies that a receiver had already
}

// PerCPU is thousands of copies for each CPU-second of the switch.
func (s *Sample) PerCPU() float64 { return over(float64(s.Copies)/1e3, s.ProcessCPU+s.KernelCPU) }

// PerProcessCPU leaves out the work of taking frames in, where the forwarder is a process.
func (s *Sample) PerProcessCPU() float64 { return over(float64(s.Copies)/1e3, s.ProcessCPU) }

// Rate is thousands of copies for each second.
func (s *Sample) Rate() float64 { return over(float64(s.Copies)/1e3, s.Seconds) }

// Latency is how long one packet at a time took to the last receiver.
type Latency struct {
	Peer      string          `json:"peer"`
	Payload   int             `json:"payload"`
	Receivers int             `json:"receivers"`
	Pause     int             `json:"pauseMicroseconds"` // before each packet
	Rounds    []LatencyRound  `json:"rounds"`
	Medians   LatencyQuantile `json:"microseconds"` // of the rounds, by Summarize
}

// LatencyRound is one round of probes.
type LatencyRound struct {
	Probes int `json:"probes"`
	LatencyQuantile
}

// LatencyQuantile is in microseconds.
type LatencyQuantile struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
}

// Changes is what creating and removing groups costs while another group runs, and what it does to
// that group.
type Changes struct {
	Groups      int             `json:"groups"` // created and removed
	Create      LatencyQuantile `json:"createMicroseconds"`
	Remove      LatencyQuantile `json:"removeMicroseconds"`
	Undisturbed Running         `json:"undisturbed"`
	Disturbed   Running         `json:"disturbed"`
}

// Running is the group that runs meanwhile.
type Running struct {
	Seconds float64 `json:"seconds"`
	Copies  uint64  `json:"copies"`
	Resent  uint64  `json:"resent"`
	// Longest is the longest time in which the source heard nothing new, in milliseconds.
	Longest float64 `json:"longestMilliseconds"`
}

// Left is what did not run, or failed.
type Left struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Failed bool   `json:"failed"` // it was to work
}

func (s Setting) String() string {
	text := fmt.Sprintf("%d bytes, %d receivers", s.Payload, s.Receivers)
	if s.Receivers == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	if s.Groups > 1 {
		text += fmt.Sprintf(", %d groups (%s)", s.Groups, s.Pattern)
	}
	if s.Workers > 1 {
		text += fmt.Sprintf(", %d workers", s.Workers)
	}
	return text
}
