package afxdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rocast/rocast/bpf"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// fanOut implements dataplane.FanOut by the kernel's fan-out (bpf/fanout.h). The kernel's slot for
// a group follows from the group's slot in the table, so that workers need no common list.
type fanOut struct {
	kernel *bpf.FanOut
	// noMerging is why the kernel cannot merge answers; nil: it can.
	noMerging error
	holders   [bpf.Slots]atomic.Uint32 // ID of the group that has the slot, plus one; 0: free
	wants     [bpf.Slots]atomic.Bool   // another group than the holder has claimed the slot
	epochs    [bpf.Slots]uint16        // epoch of the block in the slot; the holder's worker owns it
	uses      [bpf.Slots]atomic.Uint32 // number of the fan of the block in the slot
	memory    *kernelMemory
	devices   atomic.Pointer[devices]
	wanted    chan ports // sets of ports for which workers want a fan
	fans      []fan      // by the kernel's number; only control uses it
	next      int        // number of the fan at which wantFan looks first for an unused one
}

// KernelGroups is the number of groups that the kernel's fan-out can carry at one time.
const KernelGroups = bpf.Slots

// KernelPorts is the number of ports, from the first one on, behind which the kernel's fan-out can
// carry groups.
const KernelPorts = bpf.SlotPorts

// ports has the number of copies that leave by each port.
type ports [bpf.SlotPorts]uint8

// devices is control's view of the interfaces, which it publishes to the workers. It is immutable.
type devices struct {
	ifIndex [bpf.SlotPorts]uint32
	deaf    [bpf.SlotPorts]bool // the driver drops what XDP redirects to the port
	wide    [bpf.SlotPorts]bool // the driver also sends frames of several buffers that XDP redirects
	fans    map[ports]uint32
}

var (
	errNoFan = errors.New("the kernel cannot send to all ports of the group, or its set of ports is not set up " +
		"yet (see rocast port ls)")
	errNoMemory = errors.New("other groups have the kernel's memory for repair, and are busy (repairMemory in rocastd.yaml)")
	errLinkDown = errors.New("its link is down")
	errNoDevice = errors.New("a port of the group is not open, or not in native mode (see rocast port ls)")
	errNarrow   = fmt.Errorf("the group's path MTU is above %d, and the driver of its receivers' port sends no frames of several "+
		"buffers that XDP redirects to it (rocast features says whether this kernel can)", mft.BlockPathMTU)
)

// tables are the tables with which the kernel computes the ICRC of a copy.
var tables = bpf.Tables{
	CRC:      roce.CRCTables(),
	Operator: func(words int) *[4][256]uint32 { return roce.Operator(4 * words) },
}

// CheckFanOut returns why the kernel cannot load the fan-out program, and why not the part of it
// that merges answers; nil if it can.
func CheckFanOut() (fanOut, merging error) {
	c, err := bpf.LoadFanOut(tables, 0)
	if err != nil {
		return err, err
	}
	return c.Close(), c.FanOut().NoMerging()
}

func newFanOut(kernel *bpf.FanOut) *fanOut {
	f := &fanOut{kernel: kernel, wanted: make(chan ports, 16), memory: newKernelMemory(kernel.RetainedEntries())}
	f.devices.Store(new(devices))
	if err := kernel.NoMerging(); err != nil {
		f.noMerging = fmt.Errorf("kernel-ack-merging is not available (rocast features): %w", err)
	}
	return f
}

// Add adds a group like dataplane.Switch.Add. The kernel's fan for the group is made before.
func (s *Switch) Add(g *mft.Group) (mft.GroupID, error) {
	s.prepare(g)
	return s.Switch.Add(g)
}

// Replace replaces a group like dataplane.Switch.Replace. The kernel's fan for the new one is made
// before: it takes the kernel some milliseconds, and the group would be refused meanwhile.
func (s *Switch) Replace(id mft.GroupID, g *mft.Group) error {
	s.prepare(g)
	return s.Switch.Replace(id, g)
}

