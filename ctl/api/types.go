package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxGroupFileBytes bounds a group file. The largest group fits, with one line for each member and
// room for the memory regions.
const MaxGroupFileBytes = 1 << 20

const (
	// DefaultSocket is the path of the daemon's socket if the config names no other path.
	DefaultSocket = "/run/rocast/rocast.sock"
	// MaxSocketBytes is the maximum length of a socket path. The address of a socket holds 107
	// bytes (unix(7)). The daemon creates the socket under a temporary path that is 4 bytes longer
	// and then renames it.
	MaxSocketBytes = 103
)

// Paths of the HTTP interface.
const (
	GroupsPath   = "/v1/groups"
	BranchesPath = "/v1/branches"
	HostsPath    = "/v1/hosts"
	EdgePath     = "/v1/edge"
	TreesPath    = "/v1/trees"
	StatusPath   = "/v1/status"
	PortsPath    = "/v1/ports"
	PerftestPath = "/v1/perftest"
	CMPath       = "/v1/cm"
	StatsPath    = "/v1/stats"
	EventsPath   = "/v1/events"
	CapturePath  = "/v1/capture"
	TracePath    = "/v1/trace"
	ReloadPath   = "/v1/reload"
	FeaturesPath = "/v1/features"
	VersionPath  = "/v1/version"
	LogPath      = "/v1/log"
	OpenAPIPath  = "/openapi.yaml"
	MetricsPath  = "/metrics"

	ReadyPath   = "/ready"   // behind the path of a group
	RegionsPath = "/regions" // behind the path of a group
)

// States of a group and of a member.
const (
	Ready    = "ready"
	Waiting  = "waiting"  // waits for a next hop, here or at a box behind this one; Reason names the next hop
	Degraded = "degraded" // a box behind this one, a receiver or the whole group does not get on; Reason names it and says why
	Failed   = "failed"   // a kept group that could not be restored; Reason has the cause
	LeftOut  = "left-out" // a member that takes no part in the group any more; Reason has the cause and the way back
)

// States of a port.
const (
	PortUp     = "up"
	PortDown   = "down"   // the link is down
	PortGone   = "gone"   // no interface has this name; the port opens when the interface appears
	PortFailed = "failed" // the interface exists but could not be opened; Reason has the cause; opening is retried periodically
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
	MemberCount  int    `json:"memberCount"`  // including the source
	WaitingCount int    `json:"waitingCount"` // members that cannot be reached now
	State        string `json:"state"`
	Reason       string `json:"reason,omitempty"`
	// ClearToSend: every member is reached and has confirmed if it was to, and all boxes stand. A
	// group that is degraded because packets hardly get on, or because of a receiver, is clear to
	// send all the same.
	ClearToSend bool `json:"clearToSend"`
	// GoesOn: the group is degraded only because of receivers that it has lost or that have
	// stalled, and the packets of the others get on; or because shared copies reach nobody.
	GoesOn bool   `json:"goesOn,omitempty"`
	Root   string `json:"root,omitempty"` // box that carries the group, if it is another one
	By     string `json:"by,omitempty"`   // who made the group: absent: an operator; otherwise ByHosts or ByService
	// Unconfirmed: hosts have made the group, and not all members with which it began have said
	// that their QPs are ready. Anybody can make such a group, so it is no problem of the box.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
}

// Who makes groups besides operators. Their groups come behind those of operators in every view,
// and a box is ready without them.
const (
	ByHosts   = "hosts"   // programs on hosts (docs/host.md)
	ByService = "service" // rocast cm and rocast perftest, for whoever connects there
)

// Group is the complete description of a group.
type Group struct {
	GroupSummary
	MTU      int      `json:"mtu,omitempty"`
	Policy   *Policy  `json:"policy,omitempty"`
	Engine   *Engine  `json:"engine,omitempty"`
	Restored bool     `json:"restored"`        // the group was restored after a crash, or it carried data before the daemon stopped
	Hosts    bool     `json:"hosts,omitempty"` // programs on hosts may join and leave
	Memory   []Region `json:"memory,omitempty"`
	// RegionCount is the number of regions of a group with memory: table, which are not in Memory.
	RegionCount int       `json:"regionCount,omitempty"`
	Progress    *Progress `json:"progress,omitempty"` // absent until the source has sent data
	Goodput     *Goodput  `json:"goodput,omitempty"`  // absent until it was measured
	Members     []Member  `json:"members,omitempty"`
	Upper       *Upper    `json:"upper,omitempty"`         // absent: the group was created on this box
	Links       []Link    `json:"links,omitempty"`         // the boxes behind this one; their ends are among the members
	Notes       []string  `json:"notes,omitempty"`         // sentences about the group that its users should know
	Counters    Counters  `json:"counters,omitempty"`      // frames by result
	Retained    *int      `json:"retainedBytes,omitempty"` // packet memory of what is kept for repair; absent with repair: off
	Shares      []Share   `json:"shares,omitempty"`        // legs by which one copy leaves for several receivers
	CopiesOwn   string    `json:"copiesOwn,omitempty"`     // why no receiver shares; absent: some may, or the config has no edges
}

