package branches

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
)

// A box remembers so many ended branches, however many end in a day, and forgets the oldest ones.
func TestSoManyEndedBranchesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := graves{}
		name := func(i int) ended { return ended{"b1", fmt.Sprint(i)} }
		bury := func(i int) {
			time.Sleep(time.Second)
			gone.bury(name(i), grave{version: 1, until: time.Now(), memberships: map[groupfile.ID]groups.Membership{{}: {Out: true}}})
		}
		bury(maxGraves) // the oldest one, until it ends once more
		for i := range maxGraves + 2 {
			bury(i)
		}
		for _, i := range []int{0, 1, 2, maxGraves, maxGraves + 1} {
			if _, there := gone[name(i)]; there != (i >= 2) || len(gone) != maxGraves {
				t.Errorf("branch %d is remembered: %v, with %d in all", i, there, len(gone))
			}
		}
	})
}
