package ctl

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/ctl/plan"
	"github.com/rocast/rocast/ctl/ports"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// Groups lists the groups.
func (c *Controller) Groups() api.Groups {
	list := api.Groups{Groups: []api.GroupSummary{}}
	for _, v := range c.allSeen() {
		list.Groups = append(list.Groups, summary(v))
	}
	list.Groups = append(list.Groups, c.elsewhere()...)
	sortSummaries(list.Groups)
	return list
}

// sortSummaries puts groups in the order in which they are listed.
func sortSummaries(list []api.GroupSummary) {
	slices.SortFunc(list, func(a, b api.GroupSummary) int {
		return cmp.Or(cmp.Compare(rankOf(&a), rankOf(&b)), strings.Compare(a.Name, b.Name))
	})
}

// Tally is how much a daemon has.
type Tally struct {
	Groups      int // in this box
	Ports, Open int
}

// Tally counts. It asks no worker and does not wait: a sign of life of the data path must not
// depend on others.
func (c *Controller) Tally() Tally {
	ports := *c.seenPorts.Load()
	return Tally{Groups: len(*c.seenGroups.Load()), Ports: len(ports), Open: len(ports.Open())}
}

// Group describes a group. The answer contains R_Keys.
func (c *Controller) Group(name string) (api.Group, error) {
	if v := c.seen(name); v != nil {
		return c.view(v), nil
	}
	if s, ok := c.summaryElsewhere(name); ok {
		return api.Group{GroupSummary: s}, nil
	}
	return api.Group{}, noGroup(name)
}

// madeBy says who made a group: "" for an operator.
func madeBy(g *groups.Version) string {
	switch {
	case !g.Kept && g.Branch == nil:
		return api.ByService
	case g.Wanted != nil && g.Wanted.Hosts == groupfile.HostsEnd:
		return api.ByHosts
	}
	return ""
}

// rankOf orders groups by who made them: those of operators are first, and those that nobody has
// confirmed are last.
func rankOf(s *api.GroupSummary) int {
	switch {
	case s.Unconfirmed:
		return 2
	case s.By != "":
		return 1
	}
	return 0
}

// neverConfirmed reports whether a receiver with which the group began has not confirmed. One that
// has joined later does not count: the others have confirmed.
func neverConfirmed(g *groups.Version) bool {
	return slices.ContainsFunc(g.Unconfirmed(), func(id groupfile.ID) bool { return g.Past.Standing(id) == "" })
}

func summary(g *groups.Version) api.GroupSummary {
	s := api.GroupSummary{Name: g.Name, State: api.Ready, WaitingCount: g.Waiting(), By: madeBy(g)}
	switch {
	case g.Problem != "":
		s.State, s.Reason = api.Failed, g.Problem
	case s.WaitingCount > 0:
		s.State, s.Reason = api.Waiting, waitsBecause(g)
	}
	for _, l := range g.Links {
		if state, reason := l.State(); g.Problem == "" && state != api.Ready && s.State != api.Degraded {
			s.State, s.Reason = state, reason
		}
	}
	if g.Branch != nil && g.Branch.Above != "" && g.Problem == "" {
		s.State, s.Reason = api.Degraded, fmt.Sprintf("box %s, from which its data comes: %s", g.Branch.Upper, g.Branch.Above)
	}
	if g.TreeProblem != "" && g.Problem == "" {
		s.State, s.Reason = api.Degraded, g.TreeProblem
	}
	s.ClearToSend = s.State == api.Ready
	if s.State != api.Failed && s.State != api.Degraded && g.Found.Degraded {
		s.State, s.Reason = api.Degraded, slowBecause(g)
	}
	addTrouble(g, &s)
	if f := g.Wanted; f != nil {
		s.IP, s.QPN, s.Addressing = f.IP.String(), uint32(f.QPN), f.Addressing.String()
		s.MemberCount = len(f.Members())
		s.Unconfirmed = s.By == api.ByHosts && neverConfirmed(g)
	}
	return s
}

// view describes a group as it is in the data path now.
func (c *Controller) view(v *groups.Version) api.Group {
	var b behind
	if v.Published != nil {
		b.state, _ = c.Switch.GroupState(v.ID)
		if v.Policy().Repair == feedback.RepairOff {
			b.cannotRetain = c.Switch.Retains(v.File.Policy, v.File.PathMTU)
		}
	}
	return describe(v, b, *c.seenPorts.Load())
}

