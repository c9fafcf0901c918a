//go:build softroce

package softroce

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/roce"
	"github.com/rocast/rocast/roce/cm"
	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
	"github.com/rocast/rocast/test/softroce/wire"
)

// rdmacmServe starts a program on each guest that accepts connections until count have ended.
func rdmacmServe(t *testing.T, ctx context.Context, guests []*Guest, count int) (servers []*control.Process) {
	t.Helper()
	for _, guest := range guests {
		p, err := guest.Start(image.RDMACMProgram, "serve", guest.Addr.String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes), strconv.Itoa(count))
		must(t, err)
		if line, err := p.Stdout.ReadLine(ctx); err != nil || line != "listening" {
			t.Fatalf("%s: %q, %v %s", guest.Addr, line, err, p.Stderr)
		}
		servers = append(servers, p)
		t.Cleanup(func() { _ = p.Signal(syscall.SIGKILL) }) // fails if it has ended
	}
	return servers
}

func ended(t *testing.T, ctx context.Context, servers []*control.Process) {
	t.Helper()
	for i, p := range servers {
		if exit, err := p.Wait(ctx); err != nil || !exit.OK() {
			t.Errorf("receiver %d: %v %v %s", i+1, exit, err, p.Stderr)
		}
	}
}

// rdmaObjects are the queue pairs, regions and connections of all guests, as the kernel lists them.
func (s *stage) rdmaObjects(t *testing.T, ctx context.Context) string {
	t.Helper()
	var all strings.Builder
	for _, guest := range s.Guests {
		out, err := guest.Run(ctx, "rdma", "resource", "show", guest.Device)
		must(t, err)
		all.WriteString(out)
	}
	return all.String()
}

// storyRDMACMChurn connects and disconnects often, and then ten times at one time. Nothing is left
// of it, neither on the hosts nor in the daemon. What a connect to the group takes is compared with
// connects to the same hosts alone, in turn, so that all of them meet the same machine: a group of
// one receiver with that receiver, and the group of three with these three at one time.
func storyRDMACMChurn(t *testing.T, _ context.Context, s *stage) string {
	ctx := testContext(t, 2*storyLimit) // 1000 times a connect and its end
	alone, ofOne := s.Guests[1].Addr, groupIP.Next()
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "private-data")
	s.cmUpFor(t, ctx, ofOne, s.Guests[1:2], ipv4, rdmacmPort, "private-data")
	times := 200
	if testing.Short() {
		times = 40
	}
	targets := []string{groupIP.String(), allOf(s.Guests[1:]), ofOne.String(), alone.String()}
	connects := []int{4 * times, 2 * times, 2 * times} // of each receiver

	before := s.rdmaObjects(t, ctx)
	var servers []*control.Process
	for i, guest := range s.Guests[1:] {
		servers = append(servers, rdmacmServe(t, ctx, []*Guest{guest}, connects[i])...)
	}
	parts := s.timeParts()
	out, err := s.Guests[0].Run(ctx, append([]string{image.RDMACMProgram, "repeat", strconv.Itoa(rdmacmPort), strconv.Itoa(times)}, targets...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Report(ctx))
	}
	part := parts()
	ended(t, ctx, servers)
	took := columns(t, out, len(targets))

	servers = rdmacmServe(t, ctx, s.Guests[1:], 10)
	s.atOneTime(t, ctx, 10)
	ended(t, ctx, servers)

	warm := s.holds(t, ctx)
	servers = rdmacmServe(t, ctx, s.Guests[1:], times)
	if _, err := s.Guests[0].Run(ctx, image.RDMACMProgram, "repeat", strconv.Itoa(rdmacmPort), strconv.Itoa(times), groupIP.String()); err != nil {
		t.Fatalf("%v\n%s", err, s.Report(ctx))
	}
	ended(t, ctx, servers)
	after := s.holds(t, ctx)
	if after.residentMiB > warm.residentMiB+4 || after.goroutines > warm.goroutines+10 || after.files > warm.files+10 {
		t.Errorf("%d more connects: the daemon held %+v, and holds %+v", times, warm, after)
	}

	s.noGroups(t, ctx)
	if objects := s.rdmaObjects(t, ctx); objects != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, objects)
	}
	for _, up := range s.allCMs(t, ctx) {
		if delete(up.Refused, "repeated"); len(up.Refused) != 0 { // a slow host answers twice
			t.Errorf("%s counted %v", up.GroupIP, up.Refused)
		}
	}
	three, one := part[groupIP], part[ofOne]
	return fmt.Sprintf("%d connects, p50/p99 in ms: %s to three receivers by the group (box %s, receivers %s), %s to the three at one time without it; "+
		"%s to one receiver by a group (box %s, receiver %s), %s without it; 10 at one time; nothing left; %d more connects to the group changed the daemon's resident memory by %+.1f MiB, of %.1f",
		times, quantiles(took[0]), quantiles(three.box), quantiles(three.receivers), quantiles(took[1]),
		quantiles(took[2]), quantiles(one.box), quantiles(one.receivers), quantiles(took[3]),
		times, after.residentMiB-warm.residentMiB, warm.residentMiB)
}

