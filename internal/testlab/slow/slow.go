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
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

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

// Shape limits the frames that leave end to a rate in bits per second, until its namespace is
// removed or Shape is called again. ACKs, NAKs and CNPs pass the data that waits, as in a NIC,
// which builds data only when the link is free; the group and the hosts have IPv4 addresses. Frames
// have at most 1600 bytes. With rate 0 no frame waits, and Sent counts the frames all the same.
// Frames that wait when Shape is called are lost.
//
// A frame that XDP redirects to end does not wait: shape the end at which a packet socket or the
// kernel sends.
func Shape(end netns.Link, rate int) error {
	commands := [][]string{{"qdisc", "replace", "dev", end.Name, "root", "handle", "2:", "bfifo", "limit", strconv.Itoa(queueBytes)}}
	if rate > 0 {
		commands = append(commands, limit(end, rate)...)
	}
	script := "tc -batch - <<end\n"
	for _, command := range commands {
		script += strings.Join(command, " ") + "\n"
	}
	if _, err := end.NS.Exec("sh", "-ec", script+"end\n"); err != nil {
		return fmt.Errorf("shape %s: %w", end.Name, err)
	}
	return nil
}

// limit returns the arguments of tc that put a limit where another queue is.
func limit(end netns.Link, rate int) [][]string {
	// A burst leaves at once: as little as possible, so that short transfers are not faster than
	// the link, and at least what the link carries between two ticks of a coarse timer.
	burst := strconv.Itoa(max(1600, rate/8/1000))
	class := func(parent, id string, share int, priority string) []string {
		return []string{"class", "add", "dev", end.Name, "parent", parent, "classid", id, "htb", "rate", strconv.Itoa(rate/share) + "bit",
			"ceil", strconv.Itoa(rate) + "bit", "burst", burst, "cburst", burst, "prio", priority}
	}
	queue := func(class string) []string {
		return []string{"qdisc", "add", "dev", end.Name, "parent", class, "bfifo", "limit", strconv.Itoa(queueBytes)}
	}
	commands := [][]string{
		{"qdisc", "replace", "dev", end.Name, "root", "handle", "1:", "htb", "default", "2"},
		class("1:", "1:3", 1, "0"),
		class("1:3", "1:1", 2, "0"), queue("1:1"), // ACKs
		class("1:3", "1:2", 2, "1"), queue("1:2"),
	}
	for _, opcode := range []string{"0x11", "0x81"} { // of a BTH: ACK or NAK, CNP
		commands = append(commands, []string{"filter", "add", "dev", end.Name, "parent", "1:", "protocol", "ip", "u32",
			"match", "ip", "protocol", "17", "0xff", "match", "u8", opcode, "0xff", "at", "28", "flowid", "1:1"})
	}
	return commands
}

// Sent returns how many bytes have left a shaped end since Shape was called, Ethernet headers
// included, which the counters of a veth leave out.
func Sent(end netns.Link) (uint64, error) {
	link, err := end.NS.Netlink().LinkByIndex(end.Index)
	if err != nil {
		return 0, err
	}
	return queued(end.NS, link, "htb", "bfifo")
}

// Carried returns how many bytes a slow link has carried, Ethernet headers included.
func (l *Link) Carried() (uint64, error) {
	link, err := l.ns.Netlink().LinkByName(l.ifb)
	if err != nil {
		return 0, err
	}
	return queued(l.ns, link, "tbf")
}

// queued returns how many bytes have left an interface whose queue is of one of these kinds. The
// kernel lists it before the queues of its classes.
func queued(ns *netns.NS, of netlink.Link, kinds ...string) (uint64, error) {
	list, err := ns.Netlink().QdiscList(of)
	if err != nil {
		return 0, err
	}
	for _, q := range list {
		if s := q.Attrs().Statistics; slices.Contains(kinds, q.Type()) && s != nil && s.Basic != nil {
			return s.Basic.Bytes, nil
		}
	}
	return 0, fmt.Errorf("%s is not shaped", of.Attrs().Name)
}

// Drop drops the frames that wait, and those that arrive later, so that no sender is charged for
// them any more.
func (l *Link) Drop() error {
	_, err := l.ns.Exec("ip", "link", "del", l.ifb)
	return err
}