// prepare makes the fan that the group needs while all its receivers take part and its first source
// sends.
func (s *Switch) prepare(g *mft.Group) {
	set, ok := portsOf(g)
	if !ok || s.fanOut.Load() == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fanOut.Load()
	if _, ok := f.devices.Load().fans[set]; !ok {
		f.want(set)
		s.publishDevices()
	}
}

// portsOf returns the ports to which a group's packets go while all its receivers take part, all
// that can share do, and its first source sends. The result is false for a group that the kernel
// never carries.
func portsOf(g *mft.Group) (set ports, ok bool) {
	if g.Engine == mft.EngineAFXDP || g.PathMTU > mft.BlockPathMTU && g.Copies() != 1 {
		return set, false
	}
	add := func(l *mft.Leg) bool {
		if l.Port >= mft.BlockPorts || set[l.Port] == mft.BlockPaths {
			return false
		}
		set[l.Port]++
		return true
	}
	for i := range g.Paths {
		p := &g.Paths[i]
		if p.Sends && p.Dst == g.Source.Dst || g.ShareOf(i) >= 0 {
			continue
		}
		if !add(&p.Leg) {
			return set, false
		}
	}
	for k := range g.Shares {
		if !add(&g.Shares[k].Leg) {
			return set, false
		}
	}
	return set, true
}

func (f *fanOut) want(set ports) {
	select {
	case f.wanted <- set:
	default: // the worker asks again, and Refresh empties the channel
	}
}

// fan is a set of ports that the kernel can broadcast to.
type fan struct {
	set     ports
	as      [bpf.SlotPorts]uint32 // ifindex of each port when the fan was made; 0: not in the set
	retired bool                  // the workers no longer see it
	free    bool                  // retired, and no worker uses it any more
}

// wantFan gives a set of ports a fan. If all fans are taken, an unused one is retired, and the set
// gets it when it is wanted again after the workers were told (publishDevices).
func (f *fanOut) wantFan(set ports) {
	if i := slices.IndexFunc(f.fans, func(f fan) bool { return f.set == set }); i >= 0 {
		f.fans[i].retired, f.fans[i].free = false, false
		return
	}
	if len(f.fans) < bpf.Fans {
		f.fans = append(f.fans, fan{set: set})
		return
	}
	var used [bpf.Fans]bool
	for i := range f.uses {
		if f.word(i).Load()&wordArmed != 0 {
			used[f.uses[i].Load()] = true
		}
	}
	unused := -1
	for k := range f.fans {
		i := (f.next + k) % len(f.fans)
		switch {
		case used[i]:
		case f.fans[i].free:
			f.fans[i] = fan{set: set}
			return
		case unused < 0:
			unused = i
		}
	}
	if unused >= 0 {
		f.fans[unused].retired = true
		f.next = unused + 1 // so that a set that gets a fan has time to use it
	}
}

// publishDevices publishes the current interfaces to the workers. Before, it makes the fans that
// the workers want, and makes those fans again whose interfaces have changed. The caller holds mu.
func (s *Switch) publishDevices() {
	engine := s.fanOut.Load()
	if engine == nil {
		return
	}
	var wanted []ports // each set once: each call of wantFan may retire a fan
	for len(engine.wanted) > 0 {
		if set := <-engine.wanted; !slices.Contains(wanted, set) {
			wanted = append(wanted, set)
			engine.wantFan(set)
		}
	}
	now := &devices{fans: map[ports]uint32{}}
	for i, f := range s.interfaces[:min(len(s.interfaces), bpf.SlotPorts)] {
		if f.xdp != nil && f.xdp.Mode() == bpf.ModeNative {
			now.ifIndex[i] = uint32(f.info.IfIndex)
		}
		f.probe()
		now.deaf[i], now.wide[i] = f.transmit.err != nil, f.transmit.wide
	}
	for number := range engine.fans {
		f := &engine.fans[number]
		if f.retired {
			continue
		}
		if err := s.makeFan(number, f, now.ifIndex); err == nil {
			now.fans[f.set] = uint32(number)
		}
	}
	engine.devices.Store(now)
	s.freeRetired()
}

