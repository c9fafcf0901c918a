package bpf

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Bounds of fan-out in the kernel. They are those of fanout.h.
const (
	Slots       = 1024              // groups that can be armed at one time
	SlotPaths   = len(Slot{}.Acked) // receivers and shared legs of an armed group
	SlotPorts   = len(Slot{}.Copies)
	SlotRegions = len(Slot{}.Regions)
	Fans        = 256  // different sets of ports that groups send to
	Lengths     = 1032 // different lengths of a packet, in 4-byte words between the BTH and the ICRC
	// RetainedBytes is the longest frame of which the kernel can keep a copy in one entry.
	RetainedBytes = len(retained{}.Frame)
)

// Slot and Path are struct rocast_slot and struct rocast_path of fanout.h, where the fields are
// explained.
type (
	Slot = programsRocastSlot
	Path = programsRocastPath
)

// retained is struct rocast_retained of fanout.h. It is laid over the memory of the map.
type retained struct{ programsRocastRetained }

func (r *retained) packet() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.Packet)) }

// Tables are the CRC-32 tables that the programs use.
type Tables struct {
	// CRC[k][b] is the register after byte b and k zero bytes.
	CRC *CRC
	// Operator returns the map of the register over this many 4-byte words of zeros, as one table
	// for each byte of the register. The new register is the XOR of the four entries.
	Operator func(words int) *[4][256]uint32
}

// CRC are the tables of struct rocast_crc.
type CRC = [len(programsRocastCrc{}.Table)][256]uint32

// FanOut is the state that fan-out in the kernel shares with user space. Slots, paths and retained
// packets are shared memory: to read and write them takes no system call.
type FanOut struct {
	maps     fanOutMaps
	programs fanOutPrograms
	mapped   [3][]byte // slots, paths, retained packets
	retained int       // number of entries
	room     uint32    // of the map of groups' entries in which the classifier looks

	noMerging error // why the programs do not merge answers; nil: they do
}

// NoMerging returns why the kernel cannot merge answers, or nil if it can.
func (f *FanOut) NoMerging() error { return f.noMerging }

type fanOutMaps struct {
	Slots    *ebpf.Map `ebpf:"slots"`
	Paths    *ebpf.Map `ebpf:"paths"`
	Retained *ebpf.Map `ebpf:"retained"`
	Lengths  *ebpf.Map `ebpf:"lengths"`
	CRC      *ebpf.Map `ebpf:"crc"`
	Fans     *ebpf.Map `ebpf:"fans"`
	Events   *ebpf.Map `ebpf:"fan_events"`
	Traffic  *ebpf.Map `ebpf:"traffic"`
	Ranks    *ebpf.Map `ebpf:"ranks"`
}

// fanOutPrograms serve all ports.
type fanOutPrograms struct {
	Classify *ebpf.Program `ebpf:"rocast_classify"`
	Copy     *ebpf.Program `ebpf:"rocast_fan_out"` // runs on every copy in front of its port
}

// LoadFanOut loads the programs that fan out, and what they need. The ports go on without them
// until Engage, so they forward meanwhile: the verifier takes a tenth of a second. If the verifier
// refuses only the part that merges answers, that part is left out: see FanOut.NoMerging. retained
// is the number of entries for packets of which the kernel keeps a copy; 0: none.
func (c *Classifier) LoadFanOut(t Tables, retained int) (*FanOut, error) {
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("load fan-out: %w", err)
	}
	return c.loadFanOutOf(spec, t, retained)
}

