package perftest

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// newest is a run of version 6.29, which does not send "done".
func newest() *script { return opening("6.29", 3) }

// TestRuns plays every conversation that must work, with three receivers, in the forms of versions
// 6.06 (Debian 12) and 6.29. Data flows before exchange number run.
func TestRuns(t *testing.T) {
	capture := func(name string) *script { sc := captured(t, name); return &sc }
	// newer returns a captured run in the form of version 6.29.
	newer := func(name string) *script {
		sc := capture(name)
		sc.exchanges[0], sc.farewell = newest().exchanges[0], false
		return sc
	}
	for _, c := range []struct {
		name           string
		client, server *script
		run, qps       int
		write          bool // the client sleeps before its first message
	}{
		{"captured write", capture("write_small"), capture("write_small"), 7, 1, true},
		{"captured write -q 4", capture("write_q4"), capture("write_q4"), 13, 4, true},
		{"captured send", capture("send"), capture("send"), 8, 1, false},
		{"captured send of odd size", capture("send_odd"), capture("send_odd"), 8, 1, false},
		{"slow client of send on Soft-RoCE", capture("send"), capture("send"), 8, 1, true},
		{"newest write", newest().keys("aaaa").reports(5).keys("a"), newest().keys("aaaa").reports(5).keys("a"), 7, 1, true},
		{"newest write -q 2", newest().keys("ababaa").reports(5).keys("a"), newest().keys("ababaa").reports(5).keys("a"), 9, 2, true},
		{"newest write, report per port", newest().keys("aaaa").reports(9).keys("a"), newest().keys("aaaa").reports(9).keys("a"), 7, 1, true},
		{"newest send", newest().keys("aaaaa"), newest().keys("aaaaa"), 8, 1, false},
		{"newest send -q 2", newest().keys("abaabaa"), newest().keys("abaabaa"), 10, 2, false},
		{"newest send -a", newest().keys("aaa" + "aaaaaaaaaa" + "a"), newest().keys("aaa" + "aaaaaaaaaa" + "a"), 8, 1, false},
		{"old client, newest servers", capture("write_small"), newer("write_small"), 7, 1, true},
		{"newest client, old servers", newer("write_q4"), capture("write_q4"), 13, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 3, func(lim *limits) {
				if c.write {
					lim.sleep = 0
				}
			})
			l.up()
			client := c.client.moved(clientIP, 0)
			var said [][]byte
			l.play(func() (err error) { said, err = l.client(client, c.run); return err })
			asked := make([][][]byte, 3)
			for i, ip := range l.config.Receivers {
				l.play(func() (err error) { asked[i], err = l.server(i, c.server.moved(ip, i+1)); return err })
			}
			l.ended(4)
			l.hears("run of 127.0.0.1 ended")
			s := l.last()
			if s.State != Ended || s.QPs != c.qps || s.PathMTU != 1024 || s.Reason != "" || s.Ended.IsZero() || s.Groups != nil {
				t.Errorf("listed: %+v", s)
			}
			made := l.groups.all()
			if len(made) != c.qps {
				t.Fatalf("%d groups made", len(made))
			}
			checkSaid(t, "client", said, client, func(k key) key {
				q := find(t, made, k.QPN)
				if k.RKey != q.Memory[0].RKey || k.VA != q.Memory[0].VA {
					t.Errorf("the client is told memory %#x, the group has %#x", k.VA, q.Memory[0].VA)
				}
				return key{OutReads: 1, QPN: q.QPN, GID: groupIP}
			})
			for i := range asked {
				checkSaid(t, fmt.Sprint("receiver ", i), asked[i], client, func(k key) key {
					q := find(t, made, k.QPN)
					if k.PSN != q.Source.FirstPSN || k.PSN != q.Receivers[i].FirstPSN {
						t.Errorf("receiver %d is told PSN %#x, the group has %#x", i, k.PSN, q.Source.FirstPSN)
					}
					return key{OutReads: 1, QPN: q.QPN, GID: groupIP}
				})
			}
		})
	}
}

// find returns the group with this QPN.
func find(t *testing.T, made []*groupfile.File, n roce.QPN) *groupfile.File {
	for _, g := range made {
		if g.QPN == n {
			return g
		}
	}
	t.Fatalf("no group has QPN %#x", n)
	return nil
}

// checkSaid compares the messages to one side with the script: keys are changed by want, reports
// pass unchanged, and the version is the helper's.
func checkSaid(t *testing.T, side string, said [][]byte, sc *script, want func(key) key) {
	t.Helper()
	if len(said) != len(sc.exchanges) {
		t.Errorf("%s heard %d messages of %d", side, len(said), len(sc.exchanges))
		return
	}
	for i, message := range said {
		k, err := parseKey(message)
		switch {
		case i == 0:
			if !bytes.Equal(message, versionMessage()) {
				t.Errorf("%s is shown version %q", side, message)
			}
		case err == nil:
			w := want(k)
			k.PSN, k.RKey, k.VA = 0, 0, 0
			if k != w {
				t.Errorf("%s, message %d: got %+v, want %+v", side, i, k, w)
			}
		case side != "client" && !bytes.Equal(message, sc.exchanges[i].client):
			t.Errorf("%s, message %d: %q became %q", side, i, sc.exchanges[i].client, message)
		}
	}
}

