package api

import (
	"fmt"
	"strconv"
	"time"
)

// MaxGroupFileBytes bounds a group file: the largest group with a line for each member, and room for their regions.
const MaxGroupFileBytes = 1 << 20

// Paths of the interface.
const (
	GroupsPath   = "/v1/groups"
	PortsPath    = "/v1/ports"
	PerftestPath = "/v1/perftest"
	StatsPath    = "/v1/stats"
	FeaturesPath = "/v1/features"
	VersionPath  = "/v1/version"
	MetricsPath  = "/metrics"
)

// States of a group and of a member.
const (
	Ready   = "ready"
	Waiting = "waiting"  // for a next hop; Reason says for which
	Failed  = "failed"   // a kept group that could not be set up again; Reason says why
	LeftOut = "left-out" // a member whose part in the group is over; Reason says why, and how it comes back
)

// States of a port.
const (
	PortUp     = "up"
	PortDown   = "down"   // the link is
	PortGone   = "gone"   // no interface has its name; it is taken when it is there
	PortFailed = "failed" // the interface is there and could not be opened; Reason says why. Tried again now and then
)

// Groups lists all groups, by name.
type Groups struct {
	Groups []GroupSummary `json:"groups"`
}

// GroupSummary is a group in a list.
type GroupSummary struct {
	Name         string `json:"name"`
	IP           string `json:"ip,omitempty"`
	QPN          uint32 `json:"qpn,omitempty"`
	Addressing   string `json:"addressing,omitempty"`
	MemberCount  int    `json:"memberCount"`  // the source included
	WaitingCount int    `json:"waitingCount"` // members that cannot be reached now
	State        string `json:"state"`
	Reason       string `json:"reason,omitempty"`
}

// Group is everything there is to know about a group.
type Group struct {
	GroupSummary
	MTU      int       `json:"mtu,omitempty"`
	Policy   *Policy   `json:"policy,omitempty"`
	Engine   *Engine   `json:"engine,omitempty"`
	Restored bool      `json:"restored"` // it outlived a crash or carried data before the daemon stopped
	Memory   []Region  `json:"memory,omitempty"`
	Progress *Progress `json:"progress,omitempty"` // absent until the source is heard
	Members  []Member  `json:"members,omitempty"`
	Counters Counters  `json:"counters,omitempty"` // frames by what became of them
}

// Engine says what carries the group's packets.
type Engine struct {
	Wanted  string `json:"wanted"`            // auto or afxdp
	Carrier string `json:"carrier,omitempty"` // now: kernel or afxdp
	Reason  string `json:"reason,omitempty"`  // why it is not the kernel
	Carried uint64 `json:"carried"`           // packets that the kernel has carried
}

// What carries a group's packets now.
const (
	CarrierKernel = "kernel"
	CarrierAFXDP  = "afxdp"
)

// Policy is how feedback is merged.
type Policy struct {
	Ack          string `json:"ack"`
	Nak          string `json:"nak"`
	OnFatal      string `json:"on-fatal"`
	Speak        string `json:"speak"`
	SilentAfter  string `json:"silent-after"` // a duration ("200ms"); "0": never
	Evict        bool   `json:"evict"`
	CNP          string `json:"cnp"`
	CNPInterval  string `json:"cnp-interval"` // a duration ("50µs"); "0": no limit
	Credits      string `json:"credits"`
	SourceSwitch string `json:"source-switch"`
}

// Progress is where the merging stands, in PSNs of the source.
type Progress struct {
	Sent     uint32 `json:"sent"`     // highest forwarded
	Position uint32 `json:"position"` // last seen: the source's place
	Merged   uint32 `json:"merged"`   // what the source was last told
}

// Region is a range of memory: the group's as the source sees it, or a receiver's.
type Region struct {
	VA     Hex    `json:"va"`
	Length uint64 `json:"length"`
	RKey   *Hex   `json:"rkey,omitempty"` // absent: the reader may not see it
}

// Member is a member's QP and how it is reached.
type Member struct {
	IP        string   `json:"ip"`
	QPN       uint32   `json:"qpn"`
	PSN       uint32   `json:"psn"`
	SendPSN   *uint32  `json:"sendPSN,omitempty"` // role both alone: the first PSN it sends
	Role      string   `json:"role"`
	RemoteQPN uint32   `json:"remoteQPN"`
	Regions   []Region `json:"regions,omitempty"`
	Reach
}

