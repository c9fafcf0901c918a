package softgroup

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/bed"
	"github.com/rocast/rocast/roce"
)

func TestTheFileHasTheMembers(t *testing.T) {
	g := &Group{Name: "g", IP: netip.MustParseAddr("10.77.3.100"), QPN: 5, Bytes: 4096, Keys: "repair: off"}
	host := func(i int) *bed.Host { return &bed.Host{IP: bed.HostIP(i)} }
	g.Add(host(0), Sends, 17, 0x1000005, 0)
	g.Add(host(1), Both, 18, 7, 0xFFFFFF)
	g.Add(host(2), Receives, 19, 0, 9)
	want := `name: g
ip: 10.77.3.100
qpn: 5
mtu: 1024
memory: {va: 0x10000, length: 4096, rkey: 0x77}
repair: off
members:
  - {ip: 10.77.0.1, qpn: 17, psn: 5, role: source}
  - {ip: 10.77.0.2, qpn: 18, psn: 16777215, sendPSN: 7, role: both, regions: [{va: 0x10000000000, length: 4096, rkey: 0x1012}]}
  - {ip: 10.77.0.3, qpn: 19, psn: 9, regions: [{va: 0x20000000000, length: 4096, rkey: 0x1013}]}
`
	if got := g.File(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// pair is a group of two hosts without a box: each is the other's peer. Their queue pairs retry
// twice.
func pair(t *testing.T) (g *Group, from, to *Member) {
	t.Helper()
	testlab.NeedRoot(t)
	b, err := bed.New(bed.Options{Hosts: 2})
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, b.Close()) })
	g = &Group{Name: "pair", QPN: 5, Bytes: 3 * PathMTU, Timeout: 17, RetryCount: 2}
	from, to = g.Add(b.Hosts[0], Sends, 5, 100, 0), g.Add(b.Hosts[1], Receives, 5, 0, 100)
	from.Sees, to.Sees = to.IP, from.IP
	to.VA, to.RKey = VA, RKey
	g.Connect(t)
	return g, from, to
}

// Each round has other data, and a byte that differs is noticed, wherever it is.
func TestWhatAMemberLacksIsNoticed(t *testing.T) {
	g, from, to := pair(t)
	middles := 0
	first := g.Write(t, from, PathMTU, func() { middles++ })
	x := g.Write(t, from, PathMTU, nil)
	if middles != 1 || slices.Equal(first.Data, x.Data) || x.Outage <= 0 {
		t.Errorf("midway was called %d times; %d bytes with an outage of %v", middles, len(x.Data), x.Outage)
	}
	for _, at := range []int{0, PathMTU, g.Bytes - 1} {
		to.Memory[at]++
		if err := g.Compare(from, x.Data); err == nil || !strings.Contains(err.Error(), to.IP.String()) {
			t.Errorf("byte %d: %v", at, err)
		}
		if l := g.Lacking(from, at, x.Data[at:]); !slices.Equal(l, []*Member{to}) {
			t.Errorf("byte %d: %d members lack it", at, len(l))
		}
		if l := g.Lacking(from, at+1, x.Data[at+1:]); at == 0 && len(l) != 0 {
			t.Errorf("%d members lack what is behind byte %d", len(l), at)
		}
		to.Memory[at]--
	}
	if err := g.Compare(from, x.Data); err != nil {
		t.Error(err)
	}
}

// Who only sends lacks nothing.
func TestASourceIsNotComparedWithOthers(t *testing.T) {
	g, from, to := pair(t)
	x := g.Write(t, from, PathMTU, nil)
	if l := g.Lacking(to, 0, x.Data); len(l) != 0 {
		t.Errorf("%d members lack data", len(l))
	}
	if err := g.Compare(to, x.Data); err != nil {
		t.Error(err)
	}
}

// A transfer ends with an error where the queue pairs give up, as often as the group says.
func TestQueuePairsRetryAsOftenAsTheGroupSays(t *testing.T) {
	g, from, to := pair(t)
	to.NS.MustRun(t, "ip link set eth0 down")
	if _, err := g.Send(t.Context(), from, PathMTU, nil); err == nil || !strings.Contains(err.Error(), rnic.RetryExceeded.String()) {
		t.Errorf("%v", err)
	}
}

// Who has another MAC refuses what goes to the old one; nobody else refuses anything.
func TestOnlyWhoIsRenamedRefusesFrames(t *testing.T) {
	g, from, to := pair(t)
	x := g.Write(t, from, PathMTU, nil)
	mac := roce.MAC(to.End.MAC)
	mac[5]++
	to.RNIC.SetMAC(mac)
	testlab.Must(t, from.QP.PostWrite(1, x.Data[:1], rnic.Remote{VA: VA, RKey: RKey}))
	testlab.Eventually(t, testlab.Patience, "it refuses a frame", func() bool { c := to.RNIC.Counters(); return c.Rejected() > 0 }, nil)
	if err := g.Compare(from, x.Data); err == nil {
		t.Error("it may not refuse frames")
	}
	to.Renamed = true
	if err := g.Compare(from, x.Data); err != nil {
		t.Error(err)
	}
	to.Memory[1]++
	if err := g.Compare(from, x.Data); err == nil {
		t.Error("it lacks a byte")
	}
}

// Two members do not write the same.
func TestDataIsTheMembersOwn(t *testing.T) {
	a, b := &Member{QPN: 1}, &Member{QPN: 2}
	if one, other := a.New(64), b.New(64); slices.Equal(one, other) {
		t.Error("both have written the same")
	}
}