func (c *Classifier) loadFanOutOf(spec *ebpf.CollectionSpec, t Tables, retained int) (*FanOut, error) {
	if err := order(); err != nil {
		return nil, fmt.Errorf("load fan-out: %w", err)
	}
	spec.Maps[programsMapRetained].MaxEntries = uint32(max(retained, 1))
	c.entries.Lock()
	groups, err := c.maps.Groups.Clone() // groups may outgrow it meanwhile
	c.entries.Unlock()
	if err != nil {
		return nil, fmt.Errorf("load fan-out: %w", err)
	}
	defer groups.Close()
	f := &FanOut{retained: retained, room: groups.MaxEntries()}
	err = spec.LoadAndAssign(&f.maps, &ebpf.CollectionOptions{MapReplacements: c.share(spec, groups)})
	if err != nil {
		return nil, fmt.Errorf("load fan-out: %w", explain(err))
	}
	options := &ebpf.CollectionOptions{MapReplacements: f.with(c.share(spec, groups))}
	load := func(mergesAnswers uint32) error {
		err := spec.Variables[programsVarMergesAnswers].Set(mergesAnswers)
		if err == nil {
			err = spec.LoadAndAssign(&f.programs, options)
		}
		return explain(err)
	}
	if err = f.open(t); err == nil {
		if f.noMerging = load(1); f.noMerging != nil {
			err = load(0)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load fan-out: %w", err), f.Close())
	}
	return f, nil
}

// loadClassify loads the classifier that fans out by f. maps has those of the classifier.
func (f *FanOut) loadClassify(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (*ebpf.Program, error) {
	var of struct {
		Program *ebpf.Program `ebpf:"rocast_classify"`
	}
	mergesAnswers := uint32(1)
	if f.noMerging != nil {
		mergesAnswers = 0
	}
	spec.Maps[programsMapRetained].MaxEntries = f.maps.Retained.MaxEntries()
	err := spec.Variables[programsVarMergesAnswers].Set(mergesAnswers)
	if err == nil {
		err = spec.LoadAndAssign(&of, &ebpf.CollectionOptions{MapReplacements: f.with(maps)})
	}
	return of.Program, explain(err)
}

// with adds the maps of f.
func (f *FanOut) with(maps map[string]*ebpf.Map) map[string]*ebpf.Map {
	m := &f.maps
	maps[programsMapSlots], maps[programsMapPaths], maps[programsMapLengths], maps[programsMapFans] = m.Slots, m.Paths, m.Lengths, m.Fans
	maps[programsMapFanEvents], maps[programsMapTraffic], maps[programsMapRanks] = m.Events, m.Traffic, m.Ranks
	maps[programsMapRetained], maps[programsMapCrc] = m.Retained, m.CRC
	return maps
}

// Engage lets f fan out what comes by these ports, which must be all that are open, and by those
// that are opened later. No frame is lost meanwhile. The classifier closes f. After an error
// everything is as before, and f is closed.
func (c *Classifier) Engage(f *FanOut, ports ...*Port) error {
	c.entries.Lock()
	defer c.entries.Unlock()
	if err := f.followEntries(c); err != nil {
		return errors.Join(fmt.Errorf("engage fan-out: %w", err), f.Close())
	}
	c.programs.Lock()
	defer c.programs.Unlock()
	for i, p := range ports {
		err := p.link.Update(f.programs.Classify)
		if err == nil {
			err = f.sendBy(p)
		}
		if err != nil {
			for _, p := range ports[:i+1] {
				err = errors.Join(err, p.link.Update(c.program))
			}
			return errors.Join(fmt.Errorf("engage fan-out at port %s: %w", p.name, err), f.Close())
		}
	}
	c.fan = f
	return nil
}

// followEntries loads the classifier of f again where groups have outgrown their map since.
func (f *FanOut) followEntries(c *Classifier) error {
	groups := c.maps.Groups
	if f.room == groups.MaxEntries() {
		return nil
	}
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	program, err := f.loadClassify(spec, c.share(spec, groups))
	if err != nil {
		return err
	}
	was := f.programs.Classify
	f.programs.Classify, f.room = program, groups.MaxEntries()
	return was.Close()
}

// classify is the program of the ports.
func (c *Classifier) classify() *ebpf.Program {
	if c.fan != nil {
		return c.fan.programs.Classify
	}
	return c.program
}

// open maps the shared memory and fills in the tables.
func (f *FanOut) open(t Tables) (err error) {
	for i, m := range []*ebpf.Map{f.maps.Slots, f.maps.Paths, f.maps.Retained} {
		if f.mapped[i], err = mapMemory(m); err != nil {
			return err
		}
	}
	if err := f.maps.CRC.Put(uint32(0), t.CRC); err != nil {
		return fmt.Errorf("write the tables of CRC-32: %w", err)
	}
	lengths, err := mapMemory(f.maps.Lengths)
	if err != nil {
		return err
	}
	const operatorBytes = int(unsafe.Sizeof([4][256]uint32{}))
	for words := range Lengths {
		*(*[4][256]uint32)(unsafe.Pointer(&lengths[words*operatorBytes])) = *t.Operator(words)
	}
	return unix.Munmap(lengths)
}

// mapMemory maps the values of an array map. The kernel aligns each value to 8 bytes.
func mapMemory(m *ebpf.Map) ([]byte, error) {
	bytes := int(m.ValueSize()+7) / 8 * 8 * int(m.MaxEntries())
	b, err := unix.Mmap(m.FD(), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of %v: %w", m, err)
	}
	return b, nil
}

// Slot returns slot i. While its word is armed, only the word, payload, the limit, asked, span,
// told and acked may be accessed, and only atomically.
func (f *FanOut) Slot(i int) *Slot {
	return &unsafe.Slice((*Slot)(unsafe.Pointer(&f.mapped[0][0])), Slots)[i]
}

// Paths returns the paths of slot i.
func (f *FanOut) Paths(i int) *[SlotPaths]Path {
	return &unsafe.Slice((*[SlotPaths]Path)(unsafe.Pointer(&f.mapped[1][0])), Slots)[i]
}

// Word returns the word of slot i, which user space and the kernel change.
func (f *FanOut) Word(i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&f.Slot(i).Word))
}

