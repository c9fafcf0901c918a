package branches

import (
	"context"
	"sync"

	"github.com/rocast/rocast/ctl/api"
)

// BranchTree is Tree for an upper box. It refuses whoever is no neighbour: the CA also signs
// certificates of programs, which have their rights by clients: and readClients: of api:.
func (t *Branches) BranchTree(ctx context.Context, upper, name string) (api.Tree, error) {
	if t.neighbourNamed(upper) == nil {
		return api.Tree{}, t.noNeighbour(upper)
	}
	return t.Tree(ctx, name)
}

// Tree describes a group's part on this box, and asks the boxes behind it for theirs. It contains
// no R_Keys. A box that could not be asked is in the answer with the reason.
func (t *Branches) Tree(ctx context.Context, name string) (api.Tree, error) {
	g, err := t.Describe(name)
	if err != nil {
		return api.Tree{}, err
	}
	g.Memory = nil
	for i := range g.Members {
		g.Members[i].Regions = nil
	}
	all := api.Tree{Box: t.Box, Group: g, Below: make([]api.Tree, len(g.Links))}
	ctx, cancel := context.WithTimeout(ctx, timeToAsk(ctx))
	defer cancel()
	var asking sync.WaitGroup
	for i, l := range g.Links {
		asking.Go(func() {
			below, err := t.Boxes.Tree(ctx, l.Box, name)
			if err != nil {
				below = api.Tree{Box: l.Box, Reason: tellable(err).Error()}
			}
			all.Below[i] = below
		})
	}
	asking.Wait()
	return all, nil
}
