package feedback

// Cause is why the source is sent a NAK or an RNR NAK. Each one that it hears is counted under its
// cause, so that a source that goes back without any loss can be explained.
type Cause uint8

const (
	_ Cause = iota // the reply is an ACK
	// CauseReceiver: a receiver asked for the packet, and it is the source's to send again.
	CauseReceiver
	// CauseNotReady: a receiver had posted no receive, and the source has to wait.
	CauseNotReady
	// CauseGap: a packet of the source did not come, and later ones did.
	CauseGap
	// CauseSilentSource: the source fell silent, and what it sent last may be lost.
	CauseSilentSource
	// CauseUnheard: the source did not come where it was called to.
	CauseUnheard
	// CauseDoubt: after a restart another member would be the source, and it is in doubt what this
	// one has sent.
	CauseDoubt
	// CauseEnd: its QP ends, because a receiver's has, a request was refused or nobody is left.
	CauseEnd

	NumCauses
)

var causeNames = [NumCauses]string{
	CauseReceiver: "receiver", CauseNotReady: "not-ready", CauseGap: "gap",
	CauseSilentSource: "silent-source", CauseUnheard: "unheard", CauseDoubt: "doubt", CauseEnd: "end",
}

func (c Cause) String() string { return causeNames[c] }

// because gives the last reply its cause.
func because(acts []Action, c Cause) []Action {
	acts[len(acts)-1].Cause = c
	return acts
}
