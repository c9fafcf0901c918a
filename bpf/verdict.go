package bpf

import "fmt"

// Verdict is the classifier's decision about a frame. Each frame moves the counter of exactly one
// verdict.
type Verdict uint32

const (
	// PassTruncated: the frame (or, of several buffers, the first one) ends before the end of the
	// BTH.
	PassTruncated = Verdict(programsRocastVerdictPASS_TRUNCATED)
	// PassNotIP: neither IPv4 nor IPv6, behind at most two VLAN tags.
	PassNotIP = Verdict(programsRocastVerdictPASS_NOT_IP)
	// PassFragment: an IP fragment, the first included.
	PassFragment = Verdict(programsRocastVerdictPASS_FRAGMENT)
	// PassIPOptions: IPv4 options or IPv6 extension headers.
	PassIPOptions = Verdict(programsRocastVerdictPASS_IP_OPTIONS)
	// PassNotUDP: another IP protocol.
	PassNotUDP = Verdict(programsRocastVerdictPASS_NOT_UDP)
	// PassNotRoCE: a UDP destination port other than 4791.
	PassNotRoCE = Verdict(programsRocastVerdictPASS_NOT_ROCE)
	// PassNoGroup: RoCEv2 that belongs to no group.
	PassNoGroup = Verdict(programsRocastVerdictPASS_NO_GROUP)
	// PassNoSocket: a group's frame, but the queue on which it arrived has no socket.
	PassNoSocket = Verdict(programsRocastVerdictPASS_NO_SOCKET)
	// PassMetaFailed: a group's frame, but the driver leaves no room for metadata in front of it.
	PassMetaFailed = Verdict(programsRocastVerdictPASS_META_FAILED)
	// DropOwnSource: RoCEv2 from an address that only the box sends from (MatchSrc). A bridge would
	// deliver it to the source as a merged ACK. No other verdict loses what the frame says.
	DropOwnSource = Verdict(programsRocastVerdictDROP_OWN_SOURCE)
	// DropMerged: the kernel merged a receiver's ACK, and the source does not hear of it yet.
	DropMerged = Verdict(programsRocastVerdictDROP_MERGED)
	// RedirectData, RedirectFeedback, RedirectCNP, RedirectCM: redirected to the queue's socket as
	// a frame of that [Kind].
	RedirectData     = Verdict(programsRocastVerdictREDIRECT_DATA)
	RedirectFeedback = Verdict(programsRocastVerdictREDIRECT_FEEDBACK)
	RedirectCNP      = Verdict(programsRocastVerdictREDIRECT_CNP)
	RedirectCM       = Verdict(programsRocastVerdictREDIRECT_CM)

	// RedirectFanOut: the kernel sent the frame to every path of its group.
	RedirectFanOut = Verdict(programsRocastVerdictREDIRECT_FAN_OUT)
	// RedirectMerged: the kernel merged a receiver's ACK and made it the ACK to the source.
	RedirectMerged = Verdict(programsRocastVerdictREDIRECT_MERGED)

	// Verdicts is the number of verdicts.
	Verdicts = int(programsRocastVerdictVERDICTS)
)

// The names are labels of metrics and must not change.
var verdictNames = [Verdicts]string{
	PassTruncated:    "pass_truncated",
	PassNotIP:        "pass_not_ip",
	PassFragment:     "pass_fragment",
	PassIPOptions:    "pass_ip_options",
	PassNotUDP:       "pass_not_udp",
	PassNotRoCE:      "pass_not_roce",
	PassNoGroup:      "pass_no_group",
	PassNoSocket:     "pass_no_socket",
	PassMetaFailed:   "pass_meta_failed",
	DropOwnSource:    "drop_own_source",
	DropMerged:       "drop_merged",
	RedirectData:     "redirect_data",
	RedirectFeedback: "redirect_feedback",
	RedirectCNP:      "redirect_cnp",
	RedirectCM:       "redirect_cm",
	RedirectFanOut:   "redirect_fan_out",
	RedirectMerged:   "redirect_merged",
}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint32(v))
}

// Counters counts the frames of each verdict on all ports since Load, indexed by Verdict.
type Counters [Verdicts]uint64