// holding is what the daemon holds.
type holding struct{ residentMiB, goroutines, files float64 }

// holds reads the daemon's metrics.
func (s *stage) holds(t *testing.T, ctx context.Context) (h holding) {
	t.Helper()
	text, err := client.New(s.site.path("socket")).Metrics(ctx)
	must(t, err)
	for line := range strings.Lines(text) {
		_, _ = fmt.Sscanf(line, "process_resident_memory_bytes %g", &h.residentMiB) // the other lines do not fit
		_, _ = fmt.Sscanf(line, "go_goroutines %g", &h.goroutines)
		_, _ = fmt.Sscanf(line, "process_open_fds %g", &h.files)
	}
	if h.residentMiB == 0 || h.goroutines == 0 || h.files == 0 {
		t.Fatalf("the metrics lack some of %+v", h)
	}
	h.residentMiB /= 1 << 20
	return h
}

// allOf names the guests as one word of rocast-rdmacm.
func allOf(guests []*Guest) string {
	var l []string
	for _, guest := range guests {
		l = append(l, guest.Addr.String())
	}
	return strings.Join(l, ",")
}

// parts has the parts of each connect to a group IP, in microseconds, sorted.
type parts struct {
	box       []int // from the source's REQ to the last REQ for a receiver, and from the last receiver's REP to that for the source
	receivers []int // from the last REQ for a receiver to the last REP of a receiver
}

// timeParts watches the wires until stop is called. Connects follow each other meanwhile.
func (s *stage) timeParts() (stop func() map[netip.Addr]parts) {
	type place struct {
		message   cm.Attribute
		direction wire.Direction
	}
	var mu sync.Mutex
	last := map[place]time.Time{}
	all := map[netip.Addr]parts{}
	note := func(isSource bool, d wire.Direction, frame []byte) {
		mad, err := cm.Decode(frame)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		message := mad.Message.Attribute()
		last[place{message, d}] = time.Now()
		if !isSource || d != wire.ToGuest || message != cm.AttrREP {
			return
		}
		var v roce.View
		if v.Decode(frame, len(frame)) != nil {
			return
		}
		asked, answered := last[place{cm.AttrREQ, wire.ToGuest}], last[place{cm.AttrREP, wire.ToBox}]
		p := all[v.SrcIP(frame)]
		p.box = append(p.box, int((asked.Sub(last[place{cm.AttrREQ, wire.ToBox}]) + last[place{cm.AttrREP, wire.ToGuest}].Sub(answered)).Microseconds()))
		p.receivers = append(p.receivers, int(answered.Sub(asked).Microseconds()))
		all[v.SrcIP(frame)] = p
	}
	for i, guest := range s.Guests {
		for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
			guest.Wire.SetFilter(d, func(frame []byte) wire.Verdict {
				note(i == 0, d, frame)
				return s.see(guest, d, frame)
			})
		}
	}
	return func() map[netip.Addr]parts {
		for _, guest := range s.Guests {
			for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
				guest.Wire.SetFilter(d, func(frame []byte) wire.Verdict { return s.see(guest, d, frame) })
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, p := range all {
			slices.Sort(p.box)
			slices.Sort(p.receivers)
		}
		return all
	}
}

// columns reads lines of numbers, and returns each column sorted.
func columns(t *testing.T, out string, count int) [][]int {
	t.Helper()
	l := make([][]int, count)
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		words := strings.Fields(line)
		if len(words) != count {
			t.Fatalf("%q has %d numbers, want %d", line, len(words), count)
		}
		for i, word := range words {
			n, err := strconv.Atoi(word)
			must(t, err)
			l[i] = append(l[i], n)
		}
	}
	for _, column := range l {
		slices.Sort(column)
	}
	return l
}