// TestGroupOfARun checks every field of the group of the second queue pair.
func TestGroupOfARun(t *testing.T) {
	addr := netip.MustParseAddr
	config := Config{GroupIP: addr("10.77.0.100"), Policy: feedback.Policy{Repair: feedback.RepairLocal, SilentAfter: time.Second}}
	q := &queuePair{
		groupQPN:  0x500,
		source:    key{OutReads: 1, QPN: 0x42, PSN: 0xbc99a2, RKey: 1, VA: 2, GID: addr("10.77.0.1")},
		receivers: []key{{QPN: 0xa2, PSN: 7, RKey: 0xb42e, VA: 0x5604caecf000, GID: addr("10.77.0.2")}, {QPN: 0xa3, RKey: 0xb42f, VA: 0x7000, GID: addr("10.77.0.3")}},
	}
	got := q.group(&config, 3)
	region := func(va uint64, rkey uint32) []mft.Region { return []mft.Region{{VA: va, Length: 1 << 31, RKey: rkey}} }
	want := &groupfile.File{
		Name: "perftest-10.77.0.100-1280", IP: addr("10.77.0.100"), QPN: 0x500, PathMTU: 1024,
		Policy:        groupfile.WithRepair(feedback.Policy{SilentAfter: time.Second}, 1024),
		DegradedBelow: groupfile.DegradedBelow, DegradedAfter: groupfile.DegradedAfter,
		Memory: []mft.VirtualRegion{{VA: 1 << 32, Length: 1 << 31, RKey: 0x50067}},
		Source: groupfile.Member{IP: addr("10.77.0.1"), QPN: 0x42, FirstPSN: 0xbc99a2, Role: groupfile.Source, RemoteQPN: 0x500},
		Receivers: []groupfile.Member{
			{IP: addr("10.77.0.2"), QPN: 0xa2, FirstPSN: 0xbc99a2, RemoteQPN: 0x500, Regions: region(0x5604caecf000, 0xb42e)},
			{IP: addr("10.77.0.3"), QPN: 0xa3, FirstPSN: 0xbc99a2, RemoteQPN: 0x500, Regions: region(0x7000, 0xb42f)},
		},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	for m := mtu(1); m <= 5; m++ {
		// The group's text changes with its regions (rocast region).
		f := q.group(&config, m)
		if again, err := groupfile.Parse(f.Text()); err != nil || again.Policy != f.Policy || again.AsksForRepair() {
			t.Errorf("path MTU %d: policy %+v, and its text has %+v, %v", f.PathMTU, f.Policy, again, err)
		}
	}
	if name := groupName(addr("fd77::100"), 1); name != "perftest-fd77--100-1" {
		t.Errorf("IPv6: %s", name)
	}
}

// TestGroupsStandBeforeTheClientMaySend: all groups exist when the first repeated key is answered.
func TestGroupsStandBeforeTheClientMaySend(t *testing.T) {
	l := newLab(t, 1, nil)
	l.up()
	sc := newest().keys("aba")
	l.play(func() error {
		_, err := l.client(sc, -1)
		if got := len(l.groups.all()); got != 2 {
			t.Errorf("%d groups when the first repetition is answered", got)
		}
		return err
	})
	l.play(func() error { _, err := l.server(0, sc.moved(l.config.Receivers[0], 1)); return err })
	l.ended(2)
	l.hears("ended")
}

// TestSmallestNumbersWin: the client gets the smallest cycle buffer and path MTU, and so do the
// receivers that are asked later.
func TestSmallestNumbersWin(t *testing.T) {
	l := newLab(t, 3, nil)
	l.up()
	client := opening("6.06", 5).keys("aaaaa")
	cycles := [][]byte{{0, 1, 0, 0}, {0, 0, 0x10, 0}, {0, 0, 0x40, 0}}
	mtus := []mtu{2, 5, 4}
	asked := make([][][]byte, 3)
	for i, ip := range l.config.Receivers {
		server := opening("6.06", 5).keys("aaaaa").moved(ip, i)
		server.exchanges[1].server, server.exchanges[3].server = cycles[i], mtus[i].message()
		l.play(func() (err error) { asked[i], err = l.server(i, server); return err })
	}
	var said [][]byte
	l.play(func() (err error) { said, err = l.client(client, 8); return err })
	l.ended(4)
	l.hears("run of 127.0.0.1 ended")
	if !bytes.Equal(said[1], cycles[1]) || string(said[3]) != "2\x00" {
		t.Errorf("the client hears cycle buffer %x, MTU %q", said[1], said[3])
	}
	if string(asked[0][3]) != "5\x00" || string(asked[1][3]) != "2\x00" || string(asked[2][3]) != "2\x00" {
		t.Errorf("the receivers hear MTU %q, %q, %q", asked[0][3], asked[1][3], asked[2][3])
	}
	if got := l.groups.all()[0].PathMTU; got != 512 {
		t.Errorf("the group's path MTU is %d", got)
	}
}