// freeRetired is called when the workers are told which fans are retired. A worker may just be
// arming a group by what it was told before.
func (s *Switch) freeRetired() {
	engine := s.fanOut.Load()
	if !slices.ContainsFunc(engine.fans, func(f fan) bool { return f.retired && !f.free }) {
		return
	}
	s.EndBatches()
	for i := range engine.fans {
		engine.fans[i].free = engine.fans[i].retired
	}
}

// transmit is the result of bpf.ProbeTransmit for an interface.
type transmit struct {
	err   error
	of    int       // the ifindex that was probed; 0: none
	again time.Time // when to probe again after an error
	wide  bool      // the driver also takes frames of several buffers
}

// probe probes a native interface once after it was opened, when its link is up: a driver drops all
// frames of a link that is down. If the driver dropped the frame, it probes again after retryAfter:
// the far end of a veth may have changed.
func (f *iface) probe() {
	t := &f.transmit
	switch {
	case f.xdp == nil || f.xdp.Mode() != bpf.ModeNative:
		*t = transmit{err: errNoDevice}
	case f.info.State == dataplane.PortDown && (t.of != f.info.IfIndex || t.err != nil):
		*t = transmit{err: errLinkDown}
	case t.of != f.info.IfIndex || t.err != nil && !time.Now().Before(t.again):
		*t = transmit{err: bpf.ProbeTransmit(f.info.IfIndex), of: f.info.IfIndex, again: time.Now().Add(retryAfter)}
		has, ok := xdpFeatures(f.info.IfIndex)
		t.wide = t.err == nil && ok && has&xdpSendsBuffers != 0
	}
}

// noFanOutBy says why the kernel cannot send by an open port, or "". The caller holds mu.
func (s *Switch) noFanOutBy(id int) string {
	f := s.interfaces[id]
	switch {
	case s.fanOut.Load() == nil || f.xdp == nil:
		return ""
	case id >= bpf.SlotPorts:
		return fmt.Sprintf("it is not one of the first %d ports", bpf.SlotPorts)
	case f.xdp.Mode() != bpf.ModeNative:
		return "the classifier is not attached in native mode"
	case f.transmit.err != nil:
		return f.transmit.err.Error()
	}
	return ""
}

// makeFan makes a fan, or makes it again if an interface of it has changed.
func (s *Switch) makeFan(number int, f *fan, ifIndex [bpf.SlotPorts]uint32) error {
	var open []*bpf.Port
	as := f.as
	for i, n := range f.set {
		as[i] = 0
		if n == 0 {
			continue
		}
		if as[i] = ifIndex[i]; as[i] == 0 || s.interfaces[i].transmit.err != nil {
			return errNoDevice
		}
		for range n {
			open = append(open, s.interfaces[i].xdp)
		}
	}
	if as == f.as {
		return nil
	}
	if err := s.fanOut.Load().kernel.PutFan(number, open); err != nil {
		return err
	}
	f.as = as
	return nil
}

func slotOf(id mft.GroupID) int { return id.Slot() % bpf.Slots }

// Claim is part of dataplane.FanOut.
func (f *fanOut) Claim(id mft.GroupID) (holder mft.GroupID, ok bool) {
	at := &f.holders[slotOf(id)]
	if at.CompareAndSwap(0, uint32(id)+1) {
		f.wants[slotOf(id)].Store(false)
		return id, true
	}
	holder = mft.GroupID(at.Load() - 1)
	if holder != id {
		f.wants[slotOf(id)].Store(true)
	}
	return holder, holder == id
}

// Wanted is part of dataplane.FanOut.
func (f *fanOut) Wanted(id mft.GroupID) dataplane.Want {
	i := slotOf(id)
	memory := f.memory.wanted(i)
	switch {
	case f.wants[i].Swap(false):
		return dataplane.WantsSlot
	case memory:
		return dataplane.WantsMemory
	}
	return dataplane.WantsNothing
}

