package rnic

import (
	"fmt"

	"github.com/rocast/rocast/roce"
)

// Counter names one thing a queue pair counts.
type Counter uint8

// Frames refused before they reach requester or responder, in the order of the checks.
const (
	RejectMalformed   Counter = iota // no RoCEv2 frame, or its lengths disagree
	RejectTVer                       // transport header version is not 0
	RejectOpcode                     // unknown, or of another service than RC
	RejectDstMAC                     // not ours
	RejectIPChecksum                 // IPv4 header checksum wrong
	RejectUDPChecksum                // non-zero and wrong
	RejectDstIP                      // not ours
	RejectQPN                        // not ours
	RejectState                      // not connected yet, or in error
	RejectSrcIP                      // not the peer's
	RejectPKey                       // not the default partition
	RejectICRC                       // wrong
	RejectResponse                   // READ response or atomic ACK: nothing of ours asks for one

	// Responder.
	RequestsExecuted
	RequestsDuplicate     // PSN already executed: re-ACKed
	RequestsOutOfOrder    // PSN beyond the expected one: the first of a gap is NAKed, the rest dropped
	RequestsNotReady      // no receive posted: RNR NAK
	RequestsBadRKey       // no region has this key
	RequestsBadRange      // not all of it inside the region
	RequestsBadAccess     // region is not remotely writable
	RequestsBadSequence   // FIRST, MIDDLE, LAST in the wrong order
	RequestsBadLength     // payload, pad or message length
	RequestsRefused       // READ, atomic, FLUSH, invalidate
	MessagesReceived      // what MSN counts
	PayloadBytesReceived  // of executed requests
	ACKsSent              // with duplicates' re-ACKs
	NAKSequenceSent       // one per gap
	NAKInvalidRequestSent // and this queue pair is in error
	NAKRemoteAccessSent   // and this queue pair is in error
	RNRNAKsSent           // one per request without a receive
	CongestionMarks       // requests that arrived with one, if the queue pair sends CNPs
	CNPsSent              // congestion notifications

	// Requester.
	MessagesSent           // completed with success
	FramesRetransmitted    // requests whose PSN had been sent before
	GoBacks                // times the requester went back to the oldest unacknowledged PSN
	Timeouts               // retransmit timer expired with something outstanding
	ACKsReceived           // syndrome ACK
	NAKSequenceReceived    // NAK PSN sequence error
	RNRNAKsReceived        // receiver not ready
	NAKFatalReceived       // every other syndrome
	CNPsReceived           // only counted
	ResponsesStale         // PSN before the oldest unacknowledged one
	ResponsesWhilePosted   // nothing outstanding, or the oldest message waits to be resent: ignored
	ResponsesPastHead      // beyond what the oldest message can take, as it is half sent or a READ: ignored
	ResponsesAheadOfResend // PSN was sent once, but this go-back has not reached it again: it can make rxe hang
	NAKsIgnored            // a second NAK before any ACK
	CreditWaits            // messages that waited for the peer's credits before they were sent
	ACKsWrongMSN           // MSN does not fit the PSN: credit-keeping NICs would drop or misread it

	// Violations: no responder may say this, and rxe breaks when told.
	ViolationBeyondSent // response to a PSN never sent
	ViolationACKForREAD // plain ACK of a READ, whose data never came

	NumCounters
)

var counterNames = [NumCounters]string{
	RejectMalformed: "reject_malformed", RejectTVer: "reject_tver", RejectOpcode: "reject_opcode",
	RejectDstMAC: "reject_dst_mac", RejectIPChecksum: "reject_ip_checksum", RejectUDPChecksum: "reject_udp_checksum",
	RejectDstIP: "reject_dst_ip", RejectQPN: "reject_qpn", RejectState: "reject_state", RejectSrcIP: "reject_src_ip",
	RejectPKey: "reject_pkey", RejectICRC: "reject_icrc", RejectResponse: "reject_response",
	RequestsExecuted: "requests_executed", RequestsDuplicate: "requests_duplicate",
	RequestsOutOfOrder: "requests_out_of_order", RequestsNotReady: "requests_not_ready",
	RequestsBadRKey: "requests_bad_rkey", RequestsBadRange: "requests_bad_range", RequestsBadAccess: "requests_bad_access",
	RequestsBadSequence: "requests_bad_sequence", RequestsBadLength: "requests_bad_length",
	RequestsRefused: "requests_refused", MessagesReceived: "messages_received",
	PayloadBytesReceived: "payload_bytes_received", ACKsSent: "acks_sent", NAKSequenceSent: "nak_sequence_sent",
	NAKInvalidRequestSent: "nak_invalid_request_sent", NAKRemoteAccessSent: "nak_remote_access_sent",
	RNRNAKsSent: "rnr_naks_sent", CongestionMarks: "congestion_marks", CNPsSent: "cnps_sent", CreditWaits: "credit_waits",
	CNPsReceived: "cnps_received", MessagesSent: "messages_sent",
	FramesRetransmitted: "frames_retransmitted", GoBacks: "go_backs", Timeouts: "timeouts",
	ACKsReceived: "acks_received", NAKSequenceReceived: "nak_sequence_received", RNRNAKsReceived: "rnr_naks_received",
	NAKFatalReceived: "nak_fatal_received", ResponsesStale: "responses_stale",
	ResponsesWhilePosted: "responses_while_posted", ResponsesPastHead: "responses_past_head",
	ResponsesAheadOfResend: "responses_ahead_of_resend", NAKsIgnored: "naks_ignored", ACKsWrongMSN: "acks_wrong_msn",
	ViolationBeyondSent: "violation_beyond_sent", ViolationACKForREAD: "violation_ack_for_read",
}

// String is the counter's stable name.
func (c Counter) String() string {
	if c < NumCounters {
		return counterNames[c]
	}
	return fmt.Sprintf("Counter(%d)", uint8(c))
}

// rcOpcodes is how many operations the five low bits of an RC opcode can name.
const rcOpcodes = 32

// Counters is everything one queue pair has counted. It is a plain value: copy it to keep it.
type Counters struct {
	Count     [NumCounters]uint64
	FramesIn  [rcOpcodes]uint64 // accepted, by RC opcode
	FramesOut [rcOpcodes]uint64
}

// Get is one counter's value.
func (c *Counters) Get(which Counter) uint64 { return c.Count[which] }

// Add adds another queue pair's counters.
func (c *Counters) Add(other *Counters) {
	for i, n := range other.Count {
		c.Count[i] += n
	}
	for i := range rcOpcodes {
		c.FramesIn[i] += other.FramesIn[i]
		c.FramesOut[i] += other.FramesOut[i]
	}
}

// Rejected is the number of frames refused before they reached requester or responder.
func (c *Counters) Rejected() (n uint64) {
	for _, count := range c.Count[:RejectResponse+1] {
		n += count
	}
	return n
}

// Violations is the number of responses no correct responder, and no correct switch, may send.
func (c *Counters) Violations() uint64 {
	return c.Count[ViolationBeyondSent] + c.Count[ViolationACKForREAD]
}

// ByName is every counter that is not zero: its name, or in_ and out_ with an opcode's.
func (c *Counters) ByName() map[string]uint64 {
	named := map[string]uint64{}
	put := func(name string, n uint64) {
		if n != 0 {
			named[name] = n
		}
	}
	for i, n := range c.Count {
		put(counterNames[i], n)
	}
	for i := range rcOpcodes {
		put("in_"+roce.Opcode(i).String(), c.FramesIn[i])
		put("out_"+roce.Opcode(i).String(), c.FramesOut[i])
	}
	return named
}
