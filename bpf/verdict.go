package bpf

import "fmt"

// Verdict is what became of a frame. Each frame the classifier sees moves the counter of exactly one.
type Verdict uint32

const (
	// PassTruncated: the frame, in a multi-buffer frame its first buffer, ends before the BTH does.
	PassTruncated = Verdict(classifierRocastVerdictPASS_TRUNCATED)
	// PassNotIP: neither IPv4 nor IPv6 behind at most two VLAN tags.
	PassNotIP = Verdict(classifierRocastVerdictPASS_NOT_IP)
	// PassFragment: an IP fragment, the first included.
	PassFragment = Verdict(classifierRocastVerdictPASS_FRAGMENT)
	// PassIPOptions: IPv4 options or IPv6 extension headers.
	PassIPOptions = Verdict(classifierRocastVerdictPASS_IP_OPTIONS)
	// PassNotUDP: another IP protocol.
	PassNotUDP = Verdict(classifierRocastVerdictPASS_NOT_UDP)
	// PassNotRoCE: a UDP destination port other than 4791.
	PassNotRoCE = Verdict(classifierRocastVerdictPASS_NOT_ROCE)
	// PassNoGroup: RoCEv2, but none of a group's.
	PassNoGroup = Verdict(classifierRocastVerdictPASS_NO_GROUP)
	// PassNoSocket: a group's, but the queue it came in by has no socket.
	PassNoSocket = Verdict(classifierRocastVerdictPASS_NO_SOCKET)
	// PassMetaFailed: a group's, but the driver leaves no room for metadata in front of the frame.
	PassMetaFailed = Verdict(classifierRocastVerdictPASS_META_FAILED)
	// DropOwnSource: RoCEv2 from an address that the box speaks for (MatchSrc). It would reach the source's QP as a merged
	// acknowledgement. The only verdict that drops a frame.
	DropOwnSource = Verdict(classifierRocastVerdictDROP_OWN_SOURCE)
	// RedirectData, RedirectFeedback, RedirectCNP, RedirectCM: handed to the queue's socket as that [Kind].
	RedirectData     = Verdict(classifierRocastVerdictREDIRECT_DATA)
	RedirectFeedback = Verdict(classifierRocastVerdictREDIRECT_FEEDBACK)
	RedirectCNP      = Verdict(classifierRocastVerdictREDIRECT_CNP)
	RedirectCM       = Verdict(classifierRocastVerdictREDIRECT_CM)

	// Verdicts is how many there are.
	Verdicts = int(classifierRocastVerdictVERDICTS)
)

// The names are metric labels: stable.
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
	RedirectData:     "redirect_data",
	RedirectFeedback: "redirect_feedback",
	RedirectCNP:      "redirect_cnp",
	RedirectCM:       "redirect_cm",
}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint32(v))
}

// Counters is how many frames got each verdict, on all ports since Load, indexed by Verdict.
type Counters [Verdicts]uint64