// Release is part of dataplane.FanOut.
func (f *fanOut) Release(id mft.GroupID) {
	i := slotOf(id)
	if f.holders[i].Load() == uint32(id)+1 {
		f.memory.give(i)
		f.holders[i].Store(0)
	}
}

// Retained is part of dataplane.FanOut.
func (f *fanOut) Retained(id mft.GroupID, psn roce.PSN) (head, rest []byte) {
	i := slotOf(id)
	slot, m := f.kernel.Slot(i), f.memory.of(i)
	if m.entries == 0 {
		return nil, nil
	}
	entry := int(psn) % (m.entries >> slot.Wide) << slot.Wide
	return f.kernel.Retained(i, m.first+entry, uint32(psn))
}

// Arm is part of dataplane.FanOut.
func (f *fanOut) Arm(id mft.GroupID, b *mft.Block, w dataplane.FanWord, limit roce.PSN) error {
	d := f.devices.Load()
	var set ports
	for i := range b.Paths {
		if p := &b.Paths[i]; !p.Shared {
			set[p.Path.Port]++
		}
	}
	for i := range b.Shares {
		set[b.Shares[i].Path.Port]++
	}
	fan, ok := d.fans[set]
	if !ok {
		f.want(set)
		return errNoFan
	}
	if d.ifIndex[b.Ingress] == 0 {
		return errNoDevice
	}
	wide := bit(b.IsWide())
	if b.IsWide() && !d.sendsWide(&set) {
		return errNarrow
	}
	i := slotOf(id)
	m, err := f.retain(i, b.Retain<<wide)
	if err != nil {
		return err
	}
	f.epochs[i]++
	f.word(i).Store(encodeWord(dataplane.FanWord{PSN: w.PSN}, f.epochs[i])) // copies of the last block are stale from here on
	f.uses[i].Store(fan)
	slot := f.kernel.Slot(i)
	f.kernel.Told(i).Store(encodeWord(dataplane.FanWord{}, f.epochs[i]-1)) // of no use to this block
	slot.Asked, slot.Payload = 0, 0
	slot.Limit, slot.Group, slot.Fan, slot.Ingress = uint32(limit), uint32(id), fan, d.ifIndex[b.Ingress]
	writeSlot(slot, b)
	writePaths(slot, f.kernel.Paths(i), b)
	slot.RetainedFirst, slot.RetainedPackets = uint32(m.first), uint32(m.entries)>>wide
	if err := writeAck(slot, b, d); err != nil {
		return err
	}
	f.word(i).Store(encodeWord(w, f.epochs[i]))
	return nil
}

// sendsWide reports whether the drivers of a set of ports send frames of several buffers.
func (d *devices) sendsWide(set *ports) bool {
	for port, copies := range set {
		if copies > 0 && !d.wide[port] {
			return false
		}
	}
	return true
}

// errDeaf is why the kernel does not merge answers.
var errDeaf = errors.New("the kernel cannot send by the source's port (see rocast port ls)")

// Merge is part of dataplane.FanOut. What the source was told is opened last, and the kernel looks
// at it first: so it merges nothing before every path is open.
func (f *fanOut) Merge(id mft.GroupID, at []feedback.Progress, told feedback.Progress, span int32) error {
	i := slotOf(id)
	if f.noMerging != nil {
		return f.noMerging
	}
	d, slot := f.devices.Load(), f.kernel.Slot(i)
	if port := slot.AckPort; port >= uint32(len(d.deaf)) || d.deaf[port] || d.ifIndex[port] != slot.AckIfindex {
		return errDeaf
	}
	f.kernel.Span(i).Store(uint32(span))
	for k, p := range at {
		f.kernel.Acked(i, k).Store(f.openWord(i, p))
	}
	f.kernel.Told(i).Store(f.openWord(i, told))
	return nil
}

func (f *fanOut) openWord(i int, p feedback.Progress) uint64 {
	return encodeWord(dataplane.FanWord{PSN: p.PSN, Messages: p.MSN, Armed: true}, f.epochs[i])
}

