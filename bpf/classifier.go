package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// GroupEntriesMax bounds the entries of all groups together. A group has a few, one more for each
// further QPN that its receivers name, or one for each receiver where its frames carry two hosts'
// addresses (mft.Group.Keys). PutGroup refuses the next entry. The kernel allocates 16 MiB for the
// empty map, and memory for each entry when it is added.
const GroupEntriesMax = 1 << 20

// Classifier holds what all ports share: the entries of the groups and the counters.
type Classifier struct {
	spec *ebpf.CollectionSpec
	maps sharedMaps
	fan  *FanOut // nil: the kernel does not fan out
	// changes is the memory of maps.Changes.
	changes []byte
}

type sharedMaps struct {
	Groups   *ebpf.Map `ebpf:"groups"`
	Changes  *ebpf.Map `ebpf:"changes"`
	Found    *ebpf.Map `ebpf:"found"`
	Counters *ebpf.Map `ebpf:"counters"`
}

// Load creates the maps. No frame is classified before OpenPort.
func Load() (*Classifier, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("load classifier: raise the locked memory limit: %w", explain(err))
	}
	spec, err := loadClassifier()
	if err != nil {
		return nil, fmt.Errorf("load classifier: %w", err)
	}
	return loadOf(spec)
}

func loadOf(spec *ebpf.CollectionSpec) (*Classifier, error) {
	c := &Classifier{spec: spec}
	if err := spec.LoadAndAssign(&c.maps, nil); err != nil {
		return nil, fmt.Errorf("load classifier: %w", explain(err))
	}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("load classifier: %w", err), c.Close())
	}
	return c, nil
}

// LoadFanOut is Load for ports on which the kernel fans out the plain packets of groups that user
// space arms. It fails if the kernel's verifier refuses the programs, so that OpenPort does not
// fail for that reason. If the verifier refuses only the part that merges answers, that part is
// left out: see FanOut.NoMerging. retained is the number of packets of which the kernel can keep a
// copy; 0: none.
func LoadFanOut(t Tables, retained int) (*Classifier, error) {
	if err := checkOrder(runtime.GOARCH); err != nil {
		return nil, fmt.Errorf("load fan-out: %w", err)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("load fan-out: raise the locked memory limit: %w", explain(err))
	}
	spec, err := loadFanout()
	if err != nil {
		return nil, fmt.Errorf("load fan-out: %w", err)
	}
	return loadFanOutOf(spec, t, retained)
}

func loadFanOutOf(spec *ebpf.CollectionSpec, t Tables, retained int) (*Classifier, error) {
	spec.Maps[fanoutMapRetained].MaxEntries = uint32(max(retained, 1))
	c := &Classifier{spec: spec, fan: &FanOut{retained: retained}}
	if err := spec.LoadAndAssign(&c.maps, nil); err != nil {
		return nil, fmt.Errorf("load fan-out: %w", explain(err))
	}
	if err := spec.LoadAndAssign(&c.fan.maps, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("load fan-out: %w", explain(err)), c.maps.close())
	}
	if err := errors.Join(c.open(), c.fan.open(t)); err != nil {
		return nil, errors.Join(fmt.Errorf("load fan-out: %w", err), c.Close())
	}
	if c.fan.noMerging = c.tryPort(1); c.fan.noMerging == nil {
		return c, nil
	}
	if err := c.tryPort(0); err != nil {
		return nil, errors.Join(fmt.Errorf("load fan-out: %w", err), c.Close())
	}
	return c, nil
}

// tryPort loads the programs of a port, which merge answers or do not.
func (c *Classifier) tryPort(mergesAnswers uint32) error {
	if err := c.spec.Variables[fanoutVarMergesAnswers].Set(mergesAnswers); err != nil {
		return err
	}
	trial, err := c.loadPort("", 0)
	if err != nil {
		return err
	}
	return trial.Close()
}

// FanOut is the state of fan-out in the kernel; nil if the classifier was loaded without it.
func (c *Classifier) FanOut() *FanOut { return c.fan }

