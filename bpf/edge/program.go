package edge

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/roce"
)

// DefaultPins is where the folders of all interfaces are.
const DefaultPins = "/sys/fs/bpf/rocast-edge"

// Program is the program at an interface. What it has pinned stays when the process ends.
type Program struct {
	maps   *edgeMaps
	hook   hook
	pinned string // the folder; "": nothing is pinned, for tests
}

// pinnedMaps are the maps that outlive the process. That of the tables is the same for all programs
// of a build.
var pinnedMaps = []string{edgeMapMappings, edgeMapAddresses, edgeMapFates}

// open makes the maps, or takes over those that are pinned in the folder and still fit.
func open(folder string) (*Program, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked memory limit: %w", explain(err))
	}
	spec, err := loadEdge()
	if err != nil {
		return nil, err
	}
	p := &Program{maps: new(edgeMaps), pinned: folder}
	options := &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	defer func() {
		for _, m := range options.MapReplacements {
			m.Close()
		}
	}()
	for _, name := range pinnedMaps {
		if folder == "" {
			break
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(folder, name), nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("take over %s: %w", filepath.Join(folder, name), explain(err))
		case spec.Maps[name].Compatible(m) != nil: // of a build with other maps
			err = errors.Join(m.Unpin(), m.Close())
			if err != nil {
				return nil, err
			}
		default:
			options.MapReplacements[name] = m
		}
	}
	if err := spec.LoadAndAssign(p.maps, options); err != nil {
		return nil, fmt.Errorf("make the maps: %w", explain(err))
	}
	if err := p.fill(options.MapReplacements); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// fill pins the maps that are new, and writes the tables.
func (p *Program) fill(takenOver map[string]*ebpf.Map) error {
	var t edgeRocastTables
	t.Crc = *roce.CRCTables()
	for k := range t.Zeros {
		t.Zeros[k] = *roce.Operator(4 << k)
	}
	if err := p.maps.Tables.Put(uint32(0), &t); err != nil {
		return fmt.Errorf("write the tables of CRC-32: %w", err)
	}
	if p.pinned == "" {
		return nil
	}
	for name, m := range map[string]*ebpf.Map{
		edgeMapMappings: p.maps.Mappings, edgeMapAddresses: p.maps.Addresses, edgeMapFates: p.maps.Fates,
	} {
		if takenOver[name] != nil {
			continue
		}
		if err := m.Pin(filepath.Join(p.pinned, name)); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	return nil
}

// load loads one of the programs, which uses the maps of p.
func (p *Program) load(name string) (*ebpf.Program, error) {
	spec, err := loadEdge()
	if err != nil {
		return nil, err
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
		edgeMapMappings: p.maps.Mappings, edgeMapAddresses: p.maps.Addresses, edgeMapFates: p.maps.Fates, edgeMapTables: p.maps.Tables,
	}})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", name, explain(err))
	}
	defer loaded.Close()
	return loaded.DetachProgram(name), nil
}

// Put lets the packets of a leg become those of a queue pair from now on. A mapping of the same leg
// is replaced, which no packet notices halfway.
func (p *Program) Put(m Mapping) error {
	if err := m.objection(); err != nil {
		return err
	}
	err := p.maps.Addresses.Put(addressKey(m.To), uint32(1))
	if err == nil {
		err = p.maps.Mappings.Put(m.key(), m.value())
	}
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("map %v: the edge has %d mappings already, which are the most", m.Key, MappingsMax)
	}
	if err != nil {
		return fmt.Errorf("map %v: %w", m.Key, err)
	}
	return nil
}

// Delete lets the packets of a leg be dropped from now on. Those to an address without any mapping
// go to the host again.
func (p *Program) Delete(k Key) error {
	if err := p.maps.Mappings.Delete(k.key()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete the mapping of %v: %w", k, err)
	}
	for m, err := range p.Mappings() {
		if err != nil || m.To == k.To {
			return err
		}
	}
	if err := p.maps.Addresses.Delete(addressKey(k.To)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget the address %v: %w", k.To, err)
	}
	return nil
}

// Mappings are all mappings. The last one may be an error.
func (p *Program) Mappings() iter.Seq2[Mapping, error] { return mappingsOf(p.maps.Mappings) }

func mappingsOf(m *ebpf.Map) iter.Seq2[Mapping, error] {
	return func(yield func(Mapping, error) bool) {
		var key edgeRocastLeg
		var value edgeRocastMapping
		entries := m.Iterate()
		for entries.Next(&key, &value) {
			if !yield(mapping(key, value), nil) {
				return
			}
		}
		if err := entries.Err(); err != nil {
			yield(Mapping{}, fmt.Errorf("read the mappings: %w", err))
		}
	}
}

// Counters say what became of the RoCEv2 packets to the multicast addresses of an edge.
type Counters struct {
	Mapped        uint64 `json:"mapped"`
	NoMapping     uint64 `json:"noMapping"`
	RefusedLength uint64 `json:"refusedLength"`
	RefusedRegion uint64 `json:"refusedRegion"`
}

// Refused is the number of packets that had a mapping and were dropped.
func (c Counters) Refused() uint64 { return c.RefusedLength + c.RefusedRegion }

// Counters reads the counters, since the first program was attached to the interface.
func (p *Program) Counters() (Counters, error) { return countersOf(p.maps.Fates) }

func countersOf(m *ebpf.Map) (c Counters, err error) {
	for fate, to := range map[edgeRocastFate]*uint64{
		edgeRocastFateMAPPED: &c.Mapped, edgeRocastFateNO_MAPPING: &c.NoMapping,
		edgeRocastFateREFUSED_LENGTH: &c.RefusedLength, edgeRocastFateREFUSED_REGION: &c.RefusedRegion,
	} {
		var perCPU []uint64
		if err := m.Lookup(fate, &perCPU); err != nil {
			return c, fmt.Errorf("read the counters: %w", err)
		}
		for _, n := range perCPU {
			*to += n
		}
	}
	return c, nil
}

// Close ends the use of the program. What is pinned goes on.
func (p *Program) Close() error {
	err := p.maps.Close()
	if p.hook != nil {
		err = errors.Join(err, p.hook.close())
	}
	return err
}

// explain adds the remedy to an error of loading or attaching, where one is known.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, run it as root: %w", err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("the kernel's verifier refuses the program: %w", err)
	}
	return err
}
