package feedback

import (
	"strconv"
	"time"
)

// Policy is how a group's feedback is merged. The zero value is the default.
type Policy struct {
	Ack     AckPolicy
	Nak     NakPolicy
	OnFatal FatalPolicy
	CNP     CNPPolicy
	Credits CreditPolicy
	Switch  SwitchPolicy
	Repair  RepairPolicy
	OnSlow  SlowPolicy

	// SilentAfter is how long a receiver may make no progress, while another one does and the
	// source resends, before it is reported as silent (rule 8). 0: for ever. With Evict it leaves
	// the group then.
	SilentAfter time.Duration
	Evict       bool

	// CNPInterval is the least time between the congestion notifications that CNPFilter passes, on
	// average. 0: what the receiver's NIC keeps.
	CNPInterval time.Duration

	// What follows bounds repair (rule 14). 0 is the default of each.
	//
	// RepairWindow is how many packets are retained for the paths that lack them. RepairBytes
	// bounds the memory of these packets. The caller has that memory, so it enforces the bound with
	// events of kind Lost; 0 is no bound beside the window. RepairAttempts is how often a packet is
	// sent again to a path that makes no progress, before the source has to help. RepairTimerFloor
	// and RepairTimerCap bound the time after which an unanswered packet is sent again.
	RepairWindow     int
	RepairBytes      int
	RepairAttempts   int
	RepairTimerFloor time.Duration
	RepairTimerCap   time.Duration
}

// Below returns the policy of a box that carries a part of the group for this one. It is faster to
// find a receiver silent, so that this box does not take the whole link for silent before.
func (p Policy) Below() Policy {
	if p.SilentAfter > 0 {
		p.SilentAfter = max(MinSilentAfter, p.SilentAfter/2)
	}
	return p
}

// givesUp reports whether p lets a receiver go that has ended with a fatal NAK, if the group can do
// without it. nobody: the path leads to a box behind which nobody is left.
func (p *Policy) givesUp(nobody bool) bool {
	return p.OnFatal == FatalEvict || p.Evict && nobody
}

// AckPolicy is how many receivers must have a packet before it is acknowledged to the source: 0 all
// of them, else that many (P4CE).
type AckPolicy uint16

// AckAll is every receiver.
const AckAll AckPolicy = 0

// NakPolicy is what becomes of a sequence NAK above the floor.
type NakPolicy uint8

const (
	// NakHold keeps it until the floor is right below it (Cepheus, Gleam).
	NakHold NakPolicy = iota
	// NakLower makes the source resend from the floor plus one at once (MC-RDMA).
	NakLower
)

// FatalPolicy is what becomes of a NAK that ends a receiver's QP.
type FatalPolicy uint8

const (
	// FatalFail ends the source's QP with it, once everyone has what lies below.
	FatalFail FatalPolicy = iota
	// FatalEvict drops the receiver and the group goes on, unless too few would be left.
	FatalEvict
)

// CNPPolicy is which congestion notifications reach the source.
type CNPPolicy uint8

const (
	// CNPFilter passes those of the most congested path (Cepheus).
	CNPFilter CNPPolicy = iota
	// CNPAll passes all (MC-RDMA).
	CNPAll
)

// SwitchPolicy is when another member may become the source (rule 12).
type SwitchPolicy uint8

const (
	// SwitchGuard waits until everything of the old source is acknowledged.
	SwitchGuard SwitchPolicy = iota
	// SwitchForce does not wait. A receiver that lacks something of the old source is behind from
	// then on.
	SwitchForce
)

// RepairPolicy is where a packet that was lost on its way to a receiver is sent again (rule 14).
type RepairPolicy uint8

const (
	// RepairOff leaves all losses to the source.
	RepairOff RepairPolicy = iota
	// RepairLocal lets the caller retain the packets and send them again.
	RepairLocal
)

// SlowPolicy is what a quorum does about a receiver that falls so far behind the source that repair
// could soon not help it any more (ahead.go).
type SlowPolicy uint8

const (
	// SlowWait lets the source wait for it, as long as it answers.
	SlowWait SlowPolicy = iota
	// SlowGoOn does not wait. When such a receiver loses a packet that is not retained, it is
	// behind.
	SlowGoOn
)

// The bounds of repair where the policy says 0.
const (
	DefaultRepairWindow     = 1024
	DefaultRepairAttempts   = 7
	DefaultRepairTimerFloor = 50 * time.Microsecond
	DefaultRepairTimerCap   = 16 * time.Millisecond
)

// CreditPolicy is which end-to-end credits the source is granted.
type CreditPolicy uint8

const (
	// CreditsUnlimited is syndrome 0x1F: a receiver without a posted receive answers with an RNR
	// NAK.
	CreditsUnlimited CreditPolicy = iota
	// CreditsMerge is the lowest limit, which is MSN plus credits, of all receivers.
	CreditsMerge
)

var (
	nakNames    = [...]string{NakHold: "hold", NakLower: "lower"}
	fatalNames  = [...]string{FatalFail: "fail", FatalEvict: "evict"}
	cnpNames    = [...]string{CNPFilter: "filter", CNPAll: "all"}
	switchNames = [...]string{SwitchGuard: "guard", SwitchForce: "force"}
	creditNames = [...]string{CreditsUnlimited: "unlimited", CreditsMerge: "merge"}
	repairNames = [...]string{RepairOff: "off", RepairLocal: "local"}
	slowNames   = [...]string{SlowWait: "wait", SlowGoOn: "go-on"}
)

func (p AckPolicy) String() string {
	if p == AckAll {
		return "all"
	}
	return "quorum " + strconv.Itoa(int(p))
}

func (p NakPolicy) String() string    { return nakNames[p] }
func (p FatalPolicy) String() string  { return fatalNames[p] }
func (p CNPPolicy) String() string    { return cnpNames[p] }
func (p SwitchPolicy) String() string { return switchNames[p] }
func (p CreditPolicy) String() string { return creditNames[p] }
func (p RepairPolicy) String() string { return repairNames[p] }
func (p SlowPolicy) String() string   { return slowNames[p] }

// settleWithin is how long a receiver has to show that it has everything, where the policy has
// no silent-after. It is longer than seven probes take, and a fraction of the time after which
// most queue pairs give up.
const settleWithin = 200 * millisecond

// settleWithin is how long a receiver has that may be behind from then on.
func (p *Policy) settleWithin() Tick {
	if p.SilentAfter != 0 {
		return Tick(p.SilentAfter)
	}
	return settleWithin
}
