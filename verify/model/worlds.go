package model

import (
	"time"

	"github.com/rocast/rocast/feedback"
)

// mishaps lists worlds by their faults; worlds adds the policies. If they are 0, Receivers is 3,
// Packets is 4 and Message is 2. Worlds with two receivers are not combined with a quorum of two.
type mishaps []World

// repairs is repair with a given number of attempts and size of the retained window, 0 for the
// default. All times are equal, so that the search does not tell round trips apart.
func repairs(attempts, window int) feedback.Policy {
	return feedback.Policy{
		Repair: feedback.RepairLocal, RepairAttempts: attempts, RepairWindow: window,
		RepairTimerFloor: time.Millisecond, RepairTimerCap: time.Millisecond,
	}
}

// everyday lists the worlds that are small enough for every test run.
var everyday = mishaps{
	{Losses: 2},
	{Losses: 2, Message: 4},
	{Losses: 1, Message: 4, Asks: []int{1}, Early: 1, Receivers: 2},
	{Losses: 1, Asks: []int{0, 2}, Receivers: 2, Early: 1},
	{Losses: 1, Early: 1, Receivers: 2},
	{Losses: 1, Doubles: 1, Receivers: 2},
	{Losses: 1, Delays: 1},
	{Delays: 2},
	{NotReady: 1, Losses: 1, Receivers: 2},
	{NotReady: 1},
	{Early: 1},
	{Losses: 1, Fatals: 1},
	{Losses: 1, Fatals: 1, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
	{Losses: 1, Early: 1, Read: 2},
	{Losses: 1, Crashes: 1},
	{Early: 1, Crashes: 1},
	{Losses: 1, Deaths: 1, Policy: feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true}},
	{Losses: 1, Late: 2},
	{Losses: 1, Late: 2, Crashes: 1},
	{Early: 1, Late: 2, Crashes: 1},
	{Losses: 1, Late: 2, Crashes: 1, Policy: repairs(1, 0)},
	{Losses: 1, Armed: 1},
	{Losses: 1, Armed: 2, Message: 4, Asks: []int{1}, Receivers: 2},
	{Early: 1, Armed: 1, Receivers: 2},
	{Delays: 1, Armed: 1},
	{NotReady: 1, Armed: 1, Receivers: 2},
	{Losses: 1, Fatals: 1, Armed: 1, Receivers: 2},
	{Needed: true, Losses: 1, Fatals: 1, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
	{Needed: true, Losses: 1, Deaths: 1, Policy: feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true}},
	{Fatals: 1, Armed: 1, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
	{Losses: 1, Read: 2, Armed: 1, Receivers: 2},
	{Losses: 1, Crashes: 1, Armed: 1, Receivers: 2},
	{Deaths: 1, Armed: 1, Policy: feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true}},
	{Losses: 2, Policy: repairs(1, 0)},
	{Losses: 2, Message: 1, Policy: repairs(2, 0)},
	{Losses: 2, Message: 4, Asks: []int{1}, Policy: repairs(1, 2)},
	{Losses: 2, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 2, Message: 4, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Ticks: 1, Message: 4, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Ticks: 1, Policy: repairs(1, 0)},
	{Losses: 1, Ticks: 1, Delays: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Ticks: 1, Doubles: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Early: 1, Receivers: 2, Policy: repairs(1, 0)},
	{NotReady: 1, Losses: 1, Policy: repairs(1, 0)},
	{NotReady: 1, Losses: 2, Receivers: 2, Policy: repairs(2, 0)},
	{Losses: 1, Forgets: 1, Policy: repairs(1, 0)},
	{Losses: 2, Forgets: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Crashes: 1, Policy: repairs(1, 0)},
	{Losses: 1, Crashes: 1, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Early: 1, Relayed: true, Receivers: 2},
	{Losses: 2, Relayed: true, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Crashes: 1, Stale: 1, Relayed: true, Message: 1, Receivers: 2},
	{Losses: 1, Crashes: 1, Stale: 1, Relayed: true, Message: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Crashes: 1, Stale: 1, Switches: true, Message: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Crashes: 1, Stale: 1, Switches: true, Receivers: 2},
	{Losses: 1, Crashes: 1, Stale: 1, Ticks: 1, Switches: true, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Crashes: 1, Deaths: 1, Unlimited: true},
	{Losses: 1, Crashes: 1, Deaths: 1, Unlimited: true, Policy: repairs(1, 0)},
	{Losses: 1, Fatals: 1, Policy: repairs(1, 0)},
	{Losses: 2, Read: 2, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 2, Deaths: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 2, Deaths: 1, Policy: repairs(1, 0)},
	{Fatals: 1, Crashes: 1, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
	{Losses: 1, Fatals: 1, Crashes: 1, Policy: repairs(1, 0)},
	{Losses: 1, Deaths: 1, Policy: withRepair(repairs(1, 0), feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true})},
	{Shares: true, Losses: 2, Policy: repairs(1, 0)},
	{Shares: true, Losses: 1, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Shares: true, Losses: 1, Ticks: 1, Delays: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Shares: true, NotReady: 1, Losses: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Shares: true, Losses: 1, Crashes: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Shares: true, Losses: 1, Takes: 1, Member: true, Receivers: 2, Policy: repairs(1, 0)},
	{Shares: true, Losses: 1, Takes: 1, Next: true, Policy: repairs(1, 0)},
	{Losses: 2, Armed: 1, Policy: repairs(1, 0)},
	{Losses: 1, Armed: 1, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Armed: 1, Message: 1, Packets: 5, Receivers: 2, Policy: repairs(1, 2)},
	{Losses: 1, Deaths: 1, Policy: force},
	{Losses: 1, Deaths: 1, Needed: true, Policy: force},
	{Takes: 1, Losses: 1, Crashes: 1, Message: 1, Packets: 3, Policy: force},
	{Takes: 1, Losses: 1, Crashes: 1, Message: 1, Packets: 3, Member: true, Next: true, Policy: force},
	{Takes: 1, Deaths: 1, Crashes: 1, Message: 1, Packets: 3, Next: true, Beside: 1, Policy: force},
	{Takes: 1, Losses: 2, Policy: force},
	{Takes: 1, Losses: 1, Message: 1, Member: true, Next: true, Policy: force},
	{Takes: 1, Losses: 1, Needed: true, Policy: force},
	{Takes: 1, Losses: 1, Message: 1, Next: true, Lacks: true, Policy: force},
	{Takes: 1, Losses: 1, Message: 1, Packets: 3, Next: true, Lacks: true, Beside: 1, Policy: force},
	{Takes: 1, Losses: 1, Message: 1, Packets: 3, Next: true, Beside: 1, Policy: force},
	{Takes: 1, Deaths: 1, Message: 1, Packets: 3, Next: true, Policy: force},
	{Takes: 1, Losses: 1, Member: true, Needed: true, Left: true, Policy: repairs(1, 0)},
	{Takes: 2, Losses: 1, Message: 1, Packets: 3, Member: true, Next: true, Policy: repairs(1, 0)},
	{Takes: 2, Losses: 1, Message: 1, Packets: 3, Next: true, Lacks: true, Policy: repairs(1, 0)},
	{Takes: 2, Losses: 2, Message: 1, Packets: 3, Next: true, Beside: 1, Policy: repairs(1, 0)},
	{Takes: 2, Deaths: 1, Message: 1, Packets: 3, Next: true, Beside: 1, Policy: repairs(1, 0)},
	{Takes: 2, Deaths: 1, Message: 1, Packets: 3, Next: true, Lacks: true, Beside: 1, Policy: repairs(1, 0)},
}

