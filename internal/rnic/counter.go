package rnic

import (
	"fmt"

	"github.com/rocast/rocast/roce"
)

// Counter names something that a queue pair counts.
type Counter uint8

// Frames that are refused before they reach requester or responder, in the order of the checks.
const (
	RejectMalformed   Counter = iota // not a RoCEv2 frame, or its lengths disagree
	RejectTVer                       // the transport header version is not 0
	RejectOpcode                     // unknown, or not of the RC service
	RejectDstMAC                     // of another host
	RejectIPChecksum                 // the IPv4 header checksum is wrong
	RejectUDPChecksum                // the UDP checksum is not 0, and wrong
	RejectDstIP                      // of another host
	RejectQPN                        // of another queue pair
	RejectState                      // the queue pair is not connected yet, or in error
	RejectSrcIP                      // not that of the peer
	RejectPKey                       // not the default partition
	RejectICRC                       // the ICRC is wrong
	RejectResponse                   // READ response or atomic ACK, which no request here asks for

	// Responder.
	RequestsExecuted
	RequestsDuplicate     // the PSN was executed already; it is acknowledged again
	RequestsOutOfOrder    // the PSN is beyond the expected one; the first of a gap gets a NAK
	RequestsNotReady      // no receive is posted; an RNR NAK answers
	RequestsBadRKey       // no region has this key
	RequestsBadRange      // the request reaches beyond the region
	RequestsBadAccess     // the region is not writable for the peer
	RequestsBadSequence   // FIRST, MIDDLE and LAST are in the wrong order
	RequestsBadLength     // of the payload, the pad or the message
	RequestsRefused       // READ, atomic, FLUSH, invalidate
	MessagesReceived      // the messages that MSN counts
	PayloadBytesReceived  // of executed requests
	ACKsSent              // those of duplicates too
	NAKSequenceSent       // one for each gap
	NAKInvalidRequestSent // and this queue pair is in error
	NAKRemoteAccessSent   // and this queue pair is in error
	RNRNAKsSent           // one for each request without a receive
	CongestionMarks       // marked requests, if the queue pair sends CNPs
	CNPsSent              // congestion notifications

	// Requester.
	MessagesSent           // that completed with success
	FramesRetransmitted    // requests whose PSN was sent before
	GoBacks                // times the requester went back to the oldest unacknowledged PSN
	Timeouts               // the retransmit timer ran out while something was outstanding
	ACKsReceived           // syndrome ACK
	NAKSequenceReceived    // NAK PSN sequence error
	RNRNAKsReceived        // receiver not ready
	NAKFatalReceived       // every other syndrome
	CNPsReceived           // without Config.RateControl they have no effect
	ResponsesStale         // the PSN is before the oldest unacknowledged one
	ResponsesWhilePosted   // ignored: nothing is outstanding, or the oldest message waits
	ResponsesPastHead      // ignored: the oldest message is half sent, or a READ
	ResponsesAheadOfResend // the resend has not reached what they acknowledge; can make rxe hang
	NAKsIgnored            // a second NAK before an ACK
	CreditWaits            // messages that waited for the peer's credits before they were sent
	NAKsOfNext             // for the first PSN that was never sent: a box asks after a restart whether it was
	ACKsWrongMSN           // the MSN does not fit the PSN; a NIC with credits misreads it

	// Violations: responses that no responder may send, and that break rxe.
	ViolationBeyondSent // a response to a PSN that was never sent
	ViolationACKForREAD // a plain ACK of a READ, whose data did not come

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
	ResponsesAheadOfResend: "responses_ahead_of_resend", NAKsIgnored: "naks_ignored", NAKsOfNext: "naks_of_next", ACKsWrongMSN: "acks_wrong_msn",
	ViolationBeyondSent: "violation_beyond_sent", ViolationACKForREAD: "violation_ack_for_read",
}

// String is the stable name of the counter.
func (c Counter) String() string {
	if c < NumCounters {
		return counterNames[c]
	}
	return fmt.Sprintf("Counter(%d)", uint8(c))
}

// rcOpcodes is how many operations the low five bits of an RC opcode can name.
const rcOpcodes = 32

// Counters is everything that one queue pair has counted. It is a plain value: a copy stays as it
// is.
type Counters struct {
	Count     [NumCounters]uint64
	FramesIn  [rcOpcodes]uint64 // accepted frames, by RC opcode
	FramesOut [rcOpcodes]uint64
}

// Get returns the value of one counter.
func (c *Counters) Get(which Counter) uint64 { return c.Count[which] }

// Add adds the counters of another queue pair.
func (c *Counters) Add(other *Counters) {
	for i, n := range other.Count {
		c.Count[i] += n
	}
	for i := range rcOpcodes {
		c.FramesIn[i] += other.FramesIn[i]
		c.FramesOut[i] += other.FramesOut[i]
	}
}

// Rejected returns the number of frames that were refused before they reached requester or
// responder.
func (c *Counters) Rejected() (n uint64) {
	for _, count := range c.Count[:RejectResponse+1] {
		n += count
	}
	return n
}

// Violations returns the number of responses that no correct responder, and no correct switch, may
// send.
func (c *Counters) Violations() uint64 {
	return c.Count[ViolationBeyondSent] + c.Count[ViolationACKForREAD]
}

// ByName returns every counter that is not zero under its name, which is in_ or out_ and the opcode
// for a count of frames.
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