// PutGroup adds an entry: frames that match k belong to group from now on. An existing entry with
// the same key is replaced.
func (c *Classifier) PutGroup(k Key, group uint32) error {
	key, err := k.encode()
	if err == nil {
		err = c.maps.Groups.Update(key, group, ebpf.UpdateAny)
	}
	switch {
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("classify %s as group %d: all %d entries are taken, delete a group first: %w",
			k, group, GroupEntriesMax, err)
	case err != nil:
		return fmt.Errorf("classify %s as group %d: %w", k, group, err)
	}
	c.changed()
	return nil
}

// DeleteGroup removes the entry with key k. Frames that match it go to the kernel from now on. If
// there is no such entry, the error is [ebpf.ErrKeyNotExist].
func (c *Classifier) DeleteGroup(k Key) error {
	key, err := k.encode()
	if err == nil {
		err = c.maps.Groups.Delete(key)
	}
	if err != nil {
		return fmt.Errorf("stop classifying %s: %w", k, err)
	}
	c.changed()
	return nil
}

// open maps the memory of the number of changes, and lets the programs remember groups from now on.
func (c *Classifier) open() (err error) {
	c.changes, err = mapMemory(c.maps.Changes)
	if err == nil {
		c.changed()
	}
	return err
}

// changed lets the programs forget which groups they have found. A program may have looked up a key
// just before it was changed, and it remembers that with the number of changes before.
func (c *Classifier) changed() {
	if checkOrder(runtime.GOARCH) == nil && c.counted().Add(1) == 0 { // 0 says that they remember nothing
		c.counted().Add(1)
	}
}

// counted is the number of changes.
func (c *Classifier) counted() *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&c.changes[0]))
}

// Counters reads the counters, summed over all CPUs.
func (c *Classifier) Counters() (Counters, error) {
	var sum Counters
	var perCPU []uint64
	for v := range sum {
		if err := c.maps.Counters.Lookup(uint32(v), &perCPU); err != nil {
			return Counters{}, fmt.Errorf("read classifier counter %s: %w", Verdict(v), err)
		}
		for _, n := range perCPU {
			sum[v] += n
		}
	}
	return sum, nil
}

// Close closes the maps. Ports that are still open keep using them. No entry may be added or
// removed meanwhile.
func (c *Classifier) Close() error {
	err := c.maps.close()
	if c.changes != nil {
		err = errors.Join(err, unix.Munmap(c.changes))
		c.changes = nil
	}
	if c.fan != nil {
		err = errors.Join(err, c.fan.close())
	}
	return err
}

func (m *sharedMaps) close() error {
	return errors.Join(m.Groups.Close(), m.Changes.Close(), m.Found.Close(), m.Counters.Close())
}

// shared are the maps that the programs of all ports use.
func (c *Classifier) shared() map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{
		classifierMapGroups: c.maps.Groups, classifierMapChanges: c.maps.Changes, classifierMapFound: c.maps.Found,
		classifierMapCounters: c.maps.Counters,
	}
	if f := c.fan; f != nil {
		for name, m := range map[string]*ebpf.Map{
			fanoutMapSlots: f.maps.Slots, fanoutMapPaths: f.maps.Paths, fanoutMapLengths: f.maps.Lengths,
			fanoutMapFans: f.maps.Fans, fanoutMapFanEvents: f.maps.Events, fanoutMapTraffic: f.maps.Traffic, fanoutMapTurns: f.maps.Turns,
			fanoutMapRetained: f.maps.Retained, fanoutMapCrc: f.maps.CRC,
		} {
			maps[name] = m
		}
	}
	return maps
}

// explain adds the remedy to an error of loading or attaching, where one is known.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("needs CAP_BPF and CAP_NET_ADMIN, run it as root or grant them both: %w", err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("the kernel's verifier refuses the program, with CAP_PERFMON it is less strict: %w", err)
	}
	for _, f := range Features() {
		if missing := f.Check(); errors.Is(missing, ebpf.ErrNotSupported) {
			return fmt.Errorf("%w: %w", missing, err)
		}
	}
	return err
}
