package report

import (
	"fmt"
	"strings"
	"time"
)

// Report is one run of the benchmark.
type Report struct {
	Form       string     `json:"form"` // full or short
	Began      time.Time  `json:"began"`
	Seconds    float64    `json:"seconds"` // how long the run took
	Machine    Machine    `json:"machine"`
	Peers      []Peer     `json:"peers"`
	Throughput []Row      `json:"throughput"`
	Latency    []Latency  `json:"latency"`
	Changes    *Changes   `json:"changes,omitempty"`
	Restarts   []Restarts `json:"restarts,omitempty"`
	Left       []Left     `json:"left"` // measurements that did not run
}

// Machine describes the machine of the run.
type Machine struct {
	Version string `json:"version"` // of rocast
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	Go      string `json:"go"`
	C       string `json:"c,omitempty"`   // compiler
	OVS     string `json:"ovs,omitempty"` // Open vSwitch
	// Busy is how many CPUs were in use just before the run, on average.
	Busy float64 `json:"busy"`
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

// Setting describes the traffic of a measurement.
type Setting struct {
	Payload   int    `json:"payload"` // bytes
	Receivers int    `json:"receivers"`
	Groups    int    `json:"groups"`
	Pattern   string `json:"pattern,omitempty"` // hot or random, with more than one group
	Workers   int    `json:"workers"`
}

// Row has one setting and the results of each contestant.
type Row struct {
	Section string `json:"section"`
	Setting
	Cells []Cell `json:"cells"`
}

// Cell is one contestant in one setting.
type Cell struct {
	Peer string `json:"peer"`
	// Window is the largest number of unacknowledged packets.
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
	// HostsCPU is the CPU time that was used on the hosts' CPU. While that CPU is idle, every
	// unacknowledged packet is in the switch, so the switch has work. If that CPU is never idle,
	// the switch may have waited for the hosts.
	HostsCPU float64 `json:"hostsCPUSeconds"`
	// Waited is the time that the source slept because its window was closed.
	Waited float64 `json:"sourceWaitedSeconds"`
	// Disturbed is the time that the forwarder's threads were ready and had no CPU.
	Disturbed float64 `json:"disturbedSeconds"`
	Sent      uint64  `json:"sent"` // packets of the source, including Resent
	Resent    uint64  `json:"resent"`
	WentBack  uint64  `json:"wentBack"`
	Repeated  uint64  `json:"repeated"` // copies of packets that a receiver already had
	Answered  uint64  `json:"answered"` // answers of the receivers
	Heard     uint64  `json:"heard"`    // answers that reached the source: fewer only if they are merged
}

// PerCPU returns thousands of copies for each CPU-second of the switch.
func (s *Sample) PerCPU() float64 { return over(float64(s.Copies)/1e3, s.ProcessCPU+s.KernelCPU) }

// PerProcessCPU is PerCPU without the work of receiving frames, if the forwarder is a process.
func (s *Sample) PerProcessCPU() float64 { return over(float64(s.Copies)/1e3, s.ProcessCPU) }

// Rate returns thousands of copies for each second.
func (s *Sample) Rate() float64 { return over(float64(s.Copies)/1e3, s.Seconds) }

// Latency has the times of single packets to the last receiver.
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

// Changes has the cost of creating and removing groups while another group runs, and the effect on
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
	// Longest is the longest time without a new acknowledgement, in milliseconds.
	Longest float64 `json:"longestMilliseconds"`
}

// Restarts are those of a daemon with a number of groups that was killed, while the source of one
// of them sent as fast as it could.
type Restarts struct {
	Groups int       `json:"groups"`
	Rounds []Restart `json:"rounds"`
}

// Restart is one of them, in milliseconds.
type Restart struct {
	FirstCopy float64 `json:"firstCopyMilliseconds"` // from the kill on
	CPU       float64 `json:"cpuMilliseconds"`       // of the daemon, until it answered
}

// Left is a measurement that did not run or failed.
type Left struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Failed bool   `json:"failed"` // it ran and failed
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
