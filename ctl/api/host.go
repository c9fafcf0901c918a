package api

// HostRequest is what the program on a host says about its queue pair when it joins a group. The
// host's IP is the one from which its connection comes.
type HostRequest struct {
	Role    string `json:"role"` // receiver, source or both
	QPN     uint32 `json:"qpn"`
	PSN     uint32 `json:"psn"`               // the first PSN that a source sends, or that the QP of another member expects
	SendPSN uint32 `json:"sendPSN,omitempty"` // only with role both: the first PSN that the member sends
	// Members is how many hosts the group waits for, this one included. All of them say the same.
	Members int `json:"members"`
	MTU     int `json:"mtu"` // the largest path MTU of the host; the group has the smallest of all hosts
	// Regions are what a source may WRITE to. All receivers have equally many of them.
	Regions []Region `json:"regions,omitempty"`
	// Port is the TCP port at which the host's program answers the other members.
	Port uint16 `json:"port,omitempty"`
	// Secret keeps other hosts out: all members show the one that the group's first member gave. It
	// has up to 64 letters, digits and characters of -_.+/=.
	Secret string `json:"secret,omitempty"`
	// Policy is the policy of the group, KEY=VALUE,..., with the keys that a group file has:
	// repair=off,nak=lower. Hosts that say something of it say the same. Absent: whatever the
	// others say.
	Policy string `json:"policy,omitempty"`
	// Ready says that the host is a member, and that its QP is in state RTS. Such a request asks
	// only how the group is.
	Ready bool `json:"ready,omitempty"`
}

// States of a HostGroup.
const (
	HostGathering = "gathering" // the box waits for more hosts
	HostRunning   = "running"   // the group is there
	HostEnded     = "ended"     // a member has ended the group, or nobody can send without one that has left; Reason says who
)

// HostGroup is what a host has to know about a group.
type HostGroup struct {
	Name  string `json:"name"`
	State string `json:"state"` // gathering, running or ended
	// Version differs if anything else in the answer does, except for the reason.
	Version string `json:"version"`
	// Came are the hosts that have come, while the group waits for more.
	Came []string `json:"came,omitempty"`

	// What follows is absent while the group waits for hosts. If it has ended, only Reason is
	// there.

	IP      string       `json:"ip,omitempty"` // the peer of the host's QP
	QPN     uint32       `json:"qpn,omitempty"`
	MTU     int          `json:"mtu,omitempty"`
	Memory  []Region     `json:"memory,omitempty"` // to which a source WRITEs
	Members []HostMember `json:"members,omitempty"`
	// Ack says which receivers have a packet before the source hears so, if these are not all:
	// quorum N. Evicts: the group may go on without a receiver, which then lacks what follows.
	Ack    string `json:"ack,omitempty"`
	Evicts bool   `json:"evicts,omitempty"`
	// ClearToSend: every member is reached and has said that its QP is ready.
	ClearToSend bool `json:"clearToSend"`
	// Degraded: packets hardly get on, or the group could not be set up. A source goes another way.
	Degraded bool   `json:"degraded"`
	Reason   string `json:"reason,omitempty"`
}

// HostMember is a member as other members know it.
type HostMember struct {
	IP   string `json:"ip"`
	Role string `json:"role"`
	Port uint16 `json:"port,omitempty"` // see HostRequest; absent: unknown
}
