package api

import (
	"strings"
	"time"
)

// Status reports whether a box works, and what does not.
type Status struct {
	Version Version   `json:"version"`
	Started time.Time `json:"started"`
	Uptime  int64     `json:"uptimeSeconds"`
	Workers int       `json:"workers"` // forwarding threads
	// Ports and Groups count the ports and this box's groups, by state. Every state has a key. Both
	// are absent while a forwarding thread is stuck.
	Ports  map[string]int `json:"ports,omitempty"`
	Groups map[string]int `json:"groups,omitempty"`
	// Unconfirmed counts the groups that Groups leaves out; see GroupSummary.
	Unconfirmed int `json:"unconfirmed,omitempty"`
	// Healthy: there is no problem. Ready: there is none that blocks.
	Healthy  bool      `json:"healthy"`
	Ready    bool      `json:"ready"`
	Problems []Problem `json:"problems"` // workers, ports, groups, each by name; at most MaxProblems
	More     int       `json:"more"`     // how many Problems leaves out
	// Notes are sentences about what the box sees and does not count as a problem of its own, such
	// as frames of hosts that are members of no group.
	Notes []string `json:"notes,omitempty"`
	// Config reports whether the config file is what runs.
	Config *ConfigState `json:"config,omitempty"`
}

// ConfigState compares the config file with what runs.
type ConfigState struct {
	File  string    `json:"file"`
	Since time.Time `json:"since"` // when the daemon took over what runs
	// Stale: the file is not what runs, because of Reason.
	Stale  bool   `json:"stale"`
	Reason string `json:"reason,omitempty"`
	// Refused is why the last reload changed nothing; absent if it did not fail, or if the file is
	// what runs again.
	Refused string `json:"refused,omitempty"`
}

// Reloaded is what a reload of the config has taken over.
type Reloaded struct {
	Changed []string `json:"changed"` // keys
	Added   []string `json:"portsAdded"`
	Removed []string `json:"portsRemoved"`
}

// String says what was taken over.
func (r Reloaded) String() string {
	parts := []string{"no key has changed"}
	if len(r.Changed) > 0 {
		parts = []string{strings.Join(r.Changed, ", ") + " changed"}
	}
	if len(r.Added) > 0 {
		parts = append(parts, "ports added: "+strings.Join(r.Added, ", "))
	}
	if len(r.Removed) > 0 {
		parts = append(parts, "ports removed: "+strings.Join(r.Removed, ", "))
	}
	return strings.Join(parts, "; ")
}

// Log is the state of the daemon's log.
type Log struct {
	Level string `json:"level"` // debug, info, warn or error; as in the config after the next start
}

// MaxProblems bounds the list of problems in a Status.
const MaxProblems = 100

// What a Problem is about.
const (
	OfWorker  = "worker"
	OfPort    = "port"
	OfGroup   = "group"
	OfHosts   = "hosts" // an IP of groupIPs of hosts:
	OfStore   = "etcd"
	OfService = "service" // rocast cm or rocast perftest at a group IP, which is Name
	OfBox     = "box"     // how the box is set up; Name is the counter that grows because of that
)

// Stuck is the state of a worker that does not end its batch.
const Stuck = "stuck"

// Away is the state of etcd while it does not answer.
const Away = "away"

// Problem is one thing that does not work.
type Problem struct {
	Of     string `json:"of"`
	Name   string `json:"name,omitempty"` // of the port or group, or the IP
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Blocks: the box is not ready because of it. These do: a port that is gone or failed, a group
	// of an operator that is not clear to send, etcd that does not answer, and a worker that is
	// stuck.
	Blocks bool `json:"blocks"`
}
