package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/rnic/endpoint"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/internal/testlab/netns"
)

// rewrite replaces parts of the daemon's config.
func (b *box) rewrite(t *testing.T, oldnew ...string) {
	t.Helper()
	text, err := os.ReadFile(b.config)
	if err == nil {
		err = os.WriteFile(b.config, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ports lists the daemon's ports by name.
func (b *box) ports(t *testing.T) string {
	t.Helper()
	list, err := client.New(b.socket).Ports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list.Ports {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// pair is a source and a receiver of group g1, whose memory has memoryBytes.
type pair struct {
	source   *endpoint.QP
	receiver *bed.Host
	memory   []byte
}

const (
	memoryBytes = 1 << 20
	groupMemory = "memory: {va: 0x10000, rkey: 0x77}\nmembers:\n"
	regionOf2   = "psn: 5, regions: [{va: 0x20000, length: 1048576, rkey: 0x78}]}"
)

// carrying creates g1 with memory, and queue pairs of its members.
func (b *box) carrying(t *testing.T) *pair {
	t.Helper()
	p := &pair{memory: make([]byte, memoryBytes)}
	group := netip.MustParseAddr("10.77.0.100")
	var qps [2]*endpoint.QP
	var nics [2]*endpoint.Endpoint
	for i := range qps {
		err := b.hosts[i].Do(func() (err error) {
			nics[i], err = endpoint.Open("p0", netip.MustParseAddr(fmt.Sprintf("10.77.0.%d", i+1)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nics[i].Close() })
	}
	if err := nics[1].Register(rnic.Region{VA: 0x20000, RKey: 0x78, Access: rnic.RemoteWrite, Bytes: p.memory}); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("members:\n", groupMemory, "psn: 5}", regionOf2).Replace(owned)
	if _, err := client.New(b.socket).CreateGroup(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
	b.until(t, api.Ready)
	for i, c := range []rnic.Config{bed.QP(17, 1000, 1024), bed.QP(18, 4000, 1024)} {
		var err error
		if qps[i], err = nics[i].NewQP(c); err == nil {
			err = b.hosts[i].Do(func() error { return qps[i].Connect(t.Context(), endpoint.Peer{IP: group, QPN: 1, PSN: 5}) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p.source, p.receiver = qps[0], &bed.Host{RNIC: nics[1], IP: netip.MustParseAddr("10.77.0.2")}
	return p
}

// write writes to the group until stop is closed, and then returns the number of rounds, whose data
// has arrived completely.
func (p *pair) write(t *testing.T, stop <-chan struct{}) (rounds int, err error) {
	for seed := byte(1); ; seed++ {
		data := bed.Random(memoryBytes, seed)
		if _, err := bed.Write(t.Context(), p.source, rnic.Remote{VA: 0x10000, RKey: 0x77}, data, 32<<10, nil); err != nil {
			return rounds, err
		}
		if err := p.receiver.CheckReceived(p.memory, data); err != nil {
			return rounds, err
		}
		rounds++
		select {
		case <-stop:
			return rounds, bed.CheckResponses(p.source)
		default:
		}
	}
}

// A port comes and goes while a group carries data. No QP notices it, and no packet is lost.
func TestAReloadUnderTraffic(t *testing.T) {
	b := newBox(t)
	p := b.start(t)
	traffic := b.carrying(t)
	stop, done := make(chan struct{}), make(chan error)
	rounds := 0
	go func() {
		var err error
		rounds, err = traffic.write(t, stop)
		done <- err
	}()
	client := client.New(b.socket)
	reload := func() (api.Reloaded, error) {
		t.Helper()
		reloaded, err := client.Reload(t.Context())
		b.expectNotice(t, "RELOADING=1")
		b.expectNotice(t, "READY=1")
		return reloaded, err
	}
	b.plug(t, "eth3", netns.New(t), "10.77.0.3/24")
	for range 3 {
		// The file says 'eth*', which eth3 matches now.
		reloaded, err := reload()
		if err != nil || !slices.Equal(reloaded.Added, []string{"eth3"}) || len(reloaded.Changed) > 1 {
			t.Fatalf("%+v, %v", reloaded, err)
		}
		b.untilPort(t, "eth3", "up", inState(api.PortUp))
		b.rewrite(t, "['eth*']", "[eth1, eth2]")
		if reloaded, err = reload(); err != nil || reloaded.String() != "ports changed; ports removed: eth3" {
			t.Fatalf("%+v, %v", reloaded, err)
		}
		if got := b.ports(t); got != "eth1 eth2" {
			t.Errorf("ports %s", got)
		}
		b.rewrite(t, "[eth1, eth2]", "['eth*']")
	}
	// eth2 has the receiver behind it.
	b.rewrite(t, "['eth*']", "[eth1, eth3]")
	want := b.config + ": ports: eth2 cannot be removed while 10.77.0.2 of group g1 is behind it; keep eth2 in the config, or remove the group first"
	if _, err := reload(); err == nil || err.Error() != want {
		t.Errorf("\ngot  %v\nwant %s", err, want)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	// On a slow machine a host may lose frames itself, and the source may be silent inside a
	// message for so long that the box calls it back.
	stats, err := client.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost, _ := traffic.receiver.RNIC.Drops()
	if c := stats.Counters; c["gap"]+c["repaired"] != 0 && lost == 0 {
		t.Errorf("packets were lost: %v", c)
	}
	if got := b.ports(t); got != "eth1 eth2" || rounds == 0 {
		t.Errorf("ports %s, %d rounds", got, rounds)
	}
	if got := p.end(t, unix.SIGTERM); got != "exit status 0" {
		t.Errorf("stopped: %s", got)
	}
	if links := b.ip(t, "link"); strings.Contains(links, "prog/xdp") {
		t.Errorf("after the stop a program is still there:\n%s", links)
	}
}

// What SIGHUP did is in the log, in the status, among the events, and systemd is told of it.
func TestAHangupReloadsTheConfig(t *testing.T) {
	b := newBox(t)
	p := b.start(t)
	client := client.New(b.socket)
	hangUp := func() {
		t.Helper()
		if err := p.Process.Signal(unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		b.expectNotice(t, "RELOADING=1")
		b.expectNotice(t, "READY=1")
	}
	expect := func(stale bool, reason, refused string) {
		t.Helper()
		s, err := client.Status(t.Context())
		if err != nil || s.Config == nil {
			t.Fatalf("%+v, %v", s, err)
		}
		if c := s.Config; c.File != b.config || c.Stale != stale || !strings.Contains(c.Reason, reason) || !strings.Contains(c.Refused, refused) || (refused == "") != (c.Refused == "") {
			t.Errorf("%+v", *c)
		}
	}
	expect(false, "", "")
	b.rewrite(t, "['eth*']", "[eth1]")
	expect(true, "ports: the file has changed since", "")
	hangUp()
	expect(false, "", "")
	p.log.until(t, "config reloaded")
	if got := b.ports(t); got != "eth1" {
		t.Errorf("ports %s", got)
	}
	b.rewrite(t, "[eth1]", "[eth1")
	hangUp()
	hangUp() // once more changes nothing
	expect(true, "line 1: ", "line 1: ")
	p.log.until(t, "config not reloaded; everything runs as before")
	if err := os.Remove(b.config); err != nil {
		t.Fatal(err)
	}
	hangUp()
	expect(true, "no such file", "no such file")
	var kinds []string
	events, err := client.EventsAfter(t.Context(), api.Cursor{}, "", 0)
	for _, e := range events.Events {
		if strings.HasPrefix(string(e.Kind), "config-") {
			kinds = append(kinds, string(e.Kind))
		}
	}
	if got := strings.Join(kinds, " "); err != nil || got != "config-reloaded config-refused config-refused config-refused" {
		t.Errorf("%s, %v", got, err)
	}
	if got := b.ports(t); got != "eth1" {
		t.Errorf("ports %s", got)
	}
	// Two at once are one or two reloads, and the daemon goes on.
	for range 2 {
		if err := p.Process.Signal(unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.end(t, unix.SIGTERM); got != "exit status 0" {
		t.Errorf("stopped: %s", got)
	}
}
