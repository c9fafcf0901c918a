package matrix

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/matrix"
)

// hostsPort is where the box listens for programs of hosts.
const hostsPort = 7472

// hostsLines are the lines of rocastd.yaml with which hosts make the group.
func hostsLines(c matrix.Cell, box, groupIP netip.Addr) string {
	shared := c.Is("edge", "shared")
	if !c.Is("addressing", "hosts") && !shared {
		return ""
	}
	lines := fmt.Sprintf("hosts: {listen: \"%v\", groupIPs: [\"%v\"]}\n", netip.AddrPortFrom(box, hostsPort), groupIP)
	if c.Is("addressing", "hosts") {
		lines += fmt.Sprintf("engine: %s\n", c.Get("engine"))
	}
	if shared {
		lines += "edges: {addresses: [239.77.0.0/28, \"ff15::4d00/124\"]}\n"
	}
	return lines
}

// program is the program of a host: it speaks to the box for the host's IP.
type program struct {
	host *client.Host
	own  client.HostRequest
}

// openProgram makes the program of a member. Its connections to the box begin in the host's
// namespace, and the members reach it there at a port.
func (r *run) openProgram(m *member, late bool) {
	r.t.Helper()
	var answers net.Listener
	r.check(m.NS.Do(func() (err error) {
		answers, err = net.Listen("tcp", netip.AddrPortFrom(m.IP, 0).String())
		return err
	}))
	r.t.Cleanup(func() { _ = answers.Close() })
	here, err := net.Listen("tcp", "127.0.0.1:0")
	r.check(err)
	r.t.Cleanup(func() { _ = here.Close() })
	go passOn(here, func() (to net.Conn, err error) {
		err = m.NS.Do(func() error {
			to, err = net.Dial("tcp", netip.AddrPortFrom(r.ip, hostsPort).String())
			return err
		})
		return to, err
	})
	local := netip.MustParseAddr("127.0.0.1")
	p := &program{host: client.NewHost(here.Addr().(*net.TCPAddr).AddrPort(), local)}
	p.own = client.HostRequest{
		Role: "receiver", QPN: uint32(m.qpn), PSN: uint32(m.expects), Members: len(r.members), MTU: mtuOf(r.c),
		Port: uint16(answers.Addr().(*net.TCPAddr).Port), Policy: hostPolicy(r.c),
	}
	switch both := !r.c.Is("source-switch", "none"); {
	case both && !late: // who comes later only receives
		p.own.Role, p.own.SendPSN = "both", uint32(m.sends)
	case m == r.members[0]:
		p.own.Role, p.own.PSN = "source", uint32(m.sends)
	}
	if !r.c.Is("regions", "none") && p.own.Role != "source" {
		for _, part := range parts(r.c) {
			at := m.at(r.c, part)
			key := api.Hex(at.RKey)
			p.own.Regions = append(p.own.Regions, api.Region{VA: api.Hex(at.VA), Length: uint64(part.to - part.from), RKey: &key})
		}
	}
	m.program = p
}

// passOn connects whoever comes with what dial returns.
func passOn(l net.Listener, dial func() (net.Conn, error)) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := dial()
		if err != nil {
			_ = from.Close()
			continue
		}
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
	}
}

// hostPolicy is what the programs say of the group's policy.
func hostPolicy(c matrix.Cell) string {
	var pairs []string
	for _, line := range policyLines(c) {
		key, value, _ := strings.Cut(line, ": ")
		pairs = append(pairs, key+"="+value)
	}
	return strings.Join(pairs, ",")
}

// join lets the programs of members join the group, and connects the members' queue pairs.
func (r *run) join(ctx context.Context, late bool, members ...*member) {
	r.t.Helper()
	var wait sync.WaitGroup
	errs := make([]error, len(members))
	for i, m := range members {
		r.openProgram(m, late)
		wait.Go(func() { errs[i] = r.joinOne(ctx, m) })
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			r.t.Fatalf("%v: %v\n%s", members[i].IP, err, r.state())
		}
	}
}

func (r *run) joinOne(ctx context.Context, m *member) error {
	g, err := m.program.host.Join(ctx, groupName, m.program.own)
	if err != nil {
		return err
	}
	if m.sees, err = netip.ParseAddr(g.IP); err != nil {
		return err
	}
	if m == r.members[0] {
		r.hostGroup = g
	}
	if err := r.connect(ctx, m, g.QPN); err != nil {
		return err
	}
	_, err = m.program.host.Ready(ctx, groupName, m.program.own)
	return err
}
