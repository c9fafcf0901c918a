package copying

// Events, as --json prints them.
const (
	Joined   = "joined"   // a receiver has reported to its source: Host
	Progress = "progress" // Bytes of Total; Slowest is the receiver that has least; Rate in bytes a second
	Gone     = "gone"     // a receiver takes no part any more: Host, Reason
	LeftOut  = "left-out" // a file is not copied: Path, Reason
	FromPeer = "peer"     // Host, another receiver, has given Files, or with Reason gives nothing any more
	Way      = "way"      // how the messages go from now on: Reason
	Done     = "done"     // the end of one that was complete
)

// Event is something that happens during a copy. Fields that do not belong to it are empty.
type Event struct {
	Event   string  `json:"event"`
	Host    string  `json:"host,omitempty"`
	Path    string  `json:"path,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Total   int64   `json:"total,omitempty"`
	Files   int64   `json:"files,omitempty"`
	Slowest string  `json:"slowest,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
	Left    float64 `json:"left,omitempty"` // seconds, as far as one can know
}