// behind is what the data path says of a published group. The zero behind is that of a group that
// it does not have.
type behind struct {
	state        dataplane.GroupState
	cannotRetain error // why repair is off although the file does not say so; nil: there is no such reason
}

// describe returns all that the API shows of a group, with its R_Keys.
func describe(g *groups.Version, path behind, set ports.Set) api.Group {
	v := api.Group{GroupSummary: summary(g), Restored: g.Restored}
	f := g.File
	if f == nil {
		return v
	}
	v.MTU, v.Hosts = f.PathMTU, f.Hosts != groupfile.HostsNothing
	v.Policy, v.Engine = policy(g.Policy()), &api.Engine{Wanted: f.Engine.String()}
	if g.Table != nil {
		v.RegionCount = g.Table.Len()
	}
	for _, m := range f.Memory {
		v.Memory = append(v.Memory, region(mft.Region(m)))
	}
	state := path.state
	if g.Published != nil {
		v.Counters = counters(state.Counters)
		addEngine(v.Engine, state.Engine)
		if g.Policy().Repair != feedback.RepairOff {
			v.Retained = &state.Retained
		} else if err := path.cannotRetain; err != nil {
			v.Notes = append(v.Notes, fmt.Sprintf("repair is off, although that is not the default: %v (an update cannot change what the file says "+
				"of repair: create the group again)", err))
		}
	}
	if state.Started && state.Sent != f.Source.FirstPSN.Prev() {
		v.Progress = &api.Progress{Sent: uint32(state.Sent), Position: uint32(state.Pos), Merged: uint32(state.Merged)}
	}
	v.Goodput = g.Found.Goodput
	for l := range g.Legs().Members() {
		reach := reachOf(g, l)
		if l.Member.Role != groupfile.Source && g.Published != nil && reach.State != api.LeftOut {
			addProgress(g, &reach, l.Member, state)
		}
		if kind, why := troubleOf(g, l); kind == api.TroubleFrames && reach.State == api.Ready {
			reach.Reason = why
		}
		v.Members = append(v.Members, member(l.Member, reach))
	}
	v.Notes = append(v.Notes, tagsTaken(g, set)...)
	addTree(g, &v)
	return v
}

// addTree adds the boxes above and below this one.
func addTree(g *groups.Version, v *api.Group) {
	if b := g.Branch; b != nil {
		v.Upper = &api.Upper{Box: b.Upper, Root: b.Root, Visited: b.Visited}
	}
	for _, l := range g.Links {
		state, reason := l.State()
		link := api.Link{Box: l.Box, State: state, Reason: reason, Local: l.Local, Remote: l.Remote, Waiting: l.Absent}
		if end := g.LinkEnded(l); end != nil {
			link.State, link.Reason = api.LeftOut, end.Mend()
		}
		for _, id := range l.Members {
			link.Members = append(link.Members, id.IP.String())
		}
		v.Links = append(v.Links, link)
		if g.Wanted.Policy.Ack != feedback.AckAll && l.Weight > 1 {
			v.Notes = append(v.Notes, fmt.Sprintf("the quorum counts the %d receivers behind box %s all together: once each of "+
				"them has a packet, and before that none of them", l.Weight, l.Box))
		}
	}
}

func addEngine(v *api.Engine, e dataplane.EngineState) {
	v.Carrier, v.Reason, v.Carried = api.CarrierAFXDP, e.Reason, e.Carried
	v.Answers = e.Answers
	if e.Kernel {
		v.Carrier = api.CarrierKernel
	}
}

// policy is the policy as the API shows it: the fields of api.Policy have the names of the keys.
func policy(p feedback.Policy) *api.Policy {
	values := map[string]any{}
	for i := range feedback.Keys {
		if k := &feedback.Keys[i]; !k.Repairs || p.Repair != feedback.RepairOff {
			values[k.Name] = k.Value(p)
		}
	}
	v := new(api.Policy)
	text, err := json.Marshal(values)
	if err == nil {
		fields := json.NewDecoder(bytes.NewReader(text))
		fields.DisallowUnknownFields()
		err = fields.Decode(v)
	}
	if err != nil {
		panic(fmt.Sprintf("ctl: api.Policy: %v", err)) // whatever the group, so every test shows it
	}
	return v
}