// Limit returns the limit of slot i, which user space may raise while the slot is armed.
func (f *FanOut) Limit(i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&f.Slot(i).Limit))
}

// Span returns how far beyond Told packets may be carried.
func (f *FanOut) Span(i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&f.Slot(i).Span))
}

// Told returns the word of slot i that says what the source was told last (answers.h).
func (f *FanOut) Told(i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&f.Slot(i).Told))
}

// Acked returns the word of slot i that says what a path has acknowledged (answers.h).
func (f *FanOut) Acked(i, path int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&f.Slot(i).Acked[path]))
}

// RetainedEntries is the number of entries for packets of which the kernel keeps a copy.
func (f *FanOut) RetainedEntries() int { return f.retained }

// Retained returns the packet with this PSN as the source sent it, in shared memory: head, and rest
// where it goes on in the next entry. Both are nil if an entry has another packet: slot i has not
// carried this one with the block that it has now. The kernel writes to the entries when it carries
// a packet that has the same ones. Slot.Limit must forbid that for as long as the result is used.
func (f *FanOut) Retained(i, entry int, psn uint32) (head, rest []byte) {
	want := uint64(psn) | uint64(i)<<packetSlotShift | f.Word(i).Load()>>WordEpochShift<<packetEpochShift
	var parts [2][]byte
	for k := range parts {
		if entry+k >= f.retained {
			return nil, nil
		}
		r := &f.entries()[entry+k]
		if r.packet().Load() != want {
			return nil, nil
		}
		parts[k] = r.Frame[:min(int(r.Bytes), RetainedBytes)]
		if int(r.Bytes) <= RetainedBytes {
			return parts[0], parts[1]
		}
	}
	return nil, nil
}

// As in fanout.h.
const (
	WordEpochShift   = 50 // of the epoch in a slot's word
	packetSlotShift  = 24
	packetEpochShift = 34
)

func (f *FanOut) entries() []retained {
	return unsafe.Slice((*retained)(unsafe.Pointer(&f.mapped[2][0])), f.retained)
}

// Asked returns the last packet of slot i that asks for an ACK, since the slot's Asked was set to
// 0; ok is false if there was none. If Word is read before, Asked knows all packets that Word
// counts.
func (f *FanOut) Asked(i int) (psn uint32, ok bool) {
	asked := (*atomic.Uint32)(unsafe.Pointer(&f.Slot(i).Asked)).Load()
	return asked &^ asks, asked&asks != 0
}

// Payload returns the payload bytes of the packets that the kernel has carried of slot i since the
// slot's Payload was set to 0.
func (f *FanOut) Payload(i int) uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&f.Slot(i).Payload)).Load()
}

// asks is ASKED of fanout.h.
const asks = 1 << 31

// PutFan makes fan i the set of these ports. One copy of each packet leaves by each entry of ports;
// a port with several paths has several entries.
func (f *FanOut) PutFan(i int, ports []*Port) error {
	if len(ports) > SlotPaths {
		return fmt.Errorf("make fan %d: %d paths are more than the %d it can have", i, len(ports), SlotPaths)
	}
	devices, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "rocast_fan", Type: ebpf.DevMapHash, KeySize: 4, ValueSize: 8, MaxEntries: uint32(SlotPaths),
	})
	if err != nil {
		return fmt.Errorf("make fan %d: %w", i, explain(err))
	}
	defer devices.Close() // the outer map holds a reference
	for k, p := range ports {
		entry := struct{ ifindex, program uint32 }{uint32(p.ifindex), uint32(f.programs.Copy.FD())}
		if err := devices.Put(uint32(k), entry); err != nil {
			return fmt.Errorf("make fan %d: port %s: %w", i, p.name, err)
		}
	}
	if err := f.maps.Fans.Put(uint32(i), devices); err != nil {
		return fmt.Errorf("make fan %d: %w", i, err)
	}
	return nil
}

