package dataplane

import "github.com/rocast/rocast/feedback"

// Verdict is the result for a received frame. The zero verdict is Drop.
type Verdict uint8

const (
	Drop    Verdict = iota // refused; no state changed
	Absorb                 // taken; nothing was sent because of it
	Forward                // copies or a merged answer were sent
)

var verdictNames = [...]string{Drop: "drop", Absorb: "absorb", Forward: "forward"}

func (v Verdict) String() string { return verdictNames[v] }

// Reason says why a frame got its verdict. One list serves counters, traces and tests. Its first
// part are the outcomes of merging (feedback.Outcome).
type Reason uint8

const (
	// UnknownQPN: RoCE to a group's IP, but no group at this IP has the QPN.
	UnknownQPN Reason = Reason(feedback.NumOutcomes) + iota
	// GroupGone: the group for which the frame was classified has been removed.
	GroupGone
	// Malformed: not a valid RoCEv2 frame.
	Malformed
	// UnknownOpcode: an opcode that package roce does not know.
	UnknownOpcode
	// WrongTransport: not an RC packet, for example a UD datagram.
	WrongTransport
	// BadICRC: the ICRC is wrong, or the checksum of the IPv4 header; the frame was damaged on its
	// way here.
	BadICRC
	// WrongPort: the sender's address is a member's, but no way to the member is by that port.
	WrongPort
	// WrongVLAN: a member's frame in another VLAN than the one in which frames to the member leave.
	WrongVLAN
	// WrongQPN: a member's frame to another QPN than the one that the member's QP has as peer.
	WrongQPN
	// WrongDestination: a member's frame to another address than the one that the member's QP has
	// as peer.
	WrongDestination
	// NotMember: data from a non-member.
	NotMember
	// NotSource: data from a receiver that may not become the source.
	NotSource
	// SourceBlocked: data of a member that would become the source, but not everything of the old
	// source is acknowledged yet (rule 12).
	SourceBlocked
	// SourceOutOfStep: data of a member that would become the source, but not with the PSN that it
	// sends next.
	SourceOutOfStep
	// SourceWaits: data of a member that becomes the source as soon as that is stored; it is kept
	// until then.
	SourceWaits
	// SourceAsks: a question of another box: the source asks what has been acknowledged here, or a
	// member's box requests the turn (yield.go).
	SourceAsks
	// NotReceiver: feedback from a host that is not a receiver of the group.
	NotReceiver
	// OverMTU: more payload than the group's path MTU.
	OverMTU
	// HopLimitExceeded: a packet that would be passed on, but came with a hop limit (IPv4: TTL) of
	// 1 or 0.
	HopLimitExceeded
	// UnmergeableResponse: a READ or atomic response. Groups never ask for one.
	UnmergeableResponse
	// ConnectionManagement: a CM datagram to a group, which nothing answers.
	ConnectionManagement
	// RefusedMemory: a WRITE to memory that the group does not have, or not yet. The source hears
	// NAK remote access.
	RefusedMemory
	// Relayed: a frame that was passed on unmerged, between a box above that merges and a receiver
	// of this box.
	Relayed
	// HandoffFull: the worker that owns the group does not keep up with the worker that received
	// the frame.
	HandoffFull

	NumReasons
)

var reasonNames = [NumReasons]string{
	UnknownQPN:           "unknown-qpn",
	GroupGone:            "group-gone",
	Malformed:            "malformed",
	UnknownOpcode:        "unknown-opcode",
	WrongTransport:       "wrong-transport",
	BadICRC:              "bad-icrc",
	WrongPort:            "wrong-port",
	WrongVLAN:            "wrong-vlan",
	WrongQPN:             "wrong-qpn",
	WrongDestination:     "wrong-destination",
	NotMember:            "not-member",
	NotSource:            "not-source",
	SourceBlocked:        "source-blocked",
	SourceOutOfStep:      "source-out-of-step",
	SourceWaits:          "source-waits",
	SourceAsks:           "source-asks",
	NotReceiver:          "not-receiver",
	OverMTU:              "over-mtu",
	HopLimitExceeded:     "hop-limit-exceeded",
	UnmergeableResponse:  "unmergeable-response",
	ConnectionManagement: "connection-management",
	RefusedMemory:        "refused-memory",
	Relayed:              "relayed",
	HandoffFull:          "handoff-full",
}

func (r Reason) String() string {
	if r < Reason(feedback.NumOutcomes) {
		return feedback.Outcome(r).String()
	}
	return reasonNames[r]
}

// Verdict returns the verdict of frames with this reason.
func (r Reason) Verdict() Verdict {
	switch r {
	case Reason(feedback.Forwarded), Reason(feedback.Resent), Reason(feedback.Merged), Reason(feedback.CNPPassed),
		Reason(feedback.Repaired), Relayed:
		return Forward
	case Reason(feedback.Filtered), Reason(feedback.Absorbed), Reason(feedback.Held), Reason(feedback.Swallowed),
		Reason(feedback.Duplicate), Reason(feedback.Stale), Reason(feedback.Refused),
		Reason(feedback.Evicted), Reason(feedback.Behind), Reason(feedback.CNPFiltered), Reason(feedback.Gap),
		RefusedMemory, SourceWaits, SourceAsks:
		return Absorb
	}
	return Drop
}
