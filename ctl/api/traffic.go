package api

import "time"

// TrafficPath is what all groups carry; a group's name behind it: what that group carries.
const TrafficPath = "/v1/traffic"

// MaxTraffic bounds the groups in a Traffic.
const MaxTraffic = 256

// Traffic has totals of groups at one moment. The difference of two answers is a rate.
type Traffic struct {
	At     time.Time      `json:"at"`
	Groups []GroupTraffic `json:"groups"` // those that are not ready, then the others, by name; at most MaxTraffic
	More   int            `json:"more"`   // groups that are left out
}

// GroupTraffic is what this box has carried of a group since the group was made, or since the
// daemon started. Bytes are bytes of payload.
type GroupTraffic struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"` // as in GroupSummary
	// Unconfirmed is as in GroupSummary. Such groups are last.
	Unconfirmed bool   `json:"unconfirmed,omitempty"`
	Carrier     string `json:"carrier,omitempty"` // the engine that carries the group now: kernel or afxdp
	Packets     uint64 `json:"packets"`           // packets of the source that were forwarded, each once
	Bytes       uint64 `json:"bytes"`
	// Copies were sent to receivers, also of packets that the source or the box sent again.
	Copies    uint64               `json:"copies"`
	CopyBytes uint64               `json:"copyBytes"`
	Mapped    uint64               `json:"mapped,omitempty"` // packets that came as copies which the box above shares between several boxes
	Resent    uint64               `json:"resent"`           // packets that the source sent again, and that a receiver lacked
	Drops     Counters             `json:"drops,omitempty"`  // frames of the group that were refused, by reason; none is 0
	Events    map[EventKind]uint64 `json:"events"`           // how often something happened to the group or its members
	// Source is there while a source that is no receiver is in trouble.
	Source    *SourceTraffic    `json:"source,omitempty"`
	Receivers []ReceiverTraffic `json:"receivers"`
	Shares    []Share           `json:"shares,omitempty"` // legs by which one copy leaves for several receivers
}

// SourceTraffic says why the source does not get on.
type SourceTraffic struct {
	IP        string `json:"ip"`
	RemoteQPN uint32 `json:"remoteQPN"`
	Trouble   string `json:"trouble"` // as in ReceiverTraffic
	Reason    string `json:"reason"`
}

// ReceiverTraffic is how far a receiver is and what it has answered.
type ReceiverTraffic struct {
	IP        string `json:"ip"`
	RemoteQPN uint32 `json:"remoteQPN"`
	Box       string `json:"box,omitempty"` // the box that is behind it, if it is another box's end of a link
	Port      string `json:"port,omitempty"`
	State     string `json:"state"`
	// Trouble says in one word why the receiver does not get on; absent: it does. Reason says it in
	// a sentence.
	Trouble      string  `json:"trouble,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	Acknowledged uint64  `json:"acknowledged"` // packets that it has acknowledged since it takes part
	Lag          uint64  `json:"lag"`          // packets that were forwarded and that it has not acknowledged
	LagSeconds   float64 `json:"lagSeconds"`   // how long ago the first of them was forwarded
	NAKs         uint64  `json:"naks"`
	RNRs         uint64  `json:"rnrs"`
	CNPs         uint64  `json:"cnps"`
	Repaired     uint64  `json:"repaired"` // packets that the box sent it again, alone or by a copy for its whole leg
}

// Why a member does not get on.
const (
	TroubleUnreachable = "unreachable"    // no way leads to it
	TroubleUnconfirmed = "unconfirmed"    // its program has not said that its QP is ready
	TroubleStalled     = "stalled"        // it acknowledges nothing, and others are further
	TroubleRefused     = "refused"        // its QP ended with a fatal NAK
	TroubleEvicted     = "evicted"        // the group no longer waits for it
	TroubleBehind      = "behind"         // it lacks what the source no longer has
	TroubleLost        = "lost"           // it was joining when the daemon crashed
	TroubleRepairing   = "repairing"      // for long it has got its data by repair alone
	TroubleUnmended    = "unmended"       // for long repair has waited for the source
	TroubleFrames      = "frames-refused" // the box refuses its frames, and it does not get on
	TroubleNoAnswer    = "no-answer"      // its host does not answer when the box asks for its MAC
)
