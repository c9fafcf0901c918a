package scale

import "github.com/rocast/rocast/roce"

type packetKind uint8

const (
	data   packetKind = iota // a request
	answer                   // an ACK or NAK
	notice                   // a congestion notification
)

// packet is what the simulator knows of a packet on a link.
type packet struct {
	// flow is the group or the connection to which the packet belongs.
	flow int32
	// A group's packet goes to the box or receiver number to, or comes from path of box to; from
	// the root box to is nobody, because it goes to the source. A packet of a connection is at link
	// number path of its way.
	to, path int32

	psn      roce.PSN
	msn      roce.MSN // of an answer
	bytes    uint16   // of the frame
	kind     packetKind
	syndrome roce.Syndrome
	group    bool // flow is a group
	ackReq   bool
	first    bool // packet of a message
	last     bool
	marked   bool // has met congestion
}

// Bytes of the frames of answers: Ethernet, IPv4, UDP, BTH, AETH or the body of a CNP, and ICRC.
const (
	answerBytes = 14 + 20 + 8 + roce.BTHBytes + roce.AETHBytes + 4
	noticeBytes = 14 + 20 + 8 + roce.BTHBytes + roce.CNPBytes + 4
)
