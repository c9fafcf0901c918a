package ctltest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/porttest"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Switch is a real dataplane.Switch over in-memory ports. Its ports have the ifindexes 1, 2 and so
// on.
type Switch struct {
	*dataplane.Switch
	net   *porttest.Net
	infos []dataplane.PortInfo // by mft.PortID; one without a name was removed
	notes chan dataplane.Note

	mu       sync.Mutex
	warnings []dataplane.Warning
	refuse   error
	stuck    string // the group that cannot be replaced
	replaced []string
	counted  []dataplane.Counter
	astray   []dataplane.Astray
	verdicts []dataplane.Counter
	groups   map[mft.GroupID]*report
	hosts    map[netip.Addr]*hostReport

	// OnTurn, if set, is called when a turn begins, or does not.
	OnTurn func(granted bool)

	// Engaged reports whether Engage was called.
	Engaged atomic.Bool

	// OnCapture, if set, is called when a capture has begun.
	OnCapture func()
}

// report is what tests let a group report. What is nil is reported as the data path has it.
type report struct {
	carried, merged *roce.PSN
	traffic         *dataplane.Traffic
	refused         *dataplane.Refused
	ended           bool
	waits, running  *mft.Turn
	source          *mft.QP
	turns           uint32
	lastTurns       map[mft.QP]dataplane.LastTurn
	noted           map[mft.QP]noted
	parts           map[netip.Addr]feedback.Part
}

// hostReport is what tests let the receivers of a host report.
type hostReport struct {
	repair   *feedback.PathSnapshot
	recently uint64 // packets that were sent again
	answered *dataplane.Receiver
	lost     bool // shared copies do not reach it
}

// NewSwitch returns a Switch with ports of MTU 1500.
func NewSwitch(ports ...string) *Switch { return NewRetaining(porttest.RepairChunks, ports...) }

// NewRetaining is NewSwitch with that many buffers to retain for repair.
func NewRetaining(chunks int, ports ...string) *Switch { return newSwitch(chunks, nil, ports) }

// NewStill is NewSwitch whose clock stands still: nothing is sent again because time has passed.
func NewStill(ports ...string) *Switch {
	return newSwitch(porttest.RepairChunks, func() feedback.Tick { return 1 }, ports)
}

func newSwitch(chunks int, now func() feedback.Tick, ports []string) *Switch {
	s := &Switch{
		net: porttest.NewRetaining(0, chunks, nil, now), notes: make(chan dataplane.Note, 64),
		groups: map[mft.GroupID]*report{}, hosts: map[netip.Addr]*hostReport{},
	}
	s.Switch = s.net.Switch
	for _, name := range ports {
		s.add(name, dataplane.Egress{})
	}
	return s
}

// of returns what a group reports. The caller has locked s.
func (s *Switch) of(id mft.GroupID) *report {
	r := s.groups[id]
	if r == nil {
		r = &report{lastTurns: map[mft.QP]dataplane.LastTurn{}, noted: map[mft.QP]noted{}, parts: map[netip.Addr]feedback.Part{}}
		s.groups[id] = r
	}
	return r
}

// let changes what a group reports.
func (s *Switch) let(id mft.GroupID, change func(*report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.of(id))
}

// letNamed changes what the group of a name reports, if the data path has it.
func (s *Switch) letNamed(name string, change func(*report)) {
	for g := range s.Table().All {
		if g.Name == name {
			s.let(g.ID, change)
		}
	}
}

// letHost changes what the receivers of a host report.
func (s *Switch) letHost(ip string, change func(*hostReport)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := netip.MustParseAddr(ip)
	if s.hosts[addr] == nil {
		s.hosts[addr] = &hostReport{}
	}
	change(s.hosts[addr])
}

func (s *Switch) add(name string, bounds dataplane.Egress) {
	i := slices.IndexFunc(s.infos, func(p dataplane.PortInfo) bool { return p.Name == "" })
	if i < 0 {
		i = int(s.net.AddPort(bounds))
		s.infos = append(s.infos, dataplane.PortInfo{})
	}
	s.infos[i] = dataplane.PortInfo{
		ID: mft.PortID(i), Name: name, IfIndex: i + 1, MAC: [6]byte{2, 0, 0, 0, 0xb, byte(i + 1)}, MTU: 1500,
		State: dataplane.PortUp, Opened: 1, Attach: "native", Mode: "copy", Queues: 1,
	}
}

// Arrive lets a frame arrive at a port, and returns when it has been handled. It returns the frames
// that were sent because of it, by port.
func (s *Switch) Arrive(port int, frame []byte) (sent [][][]byte) {
	s.Do(0, func() {
		s.net.Ports[port].Put(frame)
		s.net.Poll()
		for _, p := range s.net.Ports {
			sent = append(sent, p.Take())
		}
	})
	return sent
}