// Share is a leg that several receivers share.
type Share struct {
	IP      string `json:"ip"` // the multicast address, or that of the box that makes the copies
	QPN     uint32 `json:"qpn"`
	Members int    `json:"members"`
	Working int    `json:"working"` // members that get its copies
	Packets uint64 `json:"packets"` // copies of new packets that left by it
	Saved   uint64 `json:"saved"`   // copies that did not have to be made
	Retired bool   `json:"retired"` // nothing leaves by it until it has another QPN
}

// Engine describes the engine that carries the group's packets.
type Engine struct {
	Wanted  string `json:"wanted"`            // engine that the group file asks for: auto or afxdp
	Carrier string `json:"carrier,omitempty"` // engine that carries the group now: kernel or afxdp
	Reason  string `json:"reason,omitempty"`  // the reason that the kernel does not carry the group
	Carried uint64 `json:"carried"`           // packets that the kernel has carried
	Answers string `json:"answers,omitempty"` // while the kernel carries the group: the reason that it does not merge the receivers' answers
}

// Engines that can carry a group's packets.
const (
	CarrierKernel = "kernel"
	CarrierAFXDP  = "afxdp"
)

// Policy describes how feedback is merged.
type Policy struct {
	Ack          string `json:"ack"`
	Nak          string `json:"nak"`
	OnFatal      string `json:"on-fatal"`
	SilentAfter  string `json:"silent-after"` // a duration ("200ms"); "0": never
	Evict        bool   `json:"evict"`
	CNP          string `json:"cnp"`
	CNPInterval  string `json:"cnp-interval"` // a duration ("50µs"); "0": no limit
	Credits      string `json:"credits"`
	SourceSwitch string `json:"source-switch"`
	Repair       string `json:"repair"`

	// What follows is absent with repair: off.

	OnSlow           string `json:"on-slow,omitempty"`
	RepairWindow     int    `json:"repair-window,omitempty"` // packets
	RepairBytes      int    `json:"repair-bytes,omitempty"`
	RepairAttempts   int    `json:"repair-attempts,omitempty"`
	RepairTimerFloor string `json:"repair-timer-floor,omitempty"` // a duration ("200µs")
	RepairTimerCap   string `json:"repair-timer-cap,omitempty"`
}

// Progress is the state of the merging, in PSNs of the source.
type Progress struct {
	Sent     uint32 `json:"sent"`     // highest PSN forwarded
	Position uint32 `json:"position"` // PSN last seen: the place of the source
	Merged   uint32 `json:"merged"`   // the last PSN that was acknowledged to the source
}

// Goodput is how fast a group gets on: packets a second that its source sees acknowledged.
type Goodput struct {
	Now    float64 `json:"now"`
	Before float64 `json:"before"` // the best rate of the last time at work, with which Now is compared
}

// Region is a range of memory: of the group, as the source sees it, or of a receiver.
type Region struct {
	VA     Hex    `json:"va"`
	Length uint64 `json:"length"`
	RKey   *Hex   `json:"rkey,omitempty"` // absent: the caller may not see it
}

// RegionChange is a change of a running group's memory: regions of the source's address space that
// come, with where each receiver keeps them, and regions that leave.
type RegionChange struct {
	Add    []NewRegion   `json:"add,omitempty"`
	Remove []RegionStart `json:"remove,omitempty"`
}

// NewRegion is a region of the group's memory, as the source addresses it.
type NewRegion struct {
	VA     Hex        `json:"va"`
	Length uint64     `json:"length"` // bytes
	RKey   Hex        `json:"rkey"`
	At     []RegionAt `json:"at"` // one for each receiver
}

// RegionStart finds a region of the group's memory.
type RegionStart struct {
	VA   Hex `json:"va"`
	RKey Hex `json:"rkey"`
}

// RegionAt is where a receiver keeps a region.
type RegionAt struct {
	IP        string `json:"ip"`
	RemoteQPN uint32 `json:"remoteQPN,omitempty"` // of the receiver's QP; needed only if its host has several receivers
	VA        Hex    `json:"va"`
	RKey      Hex    `json:"rkey"`
}

