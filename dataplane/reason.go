package dataplane

import "github.com/rocast/rocast/feedback"

// Verdict is what became of a received frame. The zero verdict is Drop.
type Verdict uint8

const (
	Drop    Verdict = iota // against the rules; nothing moved
	Absorb                 // it did its work here
	Forward                // copies or a merged answer went out
)

var verdictNames = [...]string{Drop: "drop", Absorb: "absorb", Forward: "forward"}

func (v Verdict) String() string { return verdictNames[v] }

// Reason says why. One list feeds counters, traces and tests; its first part
// is what merging makes of a frame (feedback.Outcome).
type Reason uint8

const (
	// UnknownQPN: RoCE to a group's IP, but no group there has this QPN.
	UnknownQPN Reason = Reason(feedback.NumOutcomes) + iota
	// GroupGone: classified for a group that has been removed since.
	GroupGone
	// Malformed: not a RoCEv2 frame when looked at closely.
	Malformed
	// UnknownOpcode: an opcode the wire package does not know.
	UnknownOpcode
	// WrongTransport: not an RC packet, a UD datagram for instance.
	WrongTransport
	// BadICRC: damaged on its way here.
	BadICRC
	// WrongPort: a member's address on another port than the member's.
	WrongPort
	// WrongVLAN: a member's frame in another VLAN than frames to the member leave in.
	WrongVLAN
	// WrongQPN: a member's frame whose dest QPN is not its own leg's.
	WrongQPN
	// WrongDestination: the frame is not addressed to what the group is reached by.
	WrongDestination
	// NotMember: data from who is no member of the group.
	NotMember
	// NotSource: data from a receiver that may not become the source.
	NotSource
	// SourceBlocked: a member would become the source, but something of the
	// old one is not acknowledged yet (rule 12).
	SourceBlocked
	// SourceOutOfStep: a member would become the source with a PSN that is not
	// its next.
	SourceOutOfStep
	// NotReceiver: feedback from who is not a receiver of the group.
	NotReceiver
	// OverMTU: more payload than the group's path MTU.
	OverMTU
	// HopLimitExceeded: a packet to be passed on whose hop limit (IPv4: TTL) is used up.
	HopLimitExceeded
	// UnmergeableResponse: a READ or atomic response, which no group asks for.
	UnmergeableResponse
	// ConnectionManagement: a CM datagram to a group; no helper answers it.
	ConnectionManagement
	// HandoverFull: the worker that owns the group does not keep up.
	HandoverFull

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
	NotReceiver:          "not-receiver",
	OverMTU:              "over-mtu",
	HopLimitExceeded:     "hop-limit-exceeded",
	UnmergeableResponse:  "unmergeable-response",
	ConnectionManagement: "connection-management",
	HandoverFull:         "handover-full",
}

func (r Reason) String() string {
	if r < Reason(feedback.NumOutcomes) {
		return feedback.Outcome(r).String()
	}
	return reasonNames[r]
}

// Verdict says what a frame with this reason met.
func (r Reason) Verdict() Verdict {
	switch r {
	case Reason(feedback.Forwarded), Reason(feedback.Resent), Reason(feedback.Merged), Reason(feedback.CNPPassed):
		return Forward
	case Reason(feedback.Filtered), Reason(feedback.Absorbed), Reason(feedback.Held), Reason(feedback.Swallowed),
		Reason(feedback.Duplicate), Reason(feedback.Stale), Reason(feedback.Refused),
		Reason(feedback.Evicted), Reason(feedback.Behind), Reason(feedback.CNPFiltered):
		return Absorb
	}
	return Drop
}