func quantiles(us []int) string {
	if len(us) == 0 {
		return "?"
	}
	return fmt.Sprintf("%.1f/%.1f", float64(us[len(us)/2])/1000, float64(us[len(us)*99/100])/1000)
}

// atOneTime connects n programs, each of which WRITEs and SENDs.
func (s *stage) atOneTime(t *testing.T, ctx context.Context, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := s.rdmacmConnect(ctx, groupIP, 3); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func (s *stage) cms(t *testing.T, ctx context.Context) api.CM {
	t.Helper()
	return s.allCMs(t, ctx)[0]
}

func (s *stage) allCMs(t *testing.T, ctx context.Context) []api.CM {
	t.Helper()
	out, err := s.ask(ctx, "cm", "ls")
	must(t, err)
	var list api.CMs
	must(t, json.Unmarshal(out, &list))
	return list.CMs
}

// storyRDMACMLoss loses the first copy of each message of RDMA-CM on each wire, in each direction.
func storyRDMACMLoss(t *testing.T, ctx context.Context, s *stage) string {
	n := s.rdmacmOnWires(t, ctx, wire.Drop)
	return fmt.Sprintf("%d messages lost, one of each kind on each wire", n)
}

// storyRDMACMTwice delivers the first copy of each message of RDMA-CM twice on each wire, in each
// direction.
func storyRDMACMTwice(t *testing.T, ctx context.Context, s *stage) string {
	n := s.rdmacmOnWires(t, ctx, wire.Duplicate)
	return fmt.Sprintf("%d messages came twice, one of each kind on each wire", n)
}

// rdmacmOnWires connects and disconnects, and gives the first message of each kind on each wire, in
// each direction, a verdict. It returns how many messages these were.
func (s *stage) rdmacmOnWires(t *testing.T, ctx context.Context, verdict wire.Verdict) int {
	t.Helper()
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "private-data")
	var mu sync.Mutex
	count, all := map[string]int{}, 0
	for _, guest := range s.Guests {
		for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
			seen := map[cm.Attribute]bool{}
			guest.Wire.SetFilter(d, func(frame []byte) wire.Verdict {
				mad, err := cm.Decode(frame)
				if err != nil || seen[mad.Message.Attribute()] {
					return s.see(guest, d, frame)
				}
				mu.Lock()
				defer mu.Unlock()
				seen[mad.Message.Attribute()] = true
				count[mad.Message.Attribute().String()]++
				all++
				return verdict
			})
			defer guest.Wire.SetFilter(d, func(frame []byte) wire.Verdict { return s.see(guest, d, frame) })
		}
	}
	servers := rdmacmServe(t, ctx, s.Guests[1:], 1)
	if _, err := s.rdmacmConnect(ctx, groupIP, 3); err != nil {
		t.Fatalf("%v\n%s", err, s.Report(ctx))
	}
	ended(t, ctx, servers)
	s.noGroups(t, ctx)
	mu.Lock()
	defer mu.Unlock()
	for _, a := range []cm.Attribute{cm.AttrREQ, cm.AttrREP, cm.AttrRTU, cm.AttrDREQ, cm.AttrDREP} {
		if n := count[a.String()]; n != len(s.Guests) { // one on each wire
			t.Errorf("%d %v were met, want %d", n, a, len(s.Guests))
		}
	}
	if count[cm.AttrREJ.String()] > 0 {
		t.Error("a side was refused")
	}
	return all
}

