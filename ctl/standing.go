package ctl

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

// standing is what became of a receiver of a group that runs. One that has taken part from the source's first packet on has
// none.
type standing string

const (
	joining standing = "joining" // since an update; takes part from the next message on
	joined  standing = "joined"  // took part from PSN on
	evicted standing = "evicted" // is no longer waited for
	behind  standing = "behind"  // lacks what the source no longer has
	// lost: it was joining when the daemon crashed, so nobody knows whether its QP has received anything.
	lost standing = "lost"
)

// isOut says whether the receiver's part in the group is over.
func (s standing) isOut() bool { return s == evicted || s == behind || s == lost }

// record is a receiver's standing.
type record struct {
	Standing standing `json:"standing"`
	PSN      roce.PSN `json:"psn"` // of the source: the first it took part in, or the first it lacks
	update   int      // joining: since which update
	// apart: the published group lacks it. What ended while the daemon runs stays in the published group, where the data
	// path knows about it.
	apart bool
	// since is where it joined in an earlier run of the daemon, nil if it did not; it stays when the part ends.
	since *roce.PSN
}

// chronicle is what became of a group's members, as far as a restart has to know.
type chronicle struct {
	records map[groupfile.ID]*record
	// switched: another member than the first source has sent. Where each member's PSNs stood then only the data path
	// knows.
	switched bool
}

// kept is a chronicle in the state directory.
type kept struct {
	SourceSwitched bool         `json:"sourceSwitched,omitempty"`
	Receivers      []keptRecord `json:"receivers,omitempty"`
}

type keptRecord struct {
	IP        netip.Addr `json:"ip"`
	RemoteQPN roce.QPN   `json:"remoteQPN"`
	record
}

func (c *chronicle) standing(id groupfile.ID) standing {
	if r := c.records[id]; r != nil {
		return r.Standing
	}
	return ""
}

// apart says whether the published group lacks the receiver.
func (c *chronicle) apart(id groupfile.ID) bool {
	r := c.records[id]
	return r != nil && r.apart
}

func (c *chronicle) set(id groupfile.ID, r record) {
	if c.records == nil {
		c.records = map[groupfile.ID]*record{}
	}
	if before := c.records[id]; before != nil {
		r.since = before.since
	}
	c.records[id] = &r
}

// joinedAt notes that id took part from psn on, and with it all who were joining no later: the data path lets in at once
// whoever it knows of, and a note of one of them may be lost.
func (c *chronicle) joinedAt(id groupfile.ID, psn roce.PSN) (changed bool) {
	first := c.records[id]
	if first == nil || first.Standing != joining {
		return false
	}
	for _, r := range c.records {
		if r.Standing == joining && r.update <= first.update {
			r.Standing, r.PSN = joined, psn
		}
	}
	return true
}

// next is the chronicle of the group's next version: who is gone is forgotten, and who is new joins.
func (c *chronicle) next(running, f *groupfile.File) chronicle {
	update := 0
	for _, r := range c.records {
		update = max(update, r.update+1)
	}
	n := chronicle{switched: c.switched}
	for _, m := range f.Receivers {
		if r := c.records[m.ID()]; r != nil {
			n.set(m.ID(), *r)
		} else if running.Receiver(m.ID()) < 0 {
			n.set(m.ID(), record{Standing: joining, update: update})
		}
	}
	return n
}

// with is what two chronicles tell together.
func (c *chronicle) with(next chronicle) chronicle {
	both := chronicle{switched: c.switched || next.switched}
	for _, records := range []map[groupfile.ID]*record{c.records, next.records} {
		for id, r := range records {
			both.set(id, *r)
		}
	}
	return both
}

// text is nil when there is nothing to keep.
func (c *chronicle) text() ([]byte, error) {
	if len(c.records) == 0 && !c.switched {
		return nil, nil
	}
	k := kept{SourceSwitched: c.switched}
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

// readChronicle is the inverse of text, for a group that comes back after a crash or a clean stop. It passes over members
// that the group does not have: the daemon ended between two writes.
func readChronicle(text []byte, f *groupfile.File, clean bool) (chronicle, error) {
	var c chronicle
	if text == nil {
		return c, nil
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return c, fmt.Errorf("its kept state cannot be read (%w); remove it and create it anew", err)
	}
	known := map[groupfile.ID]bool{}
	for _, m := range f.Receivers {
		known[m.ID()] = true
	}
	c.switched = k.SourceSwitched
	for _, r := range k.Receivers {
		id := groupfile.ID{IP: r.IP, RemoteQPN: r.RemoteQPN}
		if !known[id] {
			continue
		}
		if r.Standing == joining && !clean {
			r.Standing = lost
		}
		r.apart = r.Standing != joined
		if r.Standing == joined {
			r.since = &r.PSN
		}
		c.set(id, r.record)
	}
	return c, nil
}

// mend says how a receiver whose part is over comes back.
func (r *record) mend() string {
	const again = "; to let it join again, group update without it, then with it and the psn its QP expects"
	switch r.Standing {
	case evicted:
		return fmt.Sprintf("evicted: it lacks the source's PSN %d and what follows%s", r.PSN, again)
	case behind:
		return fmt.Sprintf("behind: it lacks the source's PSN %d, which the source no longer has%s", r.PSN, again)
	}
	return "lost: it was joining when the daemon crashed, so what its QP has received is not known" + again
}