// Regions is a part of the regions of a group's memory, in the order in which the group has them. A
// region that comes or leaves moves those behind it.
type Regions struct {
	Total   int           `json:"total"` // regions of the group
	From    int           `json:"from"`  // the first one of Regions, counted from 0
	Regions []GroupRegion `json:"regions"`
}

// MaxRegions bounds the Regions of one answer.
const MaxRegions = 4096

// GroupRegion is a region as the source addresses it, and where the receivers have it.
type GroupRegion struct {
	Region
	At []ReceiverRegion `json:"at"`
}

// ReceiverRegion is where a receiver has a region.
type ReceiverRegion struct {
	IP        string `json:"ip"`
	RemoteQPN uint32 `json:"remoteQPN"`
	Region
}

// Member is a member's QP and the way to it.
type Member struct {
	IP        string   `json:"ip"`
	QPN       uint32   `json:"qpn"`
	PSN       uint32   `json:"psn"`
	SendPSN   *uint32  `json:"sendPSN,omitempty"` // only with role both: the first PSN that the member sends
	Role      string   `json:"role"`
	RemoteQPN uint32   `json:"remoteQPN"`
	RemoteIP  string   `json:"remoteIP,omitempty"`  // the peer address of its QP; absent: as the group's addressing says
	Receivers int      `json:"receivers,omitempty"` // receivers that a quorum counts for it; absent: one
	Confirm   bool     `json:"confirm,omitempty"`   // the group waits for its program's confirmation
	Regions   []Region `json:"regions,omitempty"`
	Reach
}

// PartSource is the Part of the member that sends at the moment.
const PartSource = "source"

// Reach describes the way to a member and the progress of the member.
type Reach struct {
	State   string  `json:"state"`
	Reason  string  `json:"reason,omitempty"` // waiting: the missing thing; ready: a reason to doubt the state
	Port    string  `json:"port,omitempty"`
	MAC     string  `json:"mac,omitempty"`
	VLANs   []int   `json:"vlans,omitempty"`   // outermost first
	Part    string  `json:"part,omitempty"`    // of a path: active, source while the member itself sends, or the reason that it is neither
	Acked   *uint32 `json:"acked,omitempty"`   // highest PSN acknowledged, in PSNs of the source; absent: the member has sent no feedback
	Lacks   *uint32 `json:"lacks,omitempty"`   // left-out: the first packet that the member lacks, in PSNs of the source; absent: unknown
	Pending string  `json:"pending,omitempty"` // a NAK of the member that was not sent to the source yet
	NAKs    uint64  `json:"naks,omitempty"`    // how often a receiver asked for a packet again: about once for each loss on its way
	Repair  *Repair `json:"repair,omitempty"`  // of a receiver; absent with repair: off
	Copies  string  `json:"copies,omitempty"`  // of a receiver where copies may be shared: shared, or own and why
	Edge    string  `json:"edge,omitempty"`    // what the edge at its host has said last: where its program is, and its counters
}

// Repair is what the box does for a receiver that lost packets. PSNs are the source's.
type Repair struct {
	Repairing bool   `json:"repairing"` // it gets what it lost, and no new data directly
	Cursor    uint32 `json:"cursor"`    // the next packet it is sent
	Lag       uint32 `json:"lag"`       // packets that were forwarded and that it has not acknowledged
	Repaired  uint64 `json:"repaired"`  // packets that it was sent again, alone or by a copy for its whole leg
	Recently  uint64 `json:"recently"`  // packets that it was sent again in the last minute
	Probes    uint64 `json:"probes"`    // of these, the ones that were sent because it was silent
	GivenUp   uint64 `json:"givenUp"`   // how often the source had to help
}

// Confirmation says that a member's QP is ready, as ibv_query_qp shows it. Keys that are absent are
// not checked.
type Confirmation struct {
	IP        string  `json:"ip"`
	QPN       uint32  `json:"qpn"`
	State     string  `json:"state"` // RTR or RTS; a QP in another state receives nothing
	PSN       *uint32 `json:"psn,omitempty"`
	RemoteQPN uint32  `json:"remoteQPN,omitempty"`
	MTU       int     `json:"mtu,omitempty"` // bytes
}

// Removed is the answer to a DELETE.
type Removed struct {
	Name string `json:"removed"`
}

// Perftests lists the group IPs on which perftest clients are served, sorted by IP.
type Perftests struct {
	Perftests []Perftest `json:"perftests"`
}