// EndMerge is part of dataplane.FanOut. What the source was told is closed and read first: so it is
// no more than what is then read of each path.
func (f *fanOut) EndMerge(id mft.GroupID, at []feedback.Progress) (told feedback.Progress) {
	i := slotOf(id)
	told = closeWord(f.kernel.Told(i))
	for k := range at {
		at[k] = closeWord(f.kernel.Acked(i, k))
	}
	return told
}

func closeWord(word *atomic.Uint64) feedback.Progress {
	w := decodeWord(word.And(^uint64(wordArmed)))
	return feedback.Progress{PSN: w.PSN, MSN: w.Messages}
}

// retain returns the memory of slot i, which has that many entries or more.
func (f *fanOut) retain(i, entries int) (m kernelPart, err error) {
	if entries == 0 {
		return m, nil
	}
	if m = f.memory.take(i, entries); m.entries == 0 {
		return m, errNoMemory
	}
	return m, nil
}

// Load is part of dataplane.FanOut.
func (f *fanOut) Load(id mft.GroupID) dataplane.FanWord {
	i := slotOf(id)
	return f.withRest(i, decodeWord(f.word(i).Load()))
}

// withRest adds to a word, which was read before, what its packets carry and what they ask for.
func (f *fanOut) withRest(i int, w dataplane.FanWord) dataplane.FanWord {
	psn, ok := f.kernel.Asked(i)
	w.Asks, w.Asked, w.Payload = ok, roce.PSN(psn), f.kernel.Payload(i)
	return w
}

// Disarm is part of dataplane.FanOut.
func (f *fanOut) Disarm(id mft.GroupID) dataplane.FanWord {
	i := slotOf(id)
	return f.withRest(i, decodeWord(f.word(i).And(^uint64(wordArmed))&^wordArmed))
}

// Limit is part of dataplane.FanOut.
func (f *fanOut) Limit(id mft.GroupID, psn roce.PSN) { f.kernel.Limit(slotOf(id)).Store(uint32(psn)) }

func (f *fanOut) word(i int) *atomic.Uint64 { return f.kernel.Word(i) }

// The bits of a slot's word: see bpf/fanout.h.
const (
	wordMessagesShift = 24
	wordInside        = 1 << 48
	wordArmed         = 1 << 49
	psnMask           = 1<<24 - 1
)

func encodeWord(w dataplane.FanWord, epoch uint16) uint64 {
	word := uint64(w.PSN)&psnMask | uint64(w.Messages)&psnMask<<wordMessagesShift | uint64(epoch)<<bpf.WordEpochShift
	if w.Inside {
		word |= wordInside
	}
	if w.Armed {
		word |= wordArmed
	}
	return word
}

func decodeWord(word uint64) dataplane.FanWord {
	return dataplane.FanWord{
		PSN: roce.PSN(word & psnMask), Messages: roce.MSN(word >> wordMessagesShift & psnMask),
		Inside: word&wordInside != 0, Armed: word&wordArmed != 0,
	}
}

// writeSlot writes the headers of a plain packet.
func writeSlot(s *bpf.Slot, b *mft.Block) {
	s.Src, s.Dst = words(b.From.Src.As16()), words(b.From.Dst.As16())
	s.Qpn, s.Pkey, s.TrafficClass = uint32(b.From.DestQPN), networkOrder(b.PKey), b.TrafficClass
	s.Ipv6, s.Multipath = bit(b.From.Dst.Is6()), bit(b.Multipath)
	s.Vlans, s.Pcp = b.VLANs, b.PCP<<pcpShift
	s.Mtu, s.Wide, s.RegionCount = uint16(b.PathMTU), bit(b.IsWide()), uint8(b.Memory.Len())
	for i, m := range b.Memory.All {
		r := &s.Regions[i]
		r.Va, r.Length, r.Rkey = m.VA, m.Length, m.RKey
	}
}

