package feedback

import "github.com/rocast/rocast/roce"

// path is what is known about one receiver. There is one for each receiver of each group, so its
// fields are ordered for size (docs/evaluation.md#memory).
//
// A pending NAK is always for acked+1: a NAK acknowledges everything below its PSN, and a later ACK
// clears it.
type path struct {
	since   Tick // when it last made progress or began to lack something (rule 8)
	acked   roce.PSN
	msn     roce.MSN      // the MSN of its last answer (rule 6)
	from    roce.PSN      // the first packet it got after it joined; means something while fresh
	cnps    uint16        // its congestion notifications, ageing (rule 10)
	pending roce.Syndrome // the NAK that the source was not sent yet, or the one that ended the QP; 0: none
	credit  roce.CreditCode
	part    Part
	migReq  bool
	silent  silence
	fresh   bool  // a quorum does not count it yet (isFresh)
	lack    lack  // what its NAKs have shown of acked+1 (rule 9)
	follows bool  // the switch served its NAK in this round of the source (rule 9)
	unheard uint8 // packets that it should have answered while in doubt, and did not (rule 9)
	told    bool  // after a restart: it has answered a question with acked (asked.go)
}

// silence is what was reported of a path that does not get on.
type silence uint8

const (
	silenceNone  silence = iota
	silenceTotal         // it makes no progress (rule 8)
	silenceReady         // it had no receive for long, and still lacks what the source has let go of (neverReady)
	silenceEmpty         // the NAK that ended it says that no receiver is left behind it (rule 7)
)

// creditNone is the credit of a path that has not sent an ACK yet. It is no code of the wire.
const creditNone roce.CreditCode = 0xFF

// Part is how a path takes part in its group.
type Part uint8

const (
	// PartActive gets data and is waited for.
	PartActive Part = iota
	// PartUnknown is a path after a restart that has not answered yet. It gets data.
	PartUnknown
	// PartJoining gets data from the next message on.
	PartJoining
	// PartDead has ended its QP with a fatal NAK. It gets no data, and it is waited for in vain,
	// so that nothing it lacks is acknowledged (rule 7).
	PartDead
	// PartBehind lacks a packet that the source no longer has. It gets no data and is not waited
	// for (rule 9).
	PartBehind
	// PartGone was evicted, or is the path of the source itself. It gets no data and is not waited
	// for.
	PartGone
	// PartWaiting joins when the caller says that its QP can receive (Rearrange), or when too few
	// receivers are left without it. Before, it gets no data and is not waited for.
	PartWaiting
)

var partNames = [...]string{
	PartActive: "active", PartUnknown: "unknown", PartJoining: "joining",
	PartDead: "dead", PartBehind: "behind", PartGone: "gone", PartWaiting: "waiting",
}

func (p Part) String() string { return partNames[p] }

// takesData reports whether the path gets copies.
func (p Part) takesData() bool { return p == PartActive || p == PartUnknown }

// IsToCome reports whether the path has got no data yet.
func (p Part) IsToCome() bool { return p == PartJoining || p == PartWaiting }

// counts reports whether the ack policy looks at the path.
func (p Part) counts() bool { return !p.IsToCome() && p != PartBehind && p != PartGone }

// counted reports whether the ack policy looks at the path now.
func (p *path) counted() bool { return p.part.counts() && !p.fresh }

// pendingNAKs counts the paths with a pending NAK of either kind, so that a packet that finds none
// costs no walk over the paths.
type pendingNAKs struct {
	sequence int
	rnr      int
}

func (n *pendingNAKs) add(s roce.Syndrome, paths int) {
	switch {
	case s == roce.NAKSequence:
		n.sequence += paths
	case s.IsRNR():
		n.rnr += paths
	}
}
