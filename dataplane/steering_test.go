package dataplane_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// few is a classifier with room for a few entries.
type few struct {
	room    int
	entries map[mft.Key]mft.GroupID
}

var errFull = errors.New("all entries are taken")

func (f *few) Steer(k mft.Key, id mft.GroupID) error {
	if _, held := f.entries[k]; !held && len(f.entries) == f.room {
		return errFull
	}
	f.entries[k] = id
	return nil
}

func (f *few) Unsteer(k mft.Key) error {
	delete(f.entries, k)
	return nil
}

// withPeers is a group at ip whose receivers' QPs have these QPNs as peers. It has a key for each,
// and three more: its IP as source, as destination, and as destination with the group's QPN.
func withPeers(name string, ip netip.Addr, remoteQPNs ...roce.QPN) *mft.Group {
	g := group()
	g.Name, g.Paths = name, g.Paths[:len(remoteQPNs)]
	at(g, ip)
	for i, qpn := range remoteQPNs {
		g.Paths[i].RemoteQPN = qpn
	}
	return g
}

// A full classifier refuses a group, or the next version of one, with one sentence, and keeps its
// entries.
func TestFullClassifierChangesNothing(t *testing.T) {
	f := &few{room: 5, entries: map[mft.Key]mft.GroupID{}}
	s := dataplane.New(dataplane.Config{Workers: []dataplane.WorkerConfig{{Ports: make([]dataplane.Port, 4)}}, Steering: f})
	other := netip.MustParseAddr("10.77.0.101")
	g := withPeers("first", ipGroup, 10, 11)
	if _, err := s.Add(g); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(f.entries)
	for name, change := range map[string]func() error{
		"one group more":     func() error { _, err := s.Add(withPeers("second", other, 10, 11, 12)); return err },
		"one receiver more":  func() error { return s.Replace(g.ID, withPeers("first", ipGroup, 10, 11, 12)) },
		"other receivers":    func() error { return s.Replace(g.ID, withPeers("first", ipGroup, 12, 13, 14)) },
		"another group's IP": func() error { return s.Replace(g.ID, withPeers("first", other, 12, 13, 14)) },
	} {
		err := change()
		if !errors.Is(err, errFull) || strings.Count(err.Error(), errFull.Error()) != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, f.entries, addrEqual); diff != "" {
			t.Errorf("%s: the entries changed (-before +after):\n%s", name, diff)
		}
		if s.Table().Len() != 1 || s.Table().Group(g.ID) != g {
			t.Errorf("%s: the table changed", name)
		}
	}
	for _, peer := range []roce.QPN{11, 12} { // the removed receiver's key makes room
		if err := s.Replace(g.ID, withPeers("first", ipGroup, peer)); err != nil {
			t.Errorf("what fits is refused too: %v", err)
		}
	}
	if err := s.Remove(g.ID); err != nil || len(f.entries) != 0 {
		t.Errorf("%v; %d entries outlive the group", err, len(f.entries))
	}
}

// A group whose entries do not all fit leaves nothing behind: neither its first entries nor the
// state that frames made while these existed, which the next group with the same ID would inherit.
func TestAFailedAddLeavesNothing(t *testing.T) {
	net := porttest.New(4)
	entries := map[mft.Key]bool{}
	net.OnSteer = func(k mft.Key, there bool) error {
		if !there {
			delete(entries, k)
			return nil
		}
		if len(entries) == 2 {
			say(t, net, write(firstPSN, nil)) // the entry that finds it has been added
			return errFull
		}
		entries[k] = true
		return nil
	}
	if _, err := net.Switch.Add(group()); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if len(entries) != 0 || net.Switch.Table().Len() != 0 {
		t.Errorf("%d entries, %d groups", len(entries), net.Switch.Table().Len())
	}
	if len(net.Ports[1].Take()) != 1 {
		t.Fatal("no frame came by while the group was there")
	}
	net.OnSteer = nil
	next := group()
	next.Source.FirstPSN = 70
	id, err := net.Switch.Add(next)
	if err != nil || id.Slot() != 0 {
		t.Fatal(id, err)
	}
	if s := snapshot(t, net.Switch, next); s.Sent != 69 {
		t.Errorf("the next group begins behind PSN %d", s.Sent)
	}
	say(t, net, write(70, nil))
	if psn := heard(t, net, ipB, roce.OpWriteOnly); psn != next.Paths[0].FirstPSN {
		t.Errorf("b got PSN %d", psn)
	}
}

// watched is a classifier that records each change together with the number of receivers in the
// published table.
type watched struct {
	*dataplane.Switch
	seen []string
}

func (w *watched) note(what string, k mft.Key) error {
	known := "no group"
	w.Table().All(func(g *mft.Group) bool {
		known = fmt.Sprintf("%d receivers", len(g.Paths))
		return false
	})
	w.seen = append(w.seen, fmt.Sprintf("%s %v, table: %s", what, k, known))
	return nil
}

func (w *watched) Steer(k mft.Key, _ mft.GroupID) error { return w.note("+", k) }
func (w *watched) Unsteer(k mft.Key) error              { return w.note("-", k) }

// A receiver's answers are taken before it gets data, and for as long as it gets data. Otherwise
// they would go to the kernel, which may deliver them to the source as if all receivers had
// answered.
func TestAnswersAreTakenBeforeDataGoesOut(t *testing.T) {
	w := &watched{}
	w.Switch = dataplane.New(dataplane.Config{Workers: []dataplane.WorkerConfig{{Ports: make([]dataplane.Port, 4)}}, Steering: w})
	version := func(hosts ...netip.Addr) *mft.Group {
		g := group()
		g.Addressing, g.IP, g.Paths = mft.ByVirtualQPN, ipB, nil
		for _, host := range hosts {
			g.Paths = append(g.Paths, receiver(1, host))
		}
		return g
	}
	g := version(ipB, ipC)
	for _, change := range []func() error{
		func() error { _, err := w.Add(g); return err },
		func() error { return w.Replace(g.ID, version(ipB, ipC)) }, // a next hop has moved
		func() error { return w.Replace(g.ID, version(ipB, ipD, ipD.Next())) },
		func() error { return w.Remove(g.ID) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"+ QPN 17 from 10.77.0.2 to 10.77.0.1, table: 2 receivers", // the source's QP, as from its peer
		"+ QPN 1 from 10.77.0.2 to 10.77.0.1, table: 2 receivers",
		"+ QPN 1 from 10.77.0.3 to 10.77.0.1, table: 2 receivers",
		"+ QPN 1 from 10.77.0.1 to 10.77.0.2, table: 2 receivers", // data

		"+ QPN 1 from 10.77.0.4 to 10.77.0.1, table: 2 receivers",
		"+ QPN 1 from 10.77.0.5 to 10.77.0.1, table: 2 receivers",
		"- QPN 1 from 10.77.0.3 to 10.77.0.1, table: 3 receivers",

		"- QPN 1 from 10.77.0.1 to 10.77.0.2, table: 3 receivers", // data
		"- QPN 1 from 10.77.0.5 to 10.77.0.1, table: 3 receivers",
		"- QPN 1 from 10.77.0.4 to 10.77.0.1, table: 3 receivers",
		"- QPN 1 from 10.77.0.2 to 10.77.0.1, table: 3 receivers",
		"- QPN 17 from 10.77.0.2 to 10.77.0.1, table: 3 receivers",
	}
	if diff := cmp.Diff(want, w.seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
