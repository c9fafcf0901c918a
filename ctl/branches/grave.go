package branches

import (
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
)

// ended names a branch that has ended.
type ended struct{ upper, name string }

// grave remembers a branch that has ended: a request that was sent before may come later, and the
// box above may ask for the branch again without having heard what happened to its receivers.
type grave struct {
	version uint64    // requests up to this version are refused,
	until   time.Time // until then

	branch      *groups.Branch // nil: this box did not have the branch, and the following fields are zero
	memberships map[groupfile.ID]groups.Membership
	switched    bool // its source has switched
}

// graves has the graves of a box. The lock of the groups guards it.
type graves map[ended]grave

const (
	// remembersFor is how long a box remembers what has happened to the receivers of an ended
	// branch.
	remembersFor = 24 * time.Hour
	// maxGraves bounds the branches that are remembered so: boxes above may set up and withdraw any
	// number of groups in that time.
	maxGraves = 4096
)

// bury remembers a branch that has ended. It forgets branches whose time is over, and the oldest
// one if there are too many.
func (gone graves) bury(b ended, as grave) {
	now := time.Now()
	oldest := b
	for other, g := range gone {
		if keep := len(g.memberships) > 0 || g.switched; now.After(g.until) && !keep || now.After(g.until.Add(remembersFor)) {
			delete(gone, other)
		} else if oldest == b || g.until.Before(gone[oldest].until) {
			oldest = other
		}
	}
	if gone[b] = as; len(gone) > maxGraves {
		delete(gone, oldest)
	}
}

// refuseStale refuses a request that is older than the end of a branch.
func (gone graves) refuseStale(b ended, version uint64) error {
	if g := gone[b]; version <= g.version && time.Now().Before(g.until) {
		return stale(b.name, version, g.version)
	}
	return nil
}

// recall returns where the receivers of a new branch are: as the box above states it, and as they
// were when the branch of the same link ended. switched reports whether the source of that branch
// had switched.
func (gone graves) recall(as ended, b *api.Branch) (all map[groupfile.ID]groups.Membership, switched bool) {
	all, g := groups.MembershipsIn(b.Later), gone[as]
	if g.branch == nil || !g.branch.IsBy(b) {
		return all, false
	}
	for id, at := range g.memberships {
		// A receiver that is still joining, as far as the box above knows, may have joined here. If
		// the request has another version, another queue pair with the same ID may join.
		if unknown := all[id] == (groups.Membership{}); at.Out || unknown && b.Version == g.branch.Version {
			all[id] = at
		}
	}
	return all, g.switched
}
