package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// firstEntries is the room of the map of the entries at the start: for those of some thousands of
// groups. The kernel makes 16 bytes at once for each entry that a map may have, and after a crash
// sources wait for that: it would be 16 MiB for GroupEntriesMax.
const firstEntries = 1 << 15

// putEntry adds an entry, and makes room for it where the map is full.
func (c *Classifier) putEntry(key programsRocastKey, group uint32) error {
	c.entries.Lock()
	defer c.entries.Unlock()
	err := c.maps.Groups.Put(key, group)
	if !errors.Is(err, unix.E2BIG) || c.maps.Groups.MaxEntries() >= c.most {
		return err
	}
	if err := c.grow(); err != nil {
		// Not wrapped: E2BIG from here does not say that all entries are taken.
		return fmt.Errorf("make room for more than %d entries: %v", c.maps.Groups.MaxEntries(), err)
	}
	return c.maps.Groups.Put(key, group)
}

func (c *Classifier) deleteEntry(key programsRocastKey) error {
	c.entries.Lock()
	defer c.entries.Unlock()
	return c.maps.Groups.Delete(key)
}

// grow replaces the map of the entries by the largest one, and lets the programs of all ports look
// there. Each frame finds its group meanwhile, because both maps have the same entries. After an
// error everything is as before. The caller holds c.entries.
func (c *Classifier) grow() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	groups := spec.Maps[programsMapGroups]
	groups.MaxEntries = c.most
	larger, err := ebpf.NewMap(groups)
	if err != nil {
		return explain(err)
	}
	was := c.maps.Groups
	if err = copyEntries(larger, was); err == nil {
		err = c.lookIn(larger, spec)
	}
	if err != nil {
		return errors.Join(err, larger.Close())
	}
	c.maps.Groups = larger
	_ = was.Close() // nobody looks there any more
	return nil
}

func copyEntries(to, from *ebpf.Map) error {
	keys, groups := make([]programsRocastKey, from.MaxEntries()), make([]uint32, from.MaxEntries())
	var at ebpf.MapBatchCursor
	for end := false; !end; {
		n, err := from.BatchLookup(&at, keys, groups, nil)
		if end = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !end {
			return err
		}
		if n > 0 {
			if _, err := to.BatchUpdate(keys[:n], groups[:n], nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookIn replaces the program of all ports by the same one that looks for groups in another map.
func (c *Classifier) lookIn(groups *ebpf.Map, spec *ebpf.CollectionSpec) error {
	c.programs.Lock()
	defer c.programs.Unlock()
	runs := &c.program
	load := c.loadAlone
	if c.fan != nil {
		runs, load = &c.fan.programs.Classify, c.fan.loadClassify
	}
	maps := c.share(spec, groups)
	program, err := load(spec, maps)
	if err != nil {
		return err
	}
	for i, p := range c.ports {
		// A link whose interface has gone runs nothing.
		if err := p.link.Update(program); err != nil && !errors.Is(err, unix.ENOLINK) {
			for _, p := range c.ports[:i] {
				err = errors.Join(err, p.link.Update(*runs))
			}
			return errors.Join(fmt.Errorf("port %s: %w", p.name, err), program.Close())
		}
	}
	was := *runs
	*runs = program
	_ = was.Close() // no port has it any more
	return nil
}

// loadAlone loads the classifier alone.
func (c *Classifier) loadAlone(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Program, error) {
	var of struct {
		Program *ebpf.Program `ebpf:"rocast_classify_alone"`
	}
	err := spec.LoadAndAssign(&of, &ebpf.CollectionOptions{MapReplacements: maps})
	return of.Program, explain(err)
}
