// Package slow makes a link slow: frames wait at its end as in a NIC whose link is slow or paused
// by flow control. As long as a frame waits, the kernel charges it to the socket that sent it, and
// AF_XDP does not complete it.
//
//	sender == veth == end --tc ingress--> ifb --tbf--> back into end
//
// A packet socket at the end receives each frame when it arrives there, before it waits.
package slow

import (
	"fmt"
	"strconv"

	"github.com/rocast/rocast/internal/testlab/netns"
)

const (
	// Paused is the slowest rate that tbf accepts with burstBytes: a frame of 1,100 bytes waits
	// half a minute. Only the first burstBytes pass at once.
	Paused = 300

	burstBytes = 10_000
	// queueBytes is more than the kernel charges to any sender.
	queueBytes = 1 << 30
)

// Link is a slow link, until Drop is called or its namespace is removed.
type Link struct {
	ns  *netns.NS
	ifb string
}

// Attach limits the frames that arrive at end to a rate in bits per second.
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

// Drop drops the frames that wait, and those that arrive later, so that no sender is charged for
// them any more.
func (l *Link) Drop() error {
	_, err := l.ns.Exec("ip", "link", "del", l.ifb)
	return err
}
