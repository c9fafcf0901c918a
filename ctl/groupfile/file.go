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
	Memory     []mft.VirtualRegion
	Source     Member
	Receivers  []Member // in the file's order
	Forward    []Forward
	Lines      Lines
}

// Member is a QP on a host.
type Member struct {
	IP        netip.Addr
	QPN       roce.QPN
	FirstPSN  roce.PSN // of a source the first it sends, of a receiver the first it expects
	Role      Role
	RemoteQPN roce.QPN     // what its QP has as remote QPN
	Regions   []mft.Region // a receiver's, parallel to File.Memory
	Line      int
}

// Forward is a branch to the next switch.
type Forward struct {
	Port string
	Via  netip.Addr // the next switch
	Line int
}

// Lines says where the keys stand that are checked against the box.
type Lines struct {
	Name, IP, QPN, MTU int
}

// Role says what a member does in its group.
type Role uint8

const (
	Receiver Role = iota
	Source
)

var roleNames = [...]string{"receiver", "source"}

func (r Role) String() string { return roleNames[r] }