// PolicyKeys are the keys of a group file's policy that the groups of a service may have, but for
// ack. docs/reference.md lists them with their values; absent: the default of a group file.
type PolicyKeys struct {
	Nak              string `json:"nak,omitempty"`
	OnFatal          string `json:"on-fatal,omitempty"`
	SilentAfter      string `json:"silent-after,omitempty"`
	Evict            bool   `json:"evict,omitempty"`
	CNP              string `json:"cnp,omitempty"`
	CNPInterval      string `json:"cnp-interval,omitempty"`
	Credits          string `json:"credits,omitempty"`
	Repair           string `json:"repair,omitempty"`
	OnSlow           string `json:"on-slow,omitempty"`
	RepairWindow     int    `json:"repair-window,omitempty"` // packets
	RepairBytes      string `json:"repair-bytes,omitempty"`
	RepairAttempts   int    `json:"repair-attempts,omitempty"`
	RepairTimerFloor string `json:"repair-timer-floor,omitempty"`
	RepairTimerCap   string `json:"repair-timer-cap,omitempty"`
}

// PerftestRequest asks the daemon to serve perftest clients on one more group IP.
type PerftestRequest struct {
	GroupIP   string   `json:"groupIP"`
	Receivers []string `json:"receivers"`       // hosts of the perftest servers
	Port      uint16   `json:"port,omitempty"`  // TCP port, on the box and at the receivers; absent: perftest's default, 18515
	Allow     []string `json:"allow,omitempty"` // networks whose hosts are served; absent: the subnet of the group IP
	PolicyKeys
}

// Perftest is a group IP on which perftest clients are served.
type Perftest struct {
	GroupIP   string        `json:"groupIP"`
	Receivers []string      `json:"receivers"`
	Port      uint16        `json:"port"`
	Allow     []string      `json:"allow"`
	Runs      []PerftestRun `json:"runs"` // oldest first; the daemon forgets the oldest runs
}

// PerftestRun is the run of one client.
type PerftestRun struct {
	Client  string     `json:"client"`
	State   string     `json:"state"` // handshaking, waiting, running, ended, refused
	Reason  string     `json:"reason,omitempty"`
	Version string     `json:"version,omitempty"` // perftest version of the client
	QPs     int        `json:"qps,omitempty"`
	MTU     int        `json:"mtu,omitempty"`
	Groups  []string   `json:"groups,omitempty"` // only while the run is running
	Ends    *time.Time `json:"ends,omitempty"`   // when the run ends, unless Unless comes true before
	Unless  string     `json:"unless,omitempty"`
	Began   time.Time  `json:"began"`
	Ended   *time.Time `json:"ended,omitempty"`
}

// CMs lists the group IPs at which the box answers RDMA-CM, sorted by IP.
type CMs struct {
	CMs []CM `json:"cm"`
}

// CMRequest asks the daemon to answer RDMA-CM at one more group IP.
type CMRequest struct {
	GroupIP   string   `json:"groupIP"`
	Receivers []string `json:"receivers"`
	Port      uint16   `json:"port"`
	Ack       string   `json:"ack,omitempty"`    // all (default), or quorum N
	Choose    bool     `json:"choose,omitempty"` // the private data of a source's request names the receivers it connects to, among these
	Memory    string   `json:"memory,omitempty"` // private-data, perftest or regions: where the box learns what memory the receivers have; absent: the group has none
	Allow     []string `json:"allow,omitempty"`  // networks whose sources are served; absent: the subnet of the group IP
	PolicyKeys
}

// CM is a group IP at which the box answers RDMA-CM.
type CM struct {
	GroupIP     string            `json:"groupIP"`
	Receivers   []string          `json:"receivers"`
	Port        uint16            `json:"port"`
	Ack         string            `json:"ack"`
	Choose      bool              `json:"choose,omitempty"`
	Notes       []string          `json:"notes,omitempty"` // in the answer to CMRequest: receivers that do not answer yet
	Memory      string            `json:"memory,omitempty"`
	Allow       []string          `json:"allow"`
	Connections []CMConnection    `json:"connections"` // oldest first; the daemon forgets the oldest ones
	Refused     map[string]uint64 `json:"refused"`     // messages that were refused or did not fit, by the reason's name
}

