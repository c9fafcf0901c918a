package bpf

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// GroupEntriesMax bounds the entries of all groups together. A group has a few, one more for each
// further QPN that its receivers name, or one for each receiver where its frames carry two hosts'
// addresses (mft.Group.Keys). PutGroup refuses the next entry.
const GroupEntriesMax = 1 << 20

// Classifier holds what all ports share: the programs, the entries of the groups, and the counters.
type Classifier struct {
	maps   sharedMaps
	common []byte // the memory of maps.Common

	entries sync.Mutex // guards maps.Groups, and is locked before programs
	most    uint32     // number of entries for which maps.Groups may become large enough

	programs sync.Mutex    // guards these three
	program  *ebpf.Program // the classifier alone
	fan      *FanOut       // nil: the kernel does not fan out
	ports    []*Port       // that are open

	mu   sync.Mutex
	rows [portsMax]bool // those that ports have in maps.Sockets
}

// commonMap is the name of the map that has the variable common.
const commonMap = ".bss"

type sharedMaps struct {
	Groups   *ebpf.Map `ebpf:"groups"`
	Found    *ebpf.Map `ebpf:"found"`
	Counters *ebpf.Map `ebpf:"counters"`
	Sockets  *ebpf.Map `ebpf:"xsks"`
	Common   *ebpf.Map `ebpf:".bss"`
}

// Load loads the classifier. No frame is classified before OpenPort.
func Load() (*Classifier, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("load classifier: raise the locked memory limit: %w", explain(err))
	}
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("load classifier: %w", err)
	}
	return loadOf(spec, firstEntries)
}

// loadOf loads a classifier with room for that many entries, and for more when they come.
func loadOf(spec *ebpf.CollectionSpec, entries uint32) (*Classifier, error) {
	groups := spec.Maps[programsMapGroups]
	most := groups.MaxEntries
	groups.MaxEntries = entries
	var objs struct {
		sharedMaps
		Program *ebpf.Program `ebpf:"rocast_classify_alone"`
	}
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return nil, fmt.Errorf("load classifier: %w", explain(err))
	}
	c := &Classifier{maps: objs.sharedMaps, most: most, program: objs.Program}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("load classifier: %w", err), c.Close())
	}
	return c, nil
}

// LoadFanOut is Load for ports on which the kernel fans out the plain packets of groups that user
// space arms: see Classifier.LoadFanOut.
func LoadFanOut(t Tables, retained int) (*Classifier, error) {
	c, err := Load()
	if err != nil {
		return nil, err
	}
	f, err := c.LoadFanOut(t, retained)
	if err == nil {
		err = c.Engage(f)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// FanOut is the state of fan-out in the kernel; nil if the classifier was loaded without it.
func (c *Classifier) FanOut() *FanOut { return c.fan }

// PutGroup adds an entry: frames that match k belong to group from now on. An existing entry with
// the same key is replaced.
func (c *Classifier) PutGroup(k Key, group uint32) error {
	key, err := k.encode()
	if err == nil {
		err = c.putEntry(key, group)
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
		err = c.deleteEntry(key)
	}
	if err != nil {
		return fmt.Errorf("stop classifying %s: %w", k, err)
	}
	c.changed()
	return nil
}

// open maps the memory that the programs share with user space, and lets the programs remember
// groups from now on.
func (c *Classifier) open() (err error) {
	c.common, err = mapMemory(c.maps.Common)
	if err == nil {
		c.changed()
	}
	return err
}

// changed lets the programs forget which groups they have found. A program may have looked up a key
// just before it was changed, and it remembers that with the number of changes before.
func (c *Classifier) changed() {
	if order() == nil && c.counted().Add(1) == 0 { // 0 says that they remember nothing
		c.counted().Add(1)
	}
}

// counted is the number of changes.
func (c *Classifier) counted() *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&c.shared().Changes))
}

// shared is what the programs share with user space.
func (c *Classifier) shared() *programsRocastCommon {
	return (*programsRocastCommon)(unsafe.Pointer(&c.common[0]))
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

// Close closes the maps and programs. Ports that are still open keep using them. No entry may be
// added or removed meanwhile.
func (c *Classifier) Close() error {
	m := &c.maps
	err := errors.Join(c.program.Close(), m.Groups.Close(), m.Found.Close(), m.Counters.Close(), m.Sockets.Close(), m.Common.Close())
	if c.common != nil {
		err = errors.Join(err, unix.Munmap(c.common))
		c.common = nil
	}
	if c.fan != nil {
		err = errors.Join(err, c.fan.Close())
	}
	return err
}

// share returns the maps of the classifier, with groups as that of the entries, for further
// programs of spec. What they remember is their own: a program that still runs when another one has
// replaced it may find what is no longer an entry.
func (c *Classifier) share(spec *ebpf.CollectionSpec, groups *ebpf.Map) map[string]*ebpf.Map {
	spec.Maps[programsMapGroups].MaxEntries = groups.MaxEntries()
	return map[string]*ebpf.Map{
		programsMapGroups: groups, programsMapCounters: c.maps.Counters,
		programsMapXsks: c.maps.Sockets, commonMap: c.maps.Common,
	}
}

// explain adds the remedy to an error of loading or attaching, where one is known.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, run it as root or grant all three: %w", err)
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