func member(m *groupfile.Member, reach api.Reach) api.Member {
	v := api.Member{
		IP: m.IP.String(), QPN: uint32(m.QPN), PSN: uint32(m.FirstPSN), Role: m.Role.String(),
		RemoteQPN: uint32(m.RemoteQPN), Reach: reach,
	}
	if m.Role == groupfile.Both {
		psn := uint32(m.SendPSN)
		v.SendPSN = &psn
	}
	if m.RemoteIP.IsValid() {
		v.RemoteIP = m.RemoteIP.String()
	}
	if m.Weight() > 1 {
		v.Receivers = m.Weight()
	}
	v.Confirm = m.Confirm
	for _, r := range m.Regions {
		v.Regions = append(v.Regions, region(r))
	}
	return v
}

func region(r mft.Region) api.Region {
	rkey := api.Hex(r.RKey)
	return api.Region{VA: api.Hex(r.VA), Length: r.Length, RKey: &rkey}
}

func reachOf(g *groups.Version, l *plan.Leg) api.Reach {
	if r := g.Ended(l.Member); r != nil {
		reach := api.Reach{State: api.LeftOut, Reason: r.Mend(), Part: string(r.Standing)}
		if r.Standing != chronicle.Lost {
			reach.Lacks = new(uint32(r.PSN))
		}
		return reach
	}
	if !l.Resolved() {
		return api.Reach{State: api.Waiting, Reason: l.Reason}
	}
	r := api.Reach{State: api.Ready, Reason: l.Reason, Port: l.Hop.PortName, MAC: macText(l.L2[:6])}
	if waits, reason := g.WaitsFor(l); waits {
		r.State, r.Reason = api.Waiting, reason
	}
	const macs, tagBytes, etherTypeBytes = 12, 4, 2
	for at := macs; at+tagBytes+etherTypeBytes <= int(l.L2Bytes); at += tagBytes {
		r.VLANs = append(r.VLANs, int(binary.BigEndian.Uint16(l.L2[at+2:])&0xFFF))
	}
	return r
}

// notHeard is said of a receiver that has answered nothing since a crash, and of which nobody knows
// what it has. With a quorum the source may need nothing more of it.
const notHeard = "it has not answered since rocastd began again, so what it has is not known; it answers the source's next packets"

// pathOf returns the path of a receiver in the state of its group; -1: it has none.
func pathOf(m *groupfile.Member, state dataplane.GroupState) int {
	if state.Group == nil { // it has been removed
		return -1
	}
	return state.Group.FindPath(m.IP, m.RemoteQPN)
}

// addProgress adds the progress of a receiver.
func addProgress(g *groups.Version, r *api.Reach, m *groupfile.Member, state dataplane.GroupState) {
	if path := pathOf(m, state); path >= 0 {
		p := state.Paths[path]
		r.Part = p.Part.String()
		hasSpoken := p.Part != feedback.PartUnknown && p.Part != feedback.PartJoining && p.Acked != g.File.Source.FirstPSN.Prev()
		if hasSpoken {
			r.Acked = new(uint32(p.Acked))
		}
		if p.Part == feedback.PartUnknown && r.Reason == "" {
			r.Reason = notHeard
		}
		r.NAKs = state.Receivers[path].NAKs
		if p.Pending != 0 {
			r.Pending = p.Pending.String()
		}
		if state.Group.Policy.Repair != feedback.RepairOff {
			r.Repair = repair(&p, state.Sent)
			r.Repair.Recently = state.Repaired[path]
		}
	}
	if m.ID() == g.Source {
		r.Part = api.PartSource
	}
}

// repair describes the repair of a path of a group whose source has sent packets up to sent.
func repair(p *feedback.PathSnapshot, sent roce.PSN) *api.Repair {
	return &api.Repair{
		Repairing: p.Repairing, Cursor: uint32(p.Cursor), Lag: uint32(max(0, sent.Sub(p.Acked))),
		Repaired: p.Repaired, Probes: p.Probes, GivenUp: p.GivenUp,
	}
}

func counters(list []dataplane.Counter) api.Counters {
	counts := api.Counters{}
	for _, c := range list {
		counts[c.Name] += c.Value
	}
	return counts
}

func macText(mac []byte) string { return net.HardwareAddr(mac).String() }