// Capture is part of ctl.Switch.
func (s *Switch) Capture(c dataplane.CaptureConfig) (*dataplane.Capture, error) {
	capture, err := s.Switch.Capture(c)
	if err == nil && s.OnCapture != nil {
		s.OnCapture()
	}
	return capture, err
}

// Refuse makes the next Add, Replace or AddPorts fail with err.
func (s *Switch) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// Stick makes each Replace of a group fail; "": of none.
func (s *Switch) Stick(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = group
}

// Replaced returns the names of the groups that Replace was called for, and clears the list.
func (s *Switch) Replaced() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.replaced
	s.replaced = nil
	return names
}

// Carry makes the group report that it has forwarded data up to psn, and is inside a message.
func (s *Switch) Carry(name string, psn roce.PSN) {
	s.letNamed(name, func(r *report) { r.carried = &psn })
}

// Progress makes the group report that its source has sent data up to sent and has heard that it
// is acknowledged up to merged, and that receivers have acknowledged data. If all is acknowledged,
// the group is between messages.
func (s *Switch) Progress(name string, sent, merged roce.PSN, acked map[string]roce.PSN) {
	s.Carry(name, sent)
	s.letNamed(name, func(r *report) { r.merged = &merged })
	for ip, psn := range acked {
		s.Repair(ip, feedback.PathSnapshot{Part: feedback.PartActive, Acked: psn}, 0)
	}
}

// Traffic makes the group report that it has carried so much.
func (s *Switch) Traffic(name string, t dataplane.Traffic) {
	s.letNamed(name, func(r *report) { r.traffic = &t })
}

// End makes the group report that its source was sent the NAK that ends its QP.
func (s *Switch) End(id mft.GroupID) { s.let(id, func(r *report) { r.ended = true }) }

// Refused makes the group report that data of its members was refused.
func (s *Switch) Refused(id mft.GroupID, r dataplane.Refused) {
	s.let(id, func(is *report) { is.refused = &r })
}

// GoesAstray makes the switch report frames that were refused and that no group counts.
func (s *Switch) GoesAstray(list ...dataplane.Astray) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.astray = list
}

// Classified makes the classifier report a counter.
func (s *Switch) Classified(name string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts = []dataplane.Counter{{Name: name, Value: n}}
}

// Astray and Verdicts are parts of ctl.Switch.
func (s *Switch) Astray() []dataplane.Astray {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(s.Switch.Astray(), s.astray...)
}

func (s *Switch) Verdicts() []dataplane.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdicts
}

// Answer makes the receivers at ip report that they have answered so much.
func (s *Switch) Answer(ip string, r dataplane.Receiver) {
	s.letHost(ip, func(h *hostReport) { h.answered = &r })
}

// LoseEdge makes the edge of the receivers at ip work or not: shared copies do not reach them.
func (s *Switch) LoseEdge(ip string, lost bool) {
	s.letHost(ip, func(h *hostReport) { h.lost = lost })
}

// Merge makes the group report that it has acknowledged data up to psn to its source. If that is
// all, the group is between messages.
func (s *Switch) Merge(id mft.GroupID, psn roce.PSN) {
	s.let(id, func(r *report) { r.merged = &psn })
}

// Count makes the groups report one more frame under the counter name.
func (s *Switch) Count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = append(s.counted, dataplane.Counter{Name: name, Value: 1})
}

// Notify sends a note, as the data path does, after the group's state has become what the note
// says.
func (s *Switch) Notify(n dataplane.Note) {
	s.Happens(n)
	s.notes <- n
}

// noted is what Happens made of a path, until the path leaves the group.
type noted struct {
	note  dataplane.Note
	since roce.PSN
}

// Happens makes the group's state what a note says, and drops the note.
func (s *Switch) Happens(n dataplane.Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, qp := s.Table().Group(n.Group), mft.QP{IP: n.Receiver, RemoteQPN: n.RemoteQPN}
	if g == nil || g.FindPath(n.Receiver, n.RemoteQPN) < 0 {
		return
	}
	switch n.What {
	case feedback.NoteSource:
		s.begins(n.Group, qp)
	case feedback.NoteJoined, feedback.NoteEvicted, feedback.NoteBehind:
		r := s.of(n.Group)
		now := noted{note: n, since: r.noted[qp].since}
		if n.What == feedback.NoteJoined {
			now.since = n.PSN
		}
		r.noted[qp] = now
	}
}

// join shows that a path has joined.
func (n *noted) join(p *feedback.PathSnapshot, since *roce.PSN) {
	if *since = n.since; n.note.What == feedback.NoteJoined {
		p.Part = feedback.PartActive
	}
}

