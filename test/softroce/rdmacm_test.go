//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
)

const (
	rdmacmPort  = 7174
	rdmacmBytes = 70001 // of each WRITE: the last packet is odd
)

// storyRDMACM connects programs that know nothing of groups: the source's kernel and the receivers'
// kernels talk to the proxy. The source WRITEs where the private data says, and SENDs.
func storyRDMACM(t *testing.T, ctx context.Context, s *stage) string {
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "private-data")
	connects := 5
	if testing.Short() {
		connects = 2
	}
	began := time.Now()
	for range connects {
		s.rdmacmTransfer(t, ctx, groupIP, ipv4)
	}
	took := time.Since(began)
	s.rdmacmRefused(t, ctx)
	return fmt.Sprintf("%d connections of librdmacm programs in %.1f s, 10 WRITEs of %d bytes and a SEND each; refused when a receiver does not listen",
		connects, took.Seconds(), rdmacmBytes)
}

func ipv4(g *Guest) netip.Addr { return g.Addr }
func ipv6(g *Guest) netip.Addr { return g.Addr6 }

// rdmacmTransfer connects once, and checks what the receivers get.
func (s *stage) rdmacmTransfer(t *testing.T, ctx context.Context, ip netip.Addr, addr func(*Guest) netip.Addr) {
	t.Helper()
	listeners := rdmacmListen(t, ctx, s.Guests[1:], addr)
	want, err := s.rdmacmConnect(ctx, ip, 10)
	if err != nil {
		t.Fatalf("connect: %v\n%s", err, s.Report(ctx))
	}
	for i, p := range listeners {
		if got, err := p.Stdout.ReadLine(ctx); err != nil || got != want {
			t.Errorf("receiver %d has %s, the source wrote %s: %v", i+1, got, want, err)
		}
		if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
			t.Errorf("receiver %d: %v %v %s\n%s", i+1, exit, err, p.Stderr, s.cmReport(ctx, s.Guests[1+i]))
		}
	}
}

// cmReport says what the box and a receiver know of their connections.
func (s *stage) cmReport(ctx context.Context, receiver *Guest) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	connections, err := s.text(ctx, "cm", "ls", "--json")
	ids, errIDs := receiver.Run(ctx, "rdma", "resource", "show", "cm_id")
	return fmt.Sprintf("the box: %s (%v)\n%v: %s (%v)\n%s", connections, err, receiver.Addr, ids, errIDs, s.Report(ctx))
}

// storyRDMACMIPv6 is storyRDMACM at an IPv6 address.
func storyRDMACMIPv6(t *testing.T, ctx context.Context, s *stage) string {
	ip := netip.MustParseAddr("fd77::100")
	s.cmUp(t, ctx, ip, ipv6, rdmacmPort, "private-data")
	s.rdmacmTransfer(t, ctx, ip, ipv6)
	s.noGroups(t, ctx)
	return fmt.Sprintf("10 WRITEs of %d bytes and a SEND", rdmacmBytes)
}

// storyRDMACMRegions connects programs whose private data says nothing of memory. The region comes
// to the running group by the API, and leaves it. A WRITE before it comes is refused at once.
func storyRDMACMRegions(t *testing.T, ctx context.Context, s *stage) string {
	const va, key, writes = 0x9000001, 0x99, 5
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "regions")
	listeners := rdmacmAccept(t, ctx, s.Guests[1:], ipv4, "lend")
	source, places := s.borrow(t, ctx, listeners, writes)
	group := s.cms(t, ctx).Connections[0].Group
	add := []string{"region", "add", group, "--va", fmt.Sprint(va), "--rkey", fmt.Sprint(key), "--length", strconv.Itoa(rdmacmBytes)}
	for i, guest := range s.Guests[1:] {
		add = append(add, "--at", fmt.Sprintf("%v=%s", guest.Addr, strings.Replace(places[i], " ", ":", 1)))
	}
	_, err := s.ask(ctx, add...)
	must(t, err)
	_, err = fmt.Fprintf(source, "%#x %#x\n", va, key)
	must(t, err)
	want, err := source.Stdout.ReadLine(ctx)
	if err != nil {
		t.Fatalf("%v %s\n%s", err, source.Stderr, s.Report(ctx))
	}
	for i, p := range listeners {
		if got, err := p.Stdout.ReadLine(ctx); err != nil || got != want {
			t.Errorf("receiver %d has %s, the source wrote %s: %v", i+1, got, want, err)
		}
	}
	ended(t, ctx, append(listeners, source))

	listeners = rdmacmAccept(t, ctx, s.Guests[1:], ipv4, "lend")
	source, _ = s.borrow(t, ctx, listeners, 1)
	_, err = fmt.Fprintf(source, "%#x %#x\n", va, key)
	must(t, err)
	if exit, err := source.Wait(ctx); err != nil || exit.OK() || !strings.Contains(source.Stderr.String(), "WRITE 0: "+remoteAccessError) {
		t.Errorf("a WRITE without a region: %v %v %s", exit, err, source.Stderr)
	}
	for _, p := range listeners { // their source has ended without a SEND
		must(t, p.Signal(syscall.SIGKILL))
		_, _ = p.Wait(ctx) // it was killed
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("%d WRITEs of %d bytes to a region that came by the API; %q before it came", writes, rdmacmBytes, remoteAccessError)
}