// Reach is how a member is reached, and how far it is.
type Reach struct {
	State   string  `json:"state"`
	Reason  string  `json:"reason,omitempty"` // waiting: for what; ready: what casts doubt on it
	Port    string  `json:"port,omitempty"`
	MAC     string  `json:"mac,omitempty"`
	VLANs   []int   `json:"vlans,omitempty"`   // outermost first
	Part    string  `json:"part,omitempty"`    // of a path: active, source while it sends itself, or why it is neither
	Acked   *uint32 `json:"acked,omitempty"`   // highest PSN acknowledged, in PSNs of the source; absent: it has not spoken
	Pending string  `json:"pending,omitempty"` // the NAK it gave that the source has not heard
}

// Removed answers a DELETE.
type Removed struct {
	Name string `json:"removed"`
}

// Perftests lists the group IPs that perftest's clients can talk to, by IP.
type Perftests struct {
	Perftests []Perftest `json:"perftests"`
}

// PerftestRequest asks for one more.
type PerftestRequest struct {
	GroupIP   string   `json:"groupIP"`
	Receivers []string `json:"receivers"`       // where perftest's servers run
	Port      uint16   `json:"port,omitempty"`  // TCP, here and there; absent: perftest's own, 18515
	Allow     []string `json:"allow,omitempty"` // networks whose hosts are served; absent: the group IP's subnet
}

// Perftest is a group IP on which perftest's clients are served.
type Perftest struct {
	GroupIP   string        `json:"groupIP"`
	Receivers []string      `json:"receivers"`
	Port      uint16        `json:"port"`
	Allow     []string      `json:"allow"`
	Runs      []PerftestRun `json:"runs"` // oldest first; the oldest ones are forgotten
}

// PerftestRun is one client's run.
type PerftestRun struct {
	Client  string     `json:"client"`
	State   string     `json:"state"` // handshaking, waiting, running, ended, refused
	Reason  string     `json:"reason,omitempty"`
	Version string     `json:"version,omitempty"` // the client's perftest
	QPs     int        `json:"qps,omitempty"`
	MTU     int        `json:"mtu,omitempty"`
	Groups  []string   `json:"groups,omitempty"` // while it runs
	Began   time.Time  `json:"began"`
	Ended   *time.Time `json:"ended,omitempty"`
}

// Ports lists the ports.
type Ports struct {
	Ports []Port `json:"ports"`
}

// Port is an interface rocast is to attach to, as it is now.
type Port struct {
	Name        string   `json:"name"`
	State       string   `json:"state"`
	Reason      string   `json:"reason,omitempty"`
	IfIndex     int      `json:"ifindex"` // 0: gone
	MAC         string   `json:"mac"`
	MTU         int      `json:"mtu"`
	Attach      string   `json:"attach"` // where the classifier runs: native, generic; "": it is not open
	Mode        string   `json:"mode"`   // how frames get to user space: copy, zero-copy, generic
	MultiBuffer bool     `json:"multiBuffer"`
	Queues      int      `json:"queues"`
	RxFrames    uint64   `json:"rxFrames"`
	RxBytes     uint64   `json:"rxBytes"`
	TxFrames    uint64   `json:"txFrames"`
	TxBytes     uint64   `json:"txBytes"`
	TxLost      uint64   `json:"txLost"` // the port could not take them
	Kernel      Counters `json:"kernel,omitempty"`
}

// Stats are the counters of all groups together and of what is no group's.
type Stats struct {
	Counters Counters `json:"counters"`
}

// Counters are counts since the start, by name.
type Counters map[string]uint64

// Features lists what rocast uses of the kernel.
type Features struct {
	Features []Feature `json:"features"`
}

// Availability of a feature.
const (
	Available = "available"
	Missing   = "missing"
	Unknown   = "unknown" // it could not be tried; Detail says why
)

// Feature is something not every kernel has.
type Feature struct {
	Name     string `json:"name"`
	Since    string `json:"since"` // the first kernel version that has it
	Status   string `json:"status"`
	Fallback string `json:"fallback,omitempty"` // what happens without
	Detail   string `json:"detail,omitempty"`
}

// Version is a build.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// Hex is a number that is written in hexadecimal, as a string.
type Hex uint64

func (h Hex) String() string { return fmt.Sprintf("%#x", uint64(h)) }

// MarshalText is part of encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is part of encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 0, 64)
	*h = Hex(n)
	return err
}
