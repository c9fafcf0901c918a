package groupfile

import (
	"net/netip"

	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// MaxRegions bounds a group's memory. The data path searches it for every RETH.
const MaxRegions = 64

// File is what a group file says, defaults filled in.
type File struct {
	Name       string
	Addressing mft.Addressing
	IP         netip.Addr
	QPN        roce.QPN
	PathMTU    int // payload bytes of a full packet
	Policy     feedback.Policy
	Engine     mft.Engine
	Memory     []mft.VirtualRegion
	// Source sends first. One that is both stands among the receivers too, with what its QP expects.
	Source    Member
	Receivers []Member       // in the file's order
	Lines     map[string]int // where the keys stand
}

// Member is a QP on a host.
type Member struct {
	IP        netip.Addr
	QPN       roce.QPN
	FirstPSN  roce.PSN // of File.Source the first it sends, of a receiver the first it expects
	SendPSN   roce.PSN // of a member that is both, the first it sends
	Role      Role
	RemoteQPN roce.QPN     // what its QP has as remote QPN
	Regions   []mft.Region // a receiver's, parallel to File.Memory
	Line      int
}

// Members are all members, each once: a source that only sends, then the receivers.
func (f *File) Members() []Member {
	if f.Source.Role == Both {
		return f.Receivers
	}
	return append([]Member{f.Source}, f.Receivers...)
}

// Role says what a member does in its group.
type Role uint8

const (
	Receiver Role = iota
	Source
	Both // a receiver that may become the source
)

var roleNames = [...]string{"receiver", "source", "both"}

func (r Role) String() string { return roleNames[r] }