// writePaths writes the paths of each port in the order of struct rocast_slot: the receivers that
// share, the others, and the shared legs.
func writePaths(s *bpf.Slot, paths *[bpf.SlotPaths]bpf.Path, b *mft.Block) {
	clear(s.Copies[:])
	clear(s.Receivers[:])
	n, shares := 0, b.Shares
	for i := range b.Paths {
		p := &b.Paths[i]
		port := p.Path.Port
		writePath(&paths[n], p, b.TrafficClass)
		paths[n].Answer = uint8(i)
		add(&s.Receivers[port].First, &s.Receivers[port].Count, n)
		if !p.Shared {
			add(&s.Copies[port].First, &s.Copies[port].Count, n)
		}
		n++
		if i+1 < len(b.Paths) && b.Paths[i+1].Path.Port == port {
			continue
		}
		for ; len(shares) > 0 && shares[0].Path.Port == port; shares = shares[1:] {
			writePath(&paths[n], &shares[0], b.TrafficClass)
			add(&s.Copies[port].First, &s.Copies[port].Count, n)
			n++
		}
	}
}

// add adds path n to a range, which is a struct rocast_range.
func add(first, count *uint8, n int) {
	if *count == 0 {
		*first = uint8(n)
	}
	*count++
}

// writePath writes how the copies for a path differ from packets with this traffic class.
func writePath(to *bpf.Path, p *mft.BlockPath, class uint8) {
	e := p.Edit
	to.Crc, to.Qpn, to.DeltaPsn, to.Checksum = e.CRC, uint32(e.DestQPN), uint32(p.DeltaPSN), e.Checksum
	to.L2Bytes, to.L2, to.Keeps, to.Vlans = e.L2Bytes, e.L2, keeps(e.Priority), p.Path.VLANs()
	e.Priority.Write(to.L2[:to.L2Bytes], 0, class)
	to.AnswerQpn, to.DeltaMsn = uint32(p.Path.RemoteQPN), uint32(p.DeltaMSN)
	for i := range to.Addresses {
		to.Addresses[i] = binary.NativeEndian.Uint32(e.Addresses[4*i:])
	}
	for i := range p.Targets {
		t := &to.Targets[i]
		t.DeltaVa, t.Rkey, t.Crc = p.Targets[i].DeltaVA, p.Targets[i].RKey, e.CRCWith(&p.Targets[i])
	}
}

// writeAck writes what the kernel needs to merge the answers of a block with a Source.
func writeAck(s *bpf.Slot, b *mft.Block, d *devices) error {
	s.Answers, s.AckPort = 0, uint32(mft.NoPort)
	if b.Source == nil || int(b.Source.Port) >= len(d.ifIndex) {
		return nil
	}
	ack := dataplane.MergedACK(b, feedback.Progress{}, 0)
	frame, err := ack.Append(make([]byte, 0, len(s.AckL2)+len(s.Ack)))
	if err != nil {
		return err
	}
	s.AckL2Bytes, s.AckKeeps = b.Source.L2Bytes, keeps(b.Priority)
	copy(s.Ack[:], frame[copy(s.AckL2[:], frame[:s.AckL2Bytes]):])
	s.Answers, s.AckPort, s.AckIfindex = uint32(len(b.Paths)), uint32(b.Source.Port), d.ifIndex[b.Source.Port]
	if s.Migrated = 0; b.MigReq {
		s.Migrated = migReq
	}
	return nil
}

// migReq is a bit of the second byte of a BTH.
const migReq = 0x40

// words returns an address as four words in the byte order of the wire.
func words(b [16]byte) (w [4]uint32) {
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// pcpShift is where a TCI has its priority (PCP_MASK in bpf/classifier.h).
const pcpShift = 5

// keeps is which tags have the priority of the packet (enum rocast_keeps in bpf/fanout.h).
func keeps(p roce.TagPriority) uint8 {
	outer, inner := p.Keeps()
	return bit(outer) | bit(inner)<<1
}

func bit(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

func networkOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