// force is a switch by force, which needs repair.
var force = withRepair(repairs(1, 0), feedback.Policy{Switch: feedback.SwitchForce})

// thorough lists worlds that take up to a minute and some gigabytes each.
var thorough = mishaps{
	{Losses: 3},
	{Losses: 2, Asks: []int{0, 2}},
	{Losses: 2, Message: 1},
	{Losses: 2, Early: 1, Receivers: 2},
	{Losses: 1, Early: 1},
	{Losses: 1, Early: 1, Asks: []int{0, 2}},
	{Losses: 1, Doubles: 1, Delays: 1},
	{Losses: 1, Early: 1, Delays: 1, Receivers: 2},
	{NotReady: 1, Losses: 1},
	{NotReady: 2},
	{Losses: 2, Fatals: 1},
	{Losses: 1, Fatals: 2, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
	{Losses: 2, Early: 1, Read: 2},
	{Losses: 1, Crashes: 1, Early: 1, Receivers: 2},
	{Losses: 1, Crashes: 1, Delays: 1},
	{Losses: 2, Crashes: 1},
	{Losses: 1, Crashes: 2},
	{Losses: 2, Late: 2, Crashes: 1},
	{Losses: 1, Late: 1, Message: 1, Crashes: 1},
	{Losses: 1, Late: 2, Crashes: 2},
	{Losses: 2, Deaths: 1, Ticks: 1, Policy: feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true}},
	{Losses: 1, Early: 1, Receivers: 2, Packets: 6},
	{Losses: 2, Unlimited: true},
	{Losses: 2, Armed: 2},
	{Losses: 2, Armed: 1, Message: 4, Asks: []int{1}},
	{Losses: 1, Early: 1, Armed: 2, Receivers: 2},
	{Losses: 1, Doubles: 1, Armed: 1, Receivers: 2},
	{Losses: 1, Delays: 1, Armed: 1},
	{Losses: 1, Fatals: 1, Armed: 1, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
	{Losses: 1, Crashes: 1, Armed: 2},
	{Losses: 1, Deaths: 1, Armed: 1, Ticks: 1, Receivers: 2, Policy: feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true}},
	{Losses: 1, Armed: 2, Packets: 6, Receivers: 2},
	{Losses: 3, Policy: repairs(1, 0)},
	{Losses: 3, Message: 4, Asks: []int{1}, Policy: repairs(2, 2)},
	{Losses: 2, Ticks: 1, Policy: repairs(1, 0)},
	{Losses: 2, Ticks: 1, Receivers: 2, Policy: repairs(1, 2)},
	{Losses: 1, Ticks: 2, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Ticks: 1, Early: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Ticks: 1, Delays: 1, Policy: repairs(1, 0)},
	{Losses: 2, Early: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, NotReady: 1, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 2, NotReady: 1, Policy: repairs(2, 0)},
	{Losses: 1, Forgets: 1, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 1, Forgets: 1, Early: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 2, Forgets: 1, Policy: repairs(1, 0)},
	{Losses: 2, Crashes: 1, Policy: repairs(1, 0)},
	{Losses: 2, Fatals: 1, Policy: withRepair(repairs(1, 0), feedback.Policy{OnFatal: feedback.FatalEvict})},
	{Losses: 2, Deaths: 1, Ticks: 1, Policy: repairs(1, 0)},
	{Losses: 2, Deaths: 1, Armed: 1, Policy: repairs(1, 0)},
	{Shares: true, Losses: 2, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Shares: true, Losses: 1, Ticks: 2, Message: 4, Asks: []int{1}, Receivers: 2, Policy: repairs(2, 2)},
	{Losses: 1, Fatals: 1, Crashes: 1},
	{Losses: 1, Fatals: 1, Crashes: 1, Policy: feedback.Policy{OnFatal: feedback.FatalEvict}},
	{Losses: 1, Fatals: 1, Crashes: 1, Policy: withRepair(repairs(1, 0), feedback.Policy{OnFatal: feedback.FatalEvict})},
	{Losses: 1, Deaths: 1, Crashes: 1, Policy: withRepair(repairs(1, 0), feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true})},
	{Needed: true, Losses: 1, Deaths: 1, Crashes: 1, Policy: feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true}},
	{Losses: 1, Deaths: 1, Crashes: 1, Policy: feedback.Policy{SilentAfter: time.Duration(tickLength), Evict: true}},
	{Losses: 2, Packets: 6, Message: 3, Policy: repairs(1, 2)},
	{Losses: 2, Armed: 2, Ticks: 1, Receivers: 2, Policy: repairs(1, 0)},
	{Losses: 2, Armed: 1, Message: 1, Packets: 6, Receivers: 2, Policy: repairs(1, 2)},
	{Losses: 1, Armed: 1, Ticks: 1, Message: 1, Receivers: 2, Policy: repairs(1, 2)},
	{Losses: 1, Armed: 2, Ticks: 1, Message: 1, Receivers: 2, Policy: repairs(1, 3)},
	{Losses: 1, Armed: 1, Early: 1, Message: 1, Receivers: 2, Policy: repairs(1, 2)},
	{Losses: 1, Armed: 1, Delays: 1, Doubles: 1, Message: 1, Receivers: 2, Policy: repairs(1, 2)},
	{Losses: 1, Armed: 1, Message: 1, Policy: repairs(1, 2)},
}

