package dataplane_test

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocast/rocast/dataplane"
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

// withPeers is a group at ip whose receivers' QPs have these QPNs for their
// peers: with its IP, and the IP with the group's QPN, that many keys and two.
func withPeers(name string, ip netip.Addr, remoteQPNs ...roce.QPN) *mft.Group {
	g := group()
	g.Name, g.IP, g.Paths = name, ip, g.Paths[:len(remoteQPNs)]
	for i, qpn := range remoteQPNs {
		g.Paths[i].RemoteQPN = qpn
	}
	return g
}

// A classifier that is full refuses a group, or the next version of one, in one
// sentence, and knows what it knew.
func TestFullClassifierChangesNothing(t *testing.T) {
	f := &few{room: 4, entries: map[mft.Key]mft.GroupID{}}
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
	if err := s.Replace(g.ID, withPeers("first", ipGroup, 12, 13)); err != nil {
		t.Errorf("what fits is refused too: %v", err)
	}
	if err := s.Remove(g.ID); err != nil || len(f.entries) != 0 {
		t.Errorf("%v; %d entries outlive the group", err, len(f.entries))
	}
}