// storyRDMACMKill kills the daemon in the middle of a connection and in the middle of a handshake.
// The hosts can connect again as soon as the daemon is back.
func storyRDMACMKill(t *testing.T, ctx context.Context, s *stage) string {
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "private-data")
	before := s.rdmaObjects(t, ctx)
	took := []string{}
	again := func(about string, kill func()) {
		servers := rdmacmServe(t, ctx, s.Guests[1:], 1000)
		kill()
		must(t, s.Start(ctx))
		began := time.Now()
		s.cmStart(t, ctx, groupIP, s.Guests[1:], ipv4, rdmacmPort, "private-data")
		if _, err := s.rdmacmConnect(ctx, groupIP, 1); err != nil {
			t.Fatalf("%s: %v\n%s", about, err, s.Report(ctx))
		}
		took = append(took, fmt.Sprintf("%s: connected again after %.1f s", about, time.Since(began).Seconds()))
		for _, p := range servers {
			must(t, p.Signal(syscall.SIGKILL))
			_, _ = p.Wait(ctx) // it was killed
		}
	}
	again("killed in a connection", func() {
		p, err := s.Guests[0].Start(image.RDMACMProgram, "connect", groupIP.String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes), "1000000")
		must(t, err)
		s.cmState(t, ctx, "established")
		must(t, s.Kill())
		must(t, p.Signal(syscall.SIGKILL))
		_, _ = p.Wait(ctx) // it was killed
	})
	again("killed in a handshake", func() {
		guest := s.Guests[2]
		reached := make(chan struct{})
		var once sync.Once
		guest.Wire.SetFilter(wire.ToBox, func(frame []byte) wire.Verdict { // the box waits for this REP
			if mad, err := cm.Decode(frame); err == nil && mad.Message.Attribute() == cm.AttrREP {
				once.Do(func() { close(reached) })
				return wire.Drop
			}
			return s.see(guest, wire.ToBox, frame)
		})
		defer guest.Wire.SetFilter(wire.ToBox, func(frame []byte) wire.Verdict { return s.see(guest, wire.ToBox, frame) })
		p, err := s.Guests[0].Start(image.RDMACMProgram, "connect", groupIP.String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes), "1")
		must(t, err)
		s.await(t, ctx, "a REP", reached)
		must(t, s.Kill())
		must(t, p.Signal(syscall.SIGKILL))
		_, _ = p.Wait(ctx) // it was killed
	})
	s.noGroups(t, ctx)
	if after := s.rdmaObjects(t, ctx); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	return strings.Join(took, "; ")
}

// cmState waits until the newest connection is in a state.
func (s *stage) cmState(t *testing.T, ctx context.Context, state string) {
	t.Helper()
	for {
		if l := s.cms(t, ctx).Connections; len(l) > 0 && l[len(l)-1].State == state {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no connection is %s", state)
		}
	}
}

// storyRDMACMDead lets a receiver's host be silent when the source connects, and ends a receiver's
// program while it is connected.
func storyRDMACMDead(t *testing.T, ctx context.Context, s *stage) string {
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "private-data")
	servers := rdmacmServe(t, ctx, s.Guests[1:], 1000)
	guest := s.Guests[2]
	guest.Wire.SetFilter(wire.ToBox, func([]byte) wire.Verdict { return wire.Drop })
	began := time.Now()
	_, err := s.rdmacmConnect(ctx, groupIP, 1)
	silent := time.Since(began)
	guest.Wire.SetFilter(wire.ToBox, func(frame []byte) wire.Verdict { return s.see(guest, wire.ToBox, frame) })
	const noResources = "status 3"
	if err == nil || !strings.Contains(err.Error(), noResources) {
		t.Errorf("a receiver's host is silent: %v", err)
	}

	source, err := s.Guests[0].Start(image.RDMACMProgram, "connect", groupIP.String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes), "1000000")
	must(t, err)
	s.cmState(t, ctx, "established")
	must(t, servers[1].Signal(syscall.SIGKILL))
	s.cmState(t, ctx, "over")
	l := s.cms(t, ctx).Connections
	if last := l[len(l)-1]; !strings.HasPrefix(last.Reason, "receiver 10.77.0.3 disconnected") {
		t.Errorf("%+v", last)
	}
	s.noGroups(t, ctx)
	must(t, source.Signal(syscall.SIGKILL))
	_, _ = source.Wait(ctx) // it was killed
	return fmt.Sprintf("a silent host: refused after %.1f s; a program that is killed ends the connection", silent.Seconds())
}

// cut loses every frame of a guest until heal is called.
func (s *stage) cut(guest *Guest) (heal func()) {
	return s.filter(guest, func([]byte) wire.Verdict { return wire.Drop })
}

// silence loses every packet of a guest's queue pairs until heal is called. RDMA-CM and all that is
// not RoCE pass, so the guest can be connected meanwhile.
func (s *stage) silence(guest *Guest) (heal func()) {
	return s.filter(guest, func(frame []byte) wire.Verdict {
		var v roce.View
		if _, err := cm.Decode(frame); err == nil || v.Decode(frame, len(frame)) != nil {
			return wire.Pass
		}
		return wire.Drop
	})
}