// CMConnection is one connection of a source.
type CMConnection struct {
	Source    string `json:"source"`
	State     string `json:"state"`               // waiting, asking, making, offered, established, ending, over
	Reason    string `json:"reason,omitempty"`    // why it ended; established: the trouble that the box sees
	Group     string `json:"group,omitempty"`     // only while the group exists
	Receivers int    `json:"receivers,omitempty"` // that are connected
	// HoldsRun: with memory: perftest, the receivers serve no other source until this connection
	// has ended.
	HoldsRun bool `json:"holdsRun,omitempty"`
	// Ends is when the connection ends, unless Unless comes true before ("source 10.77.0.1
	// answers"). Absent: it does not end by itself.
	Ends   *time.Time `json:"ends,omitempty"`
	Unless string     `json:"unless,omitempty"`
	Began  time.Time  `json:"began"`
	Ended  *time.Time `json:"ended,omitempty"`
}

// Ports lists the ports.
type Ports struct {
	Ports []Port `json:"ports"`
}

// Port is the current state of an interface that the config names.
type Port struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	Reason      string `json:"reason,omitempty"`
	IfIndex     int    `json:"ifindex"` // 0: the interface does not exist
	MAC         string `json:"mac"`
	MTU         int    `json:"mtu"`
	Attach      string `json:"attach"`             // place of the classifier: native or generic; "": the port is not open
	Fallback    string `json:"fallback,omitempty"` // why the port was opened again in generic mode
	Mode        string `json:"mode"`               // how frames reach user space: copy, zero-copy or generic
	MultiBuffer bool   `json:"multiBuffer"`
	Queues      int    `json:"queues"`
	NoKernel    string `json:"noKernelEngine,omitempty"` // why the kernel engine cannot send by the port
	TagsTaken   string `json:"tagsTaken,omitempty"`      // whose VLAN tags the port's device takes out of frames, and what mends that
	RxFrames    uint64 `json:"rxFrames"`
	RxBytes     uint64 `json:"rxBytes"`
	TxFrames    uint64 `json:"txFrames"`
	TxBytes     uint64 `json:"txBytes"`
	TxLost      uint64 `json:"txLost"` // frames that the port could not take
	// The effects of egress in rocastd.yaml. What was lost to a full queue is in TxLost too.
	Marked        uint64   `json:"ecnMarked"`     // copies that were marked as having met congestion
	QueueFull     uint64   `json:"queueFull"`     // copies that were lost because the port's queue was full
	RepairsPutOff uint64   `json:"repairsPutOff"` // repairs that waited because repairs had their share of the queue
	Kernel        Counters `json:"kernel,omitempty"`
}

// Stats holds the counters of all groups together, and the counters of frames that belong to no
// group.
type Stats struct {
	Counters Counters `json:"counters"`
	Retained Retained `json:"retained"`
}

// Retained is what the box keeps for repair at present. A buffer has 4 KiB.
type Retained struct {
	Packets int `json:"packets"`
	Buffers int `json:"buffers"`
	Room    int `json:"room"` // buffers that may be used: repairMemory of rocastd.yaml
}

// Counters maps the name of a counter to its count since the start.
type Counters map[string]uint64

// Features lists the kernel features that rocast uses.
type Features struct {
	Features []Feature `json:"features"`
}

// Availability of a feature.
const (
	Available = "available"
	Missing   = "missing"
	Unknown   = "unknown" // the probe could not run; Detail has the cause
)

// Feature is a kernel feature that some kernels lack.
type Feature struct {
	Name     string `json:"name"`
	Since    string `json:"since"` // first kernel version with the feature
	Status   string `json:"status"`
	Fallback string `json:"fallback,omitempty"` // what rocast does without the feature
	Detail   string `json:"detail,omitempty"`
}

// Version describes a build.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// Hex is a number that is written as a hexadecimal string.
type Hex uint64

func (h Hex) String() string { return fmt.Sprintf("%#x", uint64(h)) }

// MarshalText implements encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) error {
	n, err := Number(string(text), 64)
	*h = Hex(n)
	return err
}

// ErrLeadingZero is about a number that is octal to some readers and decimal to others, or has
// another base than 10 and 16.
var ErrLeadingZero = errors.New("it has a leading zero; write it in decimal without one, or in hexadecimal with 0x")

// LeadingZero reports whether a number is refused with ErrLeadingZero.
func LeadingZero(text string) bool {
	digits, zero := strings.CutPrefix(strings.TrimLeft(text, "+-"), "0")
	return zero && digits != "" && digits[0] != 'x' && digits[0] != 'X'
}

// Number reads a number of so many bits that is written in decimal, or in hexadecimal with 0x.
func Number(text string, bits int) (uint64, error) {
	if LeadingZero(text) {
		return 0, ErrLeadingZero
	}
	return strconv.ParseUint(text, 0, bits)
}
