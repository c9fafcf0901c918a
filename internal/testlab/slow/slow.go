// Package slow makes a link slow: frames wait at its end as they would in a NIC whose link is slow, or paused by flow
// control. Until a frame has left, its memory is charged to the socket that sent it, and AF_XDP does not complete it.
//
//	sender == veth == end --tc ingress--> ifb --tbf--> back into end
//
// A packet socket at the end sees each frame when it arrives, before it waits.
package slow

import (
	"fmt"
	"strconv"

	"github.com/rocast/rocast/internal/testlab/netns"
)

const (
	// Paused is the slowest rate that the queueing discipline takes together with burstBytes: a frame of 1,100 bytes
	// waits half a minute. Only the first burstBytes pass at once.
	Paused = 300

	burstBytes = 10_000
	// queueBytes is more than the frames' sender may have under way.
	queueBytes = 1 << 30
)

// Link is slow until Drop, or until its namespace goes.
type Link struct {
	ns  *netns.NS
	ifb string
}

// Attach makes what arrives at end go on at the given rate only, in bits per second.
func Attach(end netns.Link, rate int) (*Link, error) {
	l := &Link{ns: end.NS, ifb: "s" + end.Name}
	for _, command := range [][]string{
		{"ip", "link", "add", l.ifb, "type", "ifb"},
		{"ip", "link", "set", l.ifb, "up"},
		{"tc", "qdisc", "add", "dev", l.ifb, "root", "tbf", "rate", strconv.Itoa(rate) + "bit",
			"burst", strconv.Itoa(burstBytes), "limit", strconv.Itoa(queueBytes)},
		{"tc", "qdisc", "add", "dev", end.Name, "clsact"},
		{"tc", "filter", "add", "dev", end.Name, "ingress", "protocol", "all",
			"u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", l.ifb},
	} {
		if _, err := l.ns.Exec(command[0], command[1:]...); err != nil {
			return nil, fmt.Errorf("make %s slow: %w", end.Name, err)
		}
	}
	return l, nil
}

// Drop drops the frames that wait, and what arrives later: the sender is charged for none of them any more.
func (l *Link) Drop() error {
	_, err := l.ns.Exec("ip", "link", "del", l.ifb)
	return err
}
