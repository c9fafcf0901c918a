package chronicle

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// kept is the JSON form of a chronicle.
type kept struct {
	SourceSwitched bool         `json:"sourceSwitched,omitempty"`
	Turn           *keptTurn    `json:"turn,omitempty"`
	Receivers      []keptRecord `json:"receivers,omitempty"`
	Confirmed      []keptID     `json:"confirmed,omitempty"`
	Of             []keptID     `json:"of,omitempty"` // see TextFor; absent: all receivers of the reader's file
}

type keptRecord struct {
	keptID
	Record
}

type keptID struct {
	IP        netip.Addr `json:"ip"`
	RemoteQPN roce.QPN   `json:"remoteQPN"`
}

func (k keptID) id() groupfile.ID { return groupfile.ID{IP: k.IP, RemoteQPN: k.RemoteQPN} }

func compareIDs(a, b keptID) int {
	if c := a.IP.Compare(b.IP); c != 0 {
		return c
	}
	return int(a.RemoteQPN) - int(b.RemoteQPN)
}

// Text returns the chronicle as JSON, or nil if it is that of a new group.
func (c *Chronicle) Text() ([]byte, error) {
	if len(c.records) == 0 && !c.Switched && c.Turn == nil && len(c.confirmed) == 0 {
		return nil, nil
	}
	return c.text(nil)
}

// TextFor is Text for a reader that may have a later file than f, the one that c is about. It names
// the receivers of f. To the reader any other one is lost: it may have joined since, and at which
// packet is not known.
func (c *Chronicle) TextFor(f *groupfile.File) ([]byte, error) {
	var of []keptID
	for i := range f.Receivers {
		id := f.Receivers[i].ID()
		of = append(of, keptID{id.IP, id.RemoteQPN})
	}
	return c.text(of)
}

func (c *Chronicle) text(of []keptID) ([]byte, error) {
	k := kept{SourceSwitched: c.Switched, Turn: keepTurn(c.Turn), Of: of}
	for id, r := range c.records {
		k.Receivers = append(k.Receivers, keptRecord{keptID{id.IP, id.RemoteQPN}, *r})
	}
	for id := range c.confirmed {
		k.Confirmed = append(k.Confirmed, keptID{id.IP, id.RemoteQPN})
	}
	slices.SortFunc(k.Receivers, func(a, b keptRecord) int { return compareIDs(a.keptID, b.keptID) })
	slices.SortFunc(k.Confirmed, compareIDs)
	return json.MarshalIndent(k, "", "  ")
}

// ReadConfirmed reads only who has confirmed, for a group that never carried data.
func ReadConfirmed(text []byte, f *groupfile.File) (Chronicle, error) {
	c, err := Read(text, f, true)
	return Chronicle{confirmed: c.confirmed}, err
}

// SaysSwitched reports whether a Text is that of a group whose source has switched, or is about to.
func SaysSwitched(text []byte) bool {
	var k kept
	return json.Unmarshal(text, &k) == nil && k.SourceSwitched
}

// Read is the inverse of Text, for a group that is restored after a clean stop or a crash. It
// ignores receivers that the file lacks: the daemon ended between writing the file and writing the
// chronicle. Receivers that a TextFor lacks are lost.
func Read(text []byte, f *groupfile.File, clean bool) (Chronicle, error) {
	var c Chronicle
	if text == nil {
		return c, nil
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return c, fmt.Errorf("the state that was kept of its receivers cannot be read (%w); remove the group and "+
			"create it again", err)
	}
	known := map[groupfile.ID]bool{}
	for _, m := range f.Receivers {
		known[m.ID()] = true
	}
	c.Switched = k.SourceSwitched
	c.Turn = without(k.Turn.turn(), func(id groupfile.ID) bool { return !known[id] })
	for _, confirmed := range k.Confirmed {
		if known[confirmed.id()] {
			c.Confirm(confirmed.id())
		}
	}
	for _, r := range k.Receivers {
		id := r.id()
		if !slices.Contains(standings, r.Standing) {
			return c, fmt.Errorf("the state that was kept of its receiver %v is %q, which is none; remove the group and create it "+
				"again", r.IP, r.Standing)
		}
		if !known[id] {
			continue
		}
		isSource := c.Turn != nil && c.Turn.Source == mft.QP(id) // nothing is sent to it until its turn ends
		if r.Standing == Joining && !clean && !isSource {
			r.Standing = Lost
		}
		if r.Standing == Joined {
			r.since = &r.PSN
		}
		c.set(id, r.Record)
	}
	if k.Of != nil {
		for _, of := range k.Of {
			delete(known, of.id())
		}
		for id := range known {
			c.LeaveOut(id, Lost)
		}
	}
	c.recallBefore(f)
	return c, nil
}
