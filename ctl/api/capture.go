package api

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Kinds of captured frames. Each frame has one of them.
const (
	CaptureData     = "data"     // data that was taken, and its copies
	CaptureFeedback = "feedback" // acknowledge packets and CNPs: those taken, and those sent to the source
	CaptureDrop     = "drop"     // what was refused, and what was to be sent and was lost
)

// Bounds of a capture.
const (
	SnapDefault = 128 // bytes of each frame; the headers of every RoCE packet fit
	SnapMost    = 4608
	SampleMost  = 1 << 20
)

// CaptureQuery says which frames are to be captured. The zero value means all.
type CaptureQuery struct {
	Group  string   // only frames of this group, and those to its address that belong to no group
	Kinds  []string // none: all
	Sample int      // about one in so many received frames, with all that is sent because of it; 0: all
	Snap   int      // bytes of each frame, from SnapDefault to SnapMost; 0: SnapDefault
}

// Values returns the query as a URL has it.
func (q CaptureQuery) Values() url.Values {
	v := url.Values{}
	set := func(key, text, all string) {
		if text != all {
			v.Set(key, text)
		}
	}
	set("group", q.Group, "")
	set("kind", strings.Join(q.Kinds, ","), "")
	set("sample", strconv.Itoa(q.Sample), "0")
	set("snap", strconv.Itoa(q.Snap), "0")
	return v
}

// CaptureLine is one line of the answer to a CaptureQuery: either a frame, or how far the capture
// is. The first line comes when the capture has begun. A line with Progress follows the frames that
// belong together: a received frame and all that was sent because of it.
type CaptureLine struct {
	Frame    *CapturedFrame   `json:"frame,omitempty"`
	Progress *CaptureProgress `json:"progress,omitempty"`
}

// CaptureProgress says how far a capture is.
type CaptureProgress struct {
	Captured uint64 `json:"captured"`
	Lost     uint64 `json:"lost"`            // frames that found no room: the reader is too slow
	Ended    string `json:"ended,omitempty"` // why the capture has ended; absent: it goes on
}

// CapturedFrame is a frame and what became of it.
type CapturedFrame struct {
	Time time.Time `json:"time"`
	// Event is the same for a received frame and all that was sent because of it.
	Event     uint64 `json:"event"`
	Group     string `json:"group,omitempty"`  // absent: of no group
	Port      string `json:"port,omitempty"`   // absent: there is no way to the receiver
	Direction string `json:"direction"`        // in or out
	Member    string `json:"member,omitempty"` // the IP from which it came, or to which it goes
	Opcode    string `json:"opcode,omitempty"` // this and the next four: absent if it is no RoCE packet
	QPN       uint32 `json:"qpn"`              // its dest QPN
	PSN       uint32 `json:"psn"`
	Syndrome  string `json:"syndrome,omitempty"` // of an acknowledge packet
	ICRC      *Hex   `json:"icrc,omitempty"`
	// Verdict is drop, absorb or forward for a received frame, and send or drop for one that was to
	// be sent. Reason is the name of the counter that counts it, or copy, repair or reply.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	Engine  string `json:"engine"`
	Length  int    `json:"length"` // of the whole frame, in bytes
	Bytes   []byte `json:"bytes"`  // the first ones
}

// Directions of a captured frame.
const (
	In  = "in"
	Out = "out"
)