func (s *stage) filter(guest *Guest, f wire.Filter) (heal func()) {
	for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
		guest.Wire.SetFilter(d, f)
	}
	return func() {
		for _, d := range []wire.Direction{wire.ToGuest, wire.ToBox} {
			guest.Wire.SetFilter(d, func(frame []byte) wire.Verdict { return s.see(guest, d, frame) })
		}
	}
}

// resends returns when the box has received packets that the source has sent again.
func (s *stage) resends(t *testing.T, ctx context.Context) {
	t.Helper()
	for before := s.count(t, ctx).frames["resent"]; s.count(t, ctx).frames["resent"] == before; {
		must(t, ctx.Err())
	}
}

// storyRDMACMSilent lets hosts be silent that are connected: a receiver for a while, a receiver for
// good, and the source for good, without a DREQ.
func storyRDMACMSilent(t *testing.T, _ context.Context, s *stage) string {
	ctx := testContext(t, 2*storyLimit) // a silent source is found after 70 s
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "private-data")
	servers := rdmacmServe(t, ctx, s.Guests[1:], 1000)
	connect := func(writes int) *control.Process {
		p, err := s.Guests[0].Start(image.RDMACMProgram, "connect", groupIP.String(), strconv.Itoa(rdmacmPort), strconv.Itoa(rdmacmBytes), strconv.Itoa(writes))
		must(t, err)
		s.cmState(t, ctx, "established")
		return p
	}
	heal := s.silence(s.Guests[3])
	source := connect(200)
	s.resends(t, ctx) // the source's QP retries for ever
	heal()
	if exit, err := source.Wait(ctx); err != nil || !exit.OK() {
		t.Errorf("a receiver was silent until the source sent again: %v %v %s", exit, err, source.Stderr)
	}
	s.cmState(t, ctx, "over")

	source = connect(1000000)
	heal = s.cut(s.Guests[3])
	must(t, source.Signal(syscall.SIGKILL))
	_, _ = source.Wait(ctx) // it was killed
	s.cmState(t, ctx, "over")
	s.noGroups(t, ctx)
	heal()

	source = connect(1000000)
	heal = s.cut(s.Guests[0])
	defer heal()
	must(t, source.Signal(syscall.SIGKILL))
	_, _ = source.Wait(ctx) // it was killed
	began := time.Now()
	s.cmState(t, ctx, "over")
	l := s.cms(t, ctx).Connections
	if last := l[len(l)-1]; !strings.HasPrefix(last.Reason, "the source does not answer any more") {
		t.Errorf("%+v", last)
	}
	s.noGroups(t, ctx)
	for _, p := range servers {
		must(t, p.Signal(syscall.SIGKILL))
		_, _ = p.Wait(ctx) // it was killed
	}
	return fmt.Sprintf("200 WRITEs although a receiver was silent until the source sent again; ended without a silent receiver; a silent source is found after %.0f s",
		time.Since(began).Seconds())
}

// storyRDMACMChoose connects to receivers that the source names, as P4CE's leader does.
func storyRDMACMChoose(t *testing.T, ctx context.Context, s *stage) string {
	s.cmUp(t, ctx, groupIP, ipv4, rdmacmPort, "private-data", "--choose")
	first, second, third := s.Guests[1], s.Guests[2], s.Guests[3]
	for _, chosen := range [][]*Guest{{third, first}, {second}} {
		var names []string
		for _, guest := range chosen {
			names = append(names, guest.Addr.String())
		}
		listeners := rdmacmListen(t, ctx, chosen, ipv4)
		want, err := s.rdmacmConnect(ctx, groupIP, 3, names...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", names, err, s.Report(ctx))
		}
		for i, p := range listeners {
			if got, err := p.Stdout.ReadLine(ctx); err != nil || got != want {
				t.Errorf("%s has %s, the source wrote %s: %v", names[i], got, want, err)
			}
		}
		ended(t, ctx, listeners)
	}
	const consumerDefined = "status 28"
	if _, err := s.rdmacmConnect(ctx, groupIP, 1, "10.77.0.9"); err == nil || !strings.Contains(err.Error(), consumerDefined) {
		t.Errorf("a receiver that the service does not have: %v", err)
	}
	s.noGroups(t, ctx)
	return "two receivers of three, then the third; refused with one that the service does not have"
}
