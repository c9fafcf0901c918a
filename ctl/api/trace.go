package api

// TraceRequest asks what would happen with a frame that came by a port now.
type TraceRequest struct {
	Port  string `json:"port"`
	Frame []byte `json:"frame"` // from the Ethernet header to the ICRC, at most SnapMost bytes
}

// Decisions of the classifier.
const (
	ToGroup   = "to-group"
	ToKernel  = "to-kernel"  // no group's: the kernel gets it
	OwnSource = "own-source" // dropped: it comes from an address that only the box sends from
)

// Trace says what would happen with a frame.
type Trace struct {
	Class string `json:"class"`
	Group string `json:"group,omitempty"` // with ToGroup; absent: only the address is a group's
	// Carried: the kernel engine has the group now, and sends these copies by itself.
	Carried bool `json:"carried,omitempty"`
	// GivesBack: the kernel engine has the group now, and gives it back because of this frame: the
	// counter that says why.
	GivesBack string `json:"givesBack,omitempty"`
	// Frames are the frame itself, if it is to-group, and then everything that would be sent
	// because of it, whole.
	Frames []CapturedFrame `json:"frames"`
	Notes  []TraceNote     `json:"notes,omitempty"`
}

// TraceNote is what would be told to the operator.
type TraceNote struct {
	Member string `json:"member"`
	What   string `json:"what"`
}
