package config

import (
	"slices"

	"github.com/rocast/rocast/ctl/neighbour"
	"github.com/rocast/rocast/ctl/yamldoc"
)

func (c *Config) readNeighbours(v yamldoc.Value) error {
	return v.Each("neighbour", func(item yamldoc.Value) error {
		n, err := neighbour.Read(item)
		if err != nil {
			return err
		}
		same := func(key string, is func(neighbour.Config) bool) error {
			if at := slices.IndexFunc(c.Neighbours, is); at >= 0 {
				return item.Errorf("has the same %s as neighbour %d; correct one of them", key, at+1)
			}
			return nil
		}
		if err := same("name", func(o neighbour.Config) bool { return o.Name == n.Name }); err != nil {
			return err
		}
		if err := same("address", func(o neighbour.Config) bool { return o.Address == n.Address }); err != nil {
			return err
		}
		if len(c.Neighbours) == neighbour.Max {
			return item.Errorf("is one more than the limit of %d; remove it", neighbour.Max)
		}
		c.Neighbours = append(c.Neighbours, n)
		return nil
	})
}

// checkNeighbours refuses neighbours that this box could not ask.
func (c *Config) checkNeighbours(line int) error {
	if len(c.Neighbours) > 0 && !c.API.On() {
		return yamldoc.Errorf(line, "neighbours need to know this box by its certificate, and the config has no api; add "+
			"api: {listen: ADDRESS:PORT, cert: FILE, key: FILE, ca: FILE}")
	}
	return nil
}
