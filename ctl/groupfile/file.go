package groupfile

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// MaxRegions bounds the memory regions of a group file. With a few receivers the file is then as
// large as a request may be (api.MaxGroupFileBytes).
const MaxRegions = 4096

// The values of File.DegradedBelow and File.DegradedAfter if the file has none. A program that
// sends small messages one at a time after large ones does not fall below them, as a rule.
const (
	DegradedBelow = 10
	DegradedAfter = 3 * time.Second
)

// File is the content of a group file, with defaults filled in.
type File struct {
	Name       string
	Addressing mft.Addressing
	IP         netip.Addr
	QPN        roce.QPN
	PathMTU    int // payload bytes of a full packet
	Policy     feedback.Policy
	Engine     mft.Engine
	Copies     Copies
	// DegradedBelow is the part of its best goodput, in percent, below which the group counts as
	// degraded, and DegradedAfter the time for which it has to be. 0: it never does.
	DegradedBelow int
	DegradedAfter time.Duration
	Hosts         Hosts
	HostsSecret   Secret
	// Memory is what the source may WRITE to. nil: the box passes addresses and keys on as they
	// are.
	Memory []mft.VirtualRegion
	// Table: the memory is a table beside the file, whose ranges come and leave one by one. Memory
	// is then empty, and so are the Regions of all members.
	Table bool
	// Source is the first sender. If its role is both, it is also among Receivers, there with the
	// PSN its QP expects.
	Source    Member
	Receivers []Member       // in the file's order
	Lines     map[string]int // the line of each key
}

// Member is a QP on a host.
type Member struct {
	IP        netip.Addr
	QPN       roce.QPN
	FirstPSN  roce.PSN // the first PSN that File.Source sends, or that a receiver expects
	SendPSN   roce.PSN // the first PSN that a member with role both sends
	Role      Role
	RemoteQPN roce.QPN     // the remote QPN of the member's QP
	RemoteIP  netip.Addr   // the peer address of the member's QP, one of the box's own; invalid: as the addressing says
	Behind    uint16       // the receivers that a quorum counts for the member; 0: one
	Via       string       // the neighbour that the member is behind; "": as the routes say
	Confirm   bool         // the group waits until the member's program confirms that its QP is ready
	Regions   []mft.Region // the regions of a receiver, parallel to File.Memory
	// RelayQPN is the QPN by which the box above and this one name the member to each other, if
	// this box passes its frames on and does not merge (mft.Relay). 0: it merges.
	RelayQPN roce.QPN
	// RelayShares: copies that the box above sends once for several members are for this one too.
	// Its FirstPSN goes with that of the source then.
	RelayShares bool
	// Relayed: another box passes the frames of the member on. IP, QPN and RemoteQPN are those of
	// the link to that box.
	Relayed bool
	Line    int
}

// Weight is the number of receivers that a quorum counts for the member, all of them or none.
func (m *Member) Weight() int { return max(1, int(m.Behind)) }

// Members returns each member once: a source that only sends, then the receivers.
func (f *File) Members() []Member {
	if f.Source.Role == Both {
		return f.Receivers
	}
	return append([]Member{f.Source}, f.Receivers...)
}

// IsRelayed reports whether this box passes the frames of the group on for the box above.
func (f *File) IsRelayed() bool { return len(f.Receivers) > 0 && f.Receivers[0].RelayQPN != 0 }

// Copies is the receivers of a group that may share copies (mft.Share). It is no key of the policy:
// merging and data path know a group that does not share as one without shares.
type Copies uint8

const (
	CopiesAuto Copies = iota // those that can do
	CopiesOwn                // none does
)

var copiesWords = [...]string{CopiesAuto: "auto", CopiesOwn: "own"}

func (c Copies) String() string { return copiesWords[c] }

func parseCopies(s string) (Copies, error) {
	if i := slices.Index(copiesWords[:], s); i >= 0 {
		return Copies(i), nil
	}
	return 0, fmt.Errorf("copies %q is not one of %q", s, copiesWords)
}

// Role is the role of a member in its group.
type Role uint8

const (
	Receiver Role = iota
	Source
	Both // a receiver that may become the source
)

var roleNames = [...]string{"receiver", "source", "both"}

func (r Role) String() string { return roleNames[r] }

// ReceiverIDs returns the IDs of the receivers, in the order of the file.
func (f *File) ReceiverIDs() []ID {
	ids := make([]ID, len(f.Receivers))
	for i := range f.Receivers {
		ids[i] = f.Receivers[i].ID()
	}
	return ids
}