// end shows that a path is out.
func (n *noted) end(p *feedback.PathSnapshot) {
	switch n.note.What {
	case feedback.NoteEvicted:
		p.Part, p.Acked = feedback.PartGone, n.note.PSN.Prev()
	case feedback.NoteBehind:
		p.Part, p.Acked = feedback.PartBehind, n.note.PSN.Prev()
	}
}

// switchSource shows the source that begins has made, and the one before as a receiver.
func (s *Switch) switchSource(id mft.GroupID, g *mft.Group, state *dataplane.GroupState) {
	source := s.of(id).source
	if source == nil {
		return
	}
	for i := range state.Paths {
		switch p := &g.Paths[i]; {
		case p.QP() == *source:
			state.Paths[i].Part = feedback.PartGone
		case p.QP() == state.Source:
			state.Paths[i].Part = feedback.PartActive
		}
	}
	state.Source = *source
	state.Turns += s.of(id).turns
}

// begins makes a member the source.
func (s *Switch) begins(id mft.GroupID, source mft.QP) {
	r := s.of(id)
	if r.source == nil {
		state, _ := s.Switch.GroupState(id)
		r.source = &state.Source
	}
	sent, refused := uint64(0), uint64(0)
	if r.traffic != nil {
		sent = r.traffic.Sent
	}
	if r.refused != nil {
		refused = r.refused.Count
	}
	was := *r.source
	r.lastTurns[was] = dataplane.LastTurn{Refused: r.lastTurns[was].Refused, Sent: sent}
	r.lastTurns[source] = dataplane.LastTurn{Refused: refused, Sent: r.lastTurns[source].Sent}
	r.source = &source
	r.turns++
}

// lastTurn returns how far a member has got in its newest turn.
func (s *Switch) lastTurn(id mft.GroupID, state *dataplane.GroupState, member mft.QP) dataplane.LastTurn {
	t := s.of(id).lastTurns[member]
	if member == state.Source {
		t.Sent = state.Traffic.Sent
	}
	return t
}

// Notes returns only the notes of Tell.
func (s *Switch) Notes() <-chan dataplane.Note { return s.notes }

// Wait lets a member of the group wait for a turn.
func (s *Switch) Wait(id mft.GroupID, t mft.Turn) {
	s.let(id, func(r *report) { r.waits = &t })
}

// NextTurn is part of ctl.Switch.
func (s *Switch) NextTurn(id mft.GroupID) (mft.Turn, bool) {
	return s.turn(id, func(r *report) *mft.Turn { return r.waits })
}

// BeginTurn is part of ctl.Switch. If no member waits, the turn is that of the first source.
func (s *Switch) BeginTurn(id mft.GroupID, granted bool) {
	s.let(id, func(r *report) {
		turn := mft.Turn{}
		if r.waits != nil {
			turn = *r.waits
		}
		if granted {
			s.begins(id, turn.Source)
		}
		r.waits = nil
	})
	if s.OnTurn != nil {
		s.OnTurn(granted)
	}
}

// Runs makes t the running turn of the group.
func (s *Switch) Runs(id mft.GroupID, t mft.Turn) {
	s.let(id, func(r *report) { r.running = &t })
}

// RunningTurn is part of ctl.Switch.
func (s *Switch) RunningTurn(id mft.GroupID) (mft.Turn, bool) {
	return s.turn(id, func(r *report) *mft.Turn { return r.running })
}

func (s *Switch) turn(id mft.GroupID, which func(*report) *mft.Turn) (t mft.Turn, ok bool) {
	s.let(id, func(r *report) {
		if is := which(r); is != nil {
			t, ok = *is, true
		}
	})
	return t, ok
}

// Part makes a group's receiver at ip report the given part.
func (s *Switch) Part(id mft.GroupID, ip string, part feedback.Part) {
	s.let(id, func(r *report) { r.parts[netip.MustParseAddr(ip)] = part })
}

// Repair makes the receivers at ip, of groups with repair on, report the given state, and how many
// packets they were sent again in the last minute. One packet is retained for each.
func (s *Switch) Repair(ip string, state feedback.PathSnapshot, recently uint64) {
	s.letHost(ip, func(h *hostReport) { h.repair, h.recently = &state, recently })
}

func (s *Switch) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.refuse
	s.refuse = nil
	return err
}

// Add and the methods below implement ctl.Switch.
func (s *Switch) Add(g *mft.Group) (mft.GroupID, error) {
	if err := s.refused(); err != nil {
		return 0, err
	}
	return s.Switch.Add(g)
}