// storyRDMACMRping connects rping, whose server READs the client's memory. No group carries that,
// and neither side hears of it: the box says so while the connection is on and when it has ended.
func storyRDMACMRping(t *testing.T, ctx context.Context, s *stage) string {
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "")
	s.allowed = []string{"not-source"} // the READs
	var programs []*control.Process
	start := func(guest *Guest, side string, addr netip.Addr) {
		p, err := guest.Start("rping", side, "-a", addr.String(), "-p", strconv.Itoa(rdmacmPort), "-C", "1")
		must(t, err)
		programs = append(programs, p)
		t.Cleanup(func() { _ = p.Signal(syscall.SIGKILL) }) // fails if it has ended
	}
	for _, guest := range s.Guests[1:] {
		start(guest, "-s", guest.Addr)
		for listens := false; !listens; {
			out, err := guest.Run(ctx, "rdma", "resource", "show", "cm_id")
			must(t, err)
			listens = strings.Contains(out, "state LISTEN")
		}
	}
	start(s.Guests[0], "-c", groupIP)
	const reads = ": it sends READ or atomic requests"
	last := func(state string) (c api.CMConnection) {
		for ctx.Err() == nil {
			if l := s.cms(t, ctx).Connections; len(l) > 0 {
				if c = l[len(l)-1]; c.State == state && strings.Contains(c.Reason, reads) {
					return c
				}
			}
		}
		t.Fatalf("no connection is %s because of READs: %+v\n%s", state, c, s.Report(context.WithoutCancel(ctx)))
		return c
	}
	began := time.Now()
	last("established")
	took := time.Since(began)
	for _, p := range programs[:3] {
		must(t, p.Signal(syscall.SIGKILL))
		_, _ = p.Wait(ctx) // it was killed
	}
	if c := last("over"); !strings.Contains(c.Reason, "disconnected; before that the box saw: ") {
		t.Errorf("the connection has ended: %s", c.Reason)
	}
	s.noGroups(t, ctx)
	return fmt.Sprintf("cm ls named the READs of rping's servers after %.1f s, and when they had disconnected", took.Seconds())
}

// borrow starts a source, and returns what the receivers say of their memory.
func (s *stage) borrow(t *testing.T, ctx context.Context, listeners []*control.Process, writes int) (source *control.Process, places []string) {
	t.Helper()
	source, err := s.Guests[0].Start(image.RDMACMProgram, "borrow", groupIP.String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes), strconv.Itoa(writes))
	must(t, err)
	if line, err := source.Stdout.ReadLine(ctx); err != nil || line != "connected" {
		t.Fatalf("%q, %v %s\n%s", line, err, source.Stderr, s.Report(ctx))
	}
	for _, p := range listeners {
		line, err := p.Stdout.ReadLine(ctx)
		must(t, err)
		places = append(places, line)
	}
	return source, places
}

// rdmacmListen starts a program on each guest that accepts one connection.
func rdmacmListen(t *testing.T, ctx context.Context, guests []*Guest, addr func(*Guest) netip.Addr) (listeners []*control.Process) {
	t.Helper()
	return rdmacmAccept(t, ctx, guests, addr, "listen")
}

func rdmacmAccept(t *testing.T, ctx context.Context, guests []*Guest, addr func(*Guest) netip.Addr, command string) (listeners []*control.Process) {
	t.Helper()
	for _, guest := range guests {
		p, err := guest.Start(image.RDMACMProgram, command, addr(guest).String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes))
		must(t, err)
		if line, err := p.Stdout.ReadLine(ctx); err != nil || line != "listening" {
			t.Fatalf("%s: %q, %v %s", guest.Addr, line, err, p.Stderr)
		}
		listeners = append(listeners, p)
	}
	return listeners
}

// rdmacmConnect connects to the group, naming receivers or none, and returns the hash of what was
// written.
func (s *stage) rdmacmConnect(ctx context.Context, ip netip.Addr, writes int, receivers ...string) (hash string, err error) {
	args := []string{image.RDMACMProgram, "connect", ip.String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes), strconv.Itoa(writes)}
	out, err := s.Guests[0].Run(ctx, append(args, receivers...)...)
	return strings.TrimSpace(out), err
}

// rdmacmRefused checks that the source hears why a receiver refuses, and that nothing is left of
// any connection.
func (s *stage) rdmacmRefused(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, p := range rdmacmListen(t, ctx, s.Guests[2:], ipv4) {
		defer p.Wait(ctx)
	}
	const invalidService = "status 8"
	if _, err := s.rdmacmConnect(ctx, groupIP, 1); err == nil || !strings.Contains(err.Error(), invalidService) {
		t.Errorf("a receiver does not listen: %v", err)
	}
	out, err := s.ask(ctx, "cm", "ls")
	must(t, err)
	var list api.CMs
	must(t, json.Unmarshal(out, &list))
	connections := list.CMs[0].Connections
	if last := connections[len(connections)-1]; !strings.Contains(last.Reason, "refuses (invalid service ID)") {
		t.Errorf("cm ls does not say why: %s", out)
	}
	s.noGroups(t, ctx)
}

func (s *stage) noGroups(t *testing.T, ctx context.Context) {
	t.Helper()
	out, err := s.ask(ctx, "group", "ls")
	must(t, err)
	var groups api.Groups
	must(t, json.Unmarshal(out, &groups))
	if len(groups.Groups) != 0 {
		t.Errorf("groups are left: %s", out)
	}
}