// sendBy lets merged ACKs leave by a port. The entry stays when the port is closed, until its
// interface goes or the number gets another port; nothing is merged for it then.
func (f *FanOut) sendBy(p *Port) error {
	if p.number >= uint32(SlotPorts) {
		return nil
	}
	return f.PutFan(Fans+int(p.number), []*Port{p})
}

// FanEvent is the reason why the kernel disarmed a group or dropped a copy.
type FanEvent uint32

const (
	DisarmedPSN    = FanEvent(programsRocastFanEventDISARMED_PSN)    // not the next PSN
	DisarmedHeader = FanEvent(programsRocastFanEventDISARMED_HEADER) // not the headers of a plain packet
	DisarmedRegion = FanEvent(programsRocastFanEventDISARMED_REGION) // a WRITE outside the group's memory, or of length 0
	DisarmedLimit  = FanEvent(programsRocastFanEventDISARMED_LIMIT)  // too far ahead of the slowest receiver
	DisarmedRace   = FanEvent(programsRocastFanEventDISARMED_RACE)   // two CPUs had packets of the group at once
	DisarmedRetain = FanEvent(programsRocastFanEventDISARMED_RETAIN) // the packet is too long to be retained
	DisarmedFan    = FanEvent(programsRocastFanEventDISARMED_FAN)    // the set of ports to which the group sends is not there
	CopyStale      = FanEvent(programsRocastFanEventCOPY_STALE)      // the block changed while the copy was on its way
	CopyMalformed  = FanEvent(programsRocastFanEventCOPY_MALFORMED)  // the copy's frame does not match its tag or its path

	// FanEvents is the number of events.
	FanEvents = int(programsRocastFanEventFAN_EVENTS)
)

var fanEventNames = [FanEvents]string{
	DisarmedPSN: "disarmed_psn", DisarmedHeader: "disarmed_header", DisarmedRegion: "disarmed_region",
	DisarmedLimit: "disarmed_limit", DisarmedRace: "disarmed_race", DisarmedRetain: "disarmed_retain", DisarmedFan: "disarmed_fan",
	CopyStale: "copy_stale", CopyMalformed: "copy_malformed",
}

func (e FanEvent) String() string {
	if int(e) < len(fanEventNames) {
		return fanEventNames[e]
	}
	return fmt.Sprintf("event(%d)", uint32(e))
}

// Events reads the number of occurrences of each FanEvent, summed over CPUs.
func (f *FanOut) Events() (sum [FanEvents]uint64, err error) {
	var perCPU []uint64
	for e := range sum {
		if err := f.maps.Events.Lookup(uint32(e), &perCPU); err != nil {
			return sum, fmt.Errorf("read fan-out event %s: %w", FanEvent(e), err)
		}
		for _, n := range perCPU {
			sum[e] += n
		}
	}
	return sum, nil
}

// Traffic counts the packets that the kernel carried from one port and the copies that it sent
// there.
type Traffic = programsRocastTraffic

// Traffic reads the counters of the port with this number, summed over CPUs.
func (f *FanOut) Traffic(port uint32) (sum Traffic, err error) {
	var perCPU []Traffic
	if err := f.maps.Traffic.Lookup(port, &perCPU); err != nil {
		return sum, fmt.Errorf("read traffic of port %d: %w", port, err)
	}
	for i := range perCPU {
		t := &perCPU[i]
		sum.RxFrames, sum.RxBytes = sum.RxFrames+t.RxFrames, sum.RxBytes+t.RxBytes
		sum.TxFrames, sum.TxBytes = sum.TxFrames+t.TxFrames, sum.TxBytes+t.TxBytes
	}
	return sum, nil
}

// Close frees what was not engaged. No Slot or Path may be accessed afterwards.
func (f *FanOut) Close() error {
	var errs []error
	for _, b := range f.mapped {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
	}
	m := &f.maps
	for _, m := range []*ebpf.Map{m.Slots, m.Paths, m.Retained, m.Lengths, m.CRC, m.Fans, m.Events, m.Traffic, m.Ranks} {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, f.programs.Classify.Close(), f.programs.Copy.Close())...)
}