func (s *Switch) Replace(id mft.GroupID, g *mft.Group) error {
	if err := s.refused(); err != nil {
		return err
	}
	s.mu.Lock()
	if g.Name == s.stuck {
		s.mu.Unlock()
		return errors.New("the group cannot be replaced")
	}
	s.replaced = append(s.replaced, g.Name)
	noted := s.of(id).noted
	for qp := range noted {
		if !slices.ContainsFunc(g.Paths, func(p mft.Path) bool { return p.QP() == qp }) {
			delete(noted, qp)
		}
	}
	s.mu.Unlock()
	return s.Switch.Replace(id, g)
}

func (s *Switch) GroupState(id mft.GroupID) (dataplane.GroupState, bool) {
	state, ok := s.Switch.GroupState(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of(id)
	if r.carried != nil {
		state.Between = state.Between && state.Sent == *r.carried
		state.Started, state.Sent, state.Pos = true, *r.carried, *r.carried
	}
	if r.ended {
		state.Started, state.Ended = true, true
	}
	if r.merged != nil {
		state.Merged, state.Between = *r.merged, *r.merged == state.Sent
	}
	if r.traffic != nil {
		state.Traffic = *r.traffic
	}
	if r.refused != nil {
		state.Refused = *r.refused
	}
	for _, n := range s.counted {
		if i := slices.IndexFunc(state.Counters, func(c dataplane.Counter) bool { return c.Name == n.Name }); i >= 0 {
			state.Counters[i].Value += n.Value
		}
	}
	if g := s.Table().Group(id); g != nil {
		s.switchSource(id, g, &state)
		state.LastTurn = s.lastTurn(id, &state, mft.QP{})
		for i := range state.Paths {
			p := &g.Paths[i]
			noted, isNoted := r.noted[p.QP()]
			if isNoted {
				noted.join(&state.Paths[i], &state.Since[i])
			}
			if part, set := r.parts[p.Dst]; set {
				state.Paths[i].Part = part
			}
			h := s.hosts[p.Dst]
			if h != nil && h.answered != nil {
				state.Receivers[i] = *h.answered
			}
			if k := g.ShareOf(i); k >= 0 && h != nil && h.lost {
				state.Shares, state.Edges = slices.Clone(state.Shares), slices.Clone(state.Edges)
				state.Edges[i].Lost = true
				state.Shares[k].Working--
			}
			state.Receivers[i].LastTurn = s.lastTurn(id, &state, p.QP())
			if h != nil && h.repair != nil {
				state.Paths[i], state.Repaired[i] = *h.repair, h.recently
				state.Retained += mft.BufferBytes
			}
			if isNoted {
				noted.end(&state.Paths[i])
				if k := g.ShareOf(i); k >= 0 && noted.note.What != feedback.NoteJoined {
					state.Shares = slices.Clone(state.Shares)
					state.Shares[k].Retired = true
				}
			}
		}
	}
	return state, ok
}

func (s *Switch) Ports() []dataplane.PortInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.infos), func(p dataplane.PortInfo) bool { return p.Name == "" })
}

func (s *Switch) AddPorts(names []string, bounds []dataplane.Egress) error {
	if len(names) == 0 {
		return nil
	}
	if err := s.refused(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range names {
		s.add(name, bounds[i])
	}
	return nil
}

func (s *Switch) RemovePorts(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.infos {
		if slices.Contains(names, s.infos[i].Name) {
			s.infos[i] = dataplane.PortInfo{}
		}
	}
}

// Engage notes that it was called.
func (s *Switch) Engage() { s.Engaged.Store(true) }

func (s *Switch) Refresh() ([]dataplane.PortInfo, []dataplane.Warning) {
	ports := s.Ports()
	s.mu.Lock()
	defer s.mu.Unlock()
	warnings := s.warnings
	s.warnings = nil
	return ports, warnings
}

// Warn makes the next Refresh return the warning.
func (s *Switch) Warn(w dataplane.Warning) { s.warnings = append(s.warnings, w) }

// SetNoFanOut sets why the kernel's fan-out cannot use a port.
func (s *Switch) SetNoFanOut(id int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.infos[id].NoFanOut = why
}

// SetTakesTags makes a port's device one that takes tags out of frames. under is the VLAN device
// above it.
func (s *Switch) SetTakesTags(id int, under string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.infos[id].TakesTags, s.infos[id].UnderVLAN = true, under
}

// SetFallback makes a port one that was opened again in generic mode.
func (s *Switch) SetFallback(id int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.infos[id].Fallback = why
}

// SetPort sets the state of a port that Refresh finds from now on.
func (s *Switch) SetPort(id int, state dataplane.PortState, ifIndex int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.infos[id]
	if !p.State.Open() && state.Open() {
		p.Opened++
	}
	p.State, p.IfIndex, p.Reason = state, ifIndex, ""
	if !state.Open() {
		p.Reason = "no interface has this name"
	}
}

// Run forwards nothing: the tests move the frames of in-memory ports themselves.
func (s *Switch) Run(ctx context.Context) { <-ctx.Done() }
