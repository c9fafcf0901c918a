package feedback

// RepairTally counts what repair did, over all paths and sources.
type RepairTally struct {
	Probes  uint64             // packets that were sent again to a silent path
	Called  uint64             // times that the silent source was sent back to its newest packet
	GivenUp [NumGivenUp]uint64 // times that a packet was left to the source, by reason
}

// GivenUp is why repair leaves a packet to the source.
type GivenUp uint8

const (
	// GivenUpAttempts: the path made no progress in as many attempts as the policy allows.
	GivenUpAttempts GivenUp = iota
	// GivenUpRNR: the path has no receive, and asks for a time that the source has to wait.
	GivenUpRNR
	// GivenUpNotRetained: the packet is not retained any more.
	GivenUpNotRetained

	NumGivenUp
)

var givenUpNames = [NumGivenUp]string{
	GivenUpAttempts: "attempts", GivenUpRNR: "rnr", GivenUpNotRetained: "not-retained",
}

func (u GivenUp) String() string { return givenUpNames[u] }

// RepairTally returns the counts so far.
func (rp *repair) RepairTally() RepairTally { return rp.tally }
