package groups

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rocast/rocast/roce"
)

// keptTree is the state of a group's tree as the state directory keeps it, besides the group file.
type keptTree struct {
	Epoch  uint64  `json:"epoch"`
	Branch *Branch `json:"branch,omitempty"`
	Links  []*Link `json:"links,omitempty"`
}

func (g *Group) treeText() ([]byte, error) {
	if g.Branch == nil && len(g.Links) == 0 {
		return nil, nil
	}
	return json.MarshalIndent(keptTree{g.Epoch, g.Branch, g.Links}, "", "  ")
}

// recallTree reads the state of a group's tree that the state directory has kept.
func (g *Group) recallTree(text []byte, now time.Time) error {
	if text == nil {
		return nil
	}
	var k keptTree
	if err := json.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("the state that was kept of its links cannot be read (%w); remove the group and create it again", err)
	}
	g.Epoch, g.Branch = k.Epoch, k.Branch
	if b := g.Branch; b != nil {
		b.Expires, b.Sent = now.Add(b.Lease), roce.PSN(b.Link.PSN).Prev()
	}
	for _, l := range k.Links {
		// The daemon may have ended before it stored the last version that it sent.
		l.Version = NextVersion(l.Version, now)
	}
	g.SetLinks(k.Links)
	return nil
}
