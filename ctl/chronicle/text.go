package chronicle

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// kept is the JSON form of a chronicle.
type kept struct {
	SourceSwitched bool         `json:"sourceSwitched,omitempty"`
	Receivers      []keptRecord `json:"receivers,omitempty"`
}

type keptRecord struct {
	IP        netip.Addr `json:"ip"`
	RemoteQPN roce.QPN   `json:"remoteQPN"`
	Record
}

// Text returns the chronicle as JSON, or nil if it is that of a new group.
func (c *Chronicle) Text() ([]byte, error) {
	if len(c.records) == 0 && !c.Switched {
		return nil, nil
	}
	k := kept{SourceSwitched: c.Switched}
	for id, r := range c.records {
		k.Receivers = append(k.Receivers, keptRecord{id.IP, id.RemoteQPN, *r})
	}
	slices.SortFunc(k.Receivers, func(a, b keptRecord) int {
		if c := a.IP.Compare(b.IP); c != 0 {
			return c
		}
		return int(a.RemoteQPN) - int(b.RemoteQPN)
	})
	return json.MarshalIndent(k, "", "  ")
}

// Read is the inverse of Text, for a group that is restored after a clean stop or a crash. It
// ignores receivers that the file lacks: the daemon ended between writing the file and writing the
// chronicle.
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
	for _, r := range k.Receivers {
		id := groupfile.ID{IP: r.IP, RemoteQPN: r.RemoteQPN}
		if !known[id] {
			continue
		}
		if r.Standing == Joining && !clean {
			r.Standing = Lost
		}
		r.apart = r.Standing != Joined
		if r.Standing == Joined {
			r.since = &r.PSN
		}
		c.set(id, r.Record)
	}
	return c, nil
}