// withRepair returns the policy p with the repair of r.
func withRepair(r, p feedback.Policy) feedback.Policy {
	p.Repair, p.RepairAttempts, p.RepairWindow = r.Repair, r.RepairAttempts, r.RepairWindow
	p.RepairTimerFloor, p.RepairTimerCap = r.RepairTimerFloor, r.RepairTimerCap
	return p
}

// Everyday returns the worlds that the tests search.
func Everyday() []World { return everyday.worlds() }

// Thorough returns the larger worlds.
func Thorough() []World { return thorough.worlds() }

// worlds combines a list with every policy. PSNs wrap after the second packet.
func (ms mishaps) worlds() []World {
	var ws []World
	for _, ack := range []feedback.AckPolicy{feedback.AckAll, 2} {
		for _, nak := range []feedback.NakPolicy{feedback.NakHold, feedback.NakLower} {
			for _, w := range ms {
				if w.Receivers == 0 {
					w.Receivers = maxReceivers
				}
				if w.Receivers <= int(ack) || w.Unlimited && w.Deaths > 0 && ack == feedback.AckAll {
					continue // nobody evicts the dead receiver, and the source retries for ever
				}
				if w.Needed && ack != feedback.AckAll {
					continue // a switch below another one waits for all (docs/tree.md)
				}
				if w.Beside > 0 && ack == feedback.AckAll {
					continue // nobody counts them
				}
				if w.Message == 0 {
					w.Message = 2
				}
				if w.Packets == 0 {
					w.Packets = 4
				}
				w.First = 0xFFFFFE
				w.Policy.Ack, w.Policy.Nak = ack, nak
				ws = append(ws, w)
			}
		}
	}
	return ws
}
