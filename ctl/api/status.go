package api

import "time"

// Status says whether a box works, and what does not.
type Status struct {
	Version Version   `json:"version"`
	Started time.Time `json:"started"`
	Uptime  int64     `json:"uptimeSeconds"`
	Workers int       `json:"workers"` // forwarding threads
	// Ports and Groups count the ports and this box's groups, by state. Every state has a key. Both
	// are absent while a forwarding thread is stuck.
	Ports  map[string]int `json:"ports,omitempty"`
	Groups map[string]int `json:"groups,omitempty"`
	// Healthy: there is no problem. Ready: there is none that blocks.
	Healthy  bool      `json:"healthy"`
	Ready    bool      `json:"ready"`
	Problems []Problem `json:"problems"` // workers, ports, groups, each by name; at most MaxProblems
	More     int       `json:"more"`     // how many Problems leaves out
}

// Log is the state of the daemon's log.
type Log struct {
	Level string `json:"level"` // debug, info, warn or error; as in the config after the next start
}

// MaxProblems bounds the list of problems in a Status.
const MaxProblems = 100

// What a Problem is about.
const (
	OfWorker = "worker"
	OfPort   = "port"
	OfGroup  = "group"
)

// Stuck is the state of a worker that does not end its batch.
const Stuck = "stuck"

// Problem is one thing that does not work.
type Problem struct {
	Of     string `json:"of"`
	Name   string `json:"name,omitempty"` // of the port or group
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Blocks: the box is not ready because of it. These do: a port that is gone or failed, a group
	// that is not clear to send, and a worker that is stuck.
	Blocks bool `json:"blocks"`
}
