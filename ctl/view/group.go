package view

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"time"

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

// DataPath is what the data path says of a published group. The zero DataPath is that of a group
// that it does not have.
type DataPath struct {
	State        dataplane.GroupState
	CannotRetain error // why repair is off although the file does not say so; nil: there is no such reason
}

// Group returns all that the API shows of a group, with its R_Keys.
func Group(g *groups.Version, d DataPath, set ports.Set) api.Group {
	v := api.Group{GroupSummary: Summary(g), Restored: g.Restored}
	f := g.File
	if f == nil {
		return v
	}
	v.MTU, v.Hosts = f.PathMTU, f.Hosts != groupfile.HostsNothing
	v.Policy, v.Engine = Policy(g.Policy()), &api.Engine{Wanted: f.Engine.String()}
	if g.Table != nil {
		v.RegionCount = g.Table.Len()
	}
	for _, m := range f.Memory {
		v.Memory = append(v.Memory, region(mft.Region(m)))
	}
	state := d.State
	if g.Published != nil {
		v.Counters = Counters(state.Counters)
		addEngine(v.Engine, state.Engine)
		if g.Policy().Repair != feedback.RepairOff {
			v.Retained = &state.Retained
		} else if err := d.CannotRetain; err != nil {
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
		if kind, why := TroubleOf(g, l); kind == api.TroubleFrames && reach.State == api.Ready {
			reach.Reason = why
		}
		v.Members = append(v.Members, Member(g.Own(l.Member), reach))
	}
	v.CopiesOwn, v.Shares = g.Sharing.Own, sharesOf(state)
	v.Notes = append(v.Notes, tagsTaken(g, set)...)
	addTree(g, &v)
	return v
}

// sharesOf returns the legs that receivers share. Which members get their copies is in the state of
// the members.
func sharesOf(state dataplane.GroupState) (list []api.Share) {
	if state.Group == nil { // it has been removed
		return nil
	}
	for k := range state.Shares {
		s, leg := &state.Shares[k], &state.Group.Shares[k]
		list = append(list, api.Share{
			IP: leg.Dst.String(), QPN: uint32(leg.DestQPN), Members: len(leg.Members), Working: s.Working,
			Packets: s.Packets, Saved: s.Saved, Retired: s.Retired,
		})
	}
	return list
}

// copiesOf says how the copies for a receiver leave, or "" where none may be shared.
func copiesOf(g *groups.Version, path int, id groupfile.ID, state dataplane.GroupState) string {
	at, known := g.Sharing.Receivers[mft.QP(id)]
	switch {
	case !known:
		return ""
	case at.Own != "":
		return "own: " + at.Own
	case path < len(state.Edges) && state.Edges[path].Lost:
		return "own: shared copies do not arrive; tried again " + fmt.Sprint(state.Edges[path].After.Round(time.Second)) + " later"
	}
	return "shared"
}

// edgeOf is what the edge at a receiver's host has said last, or "" if none has asked.
func edgeOf(g *groups.Version, id groupfile.ID) string {
	e := g.EdgeOf(id)
	if e == nil {
		return ""
	}
	_, q := e.Last()
	text := fmt.Sprintf("%s: %d mapped, %d without mapping, %d refused", q.Attach, q.Mapped, q.NoMapping, q.Refused)
	if silent := g.Found.SilentEdges[id]; silent > 0 {
		text += fmt.Sprintf("; it has not asked for %v", silent)
	}
	return text
}

// addTree adds the boxes above and below this one.
func addTree(g *groups.Version, v *api.Group) {
	if b := g.Branch; b != nil {
		if g.File.IsRelayed() {
			v.Notes = append(v.Notes, fmt.Sprintf("this box passes frames on between box %s and its receivers; what these have acknowledged is known at box %s", b.Upper, b.Root))
		}
		v.Upper = &api.Upper{Box: b.Upper, Root: b.Root, Visited: b.Visited}
	}
	for _, l := range g.Links {
		state, reason := l.State()
		link := api.Link{Box: l.Box, State: state, Reason: reason, Local: l.Local, Remote: l.Remote, Waiting: l.Absent}
		if ended := g.LinkEnded(l); ended != nil {
			end := l.Member(g.Wanted)
			link.State, link.Reason = api.LeftOut, g.Advice(ended, end.ID())
		}
		for _, id := range l.Members {
			link.Members = append(link.Members, id.IP.String())
		}
		v.Links = append(v.Links, link)
		if g.Wanted.Policy.Ack != feedback.AckAll && l.Weight > 1 && !l.Passes() {
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

// Policy returns the policy as the API shows it: the fields of api.Policy have the names of the
// keys.
func Policy(p feedback.Policy) *api.Policy {
	values := map[string]any{}
	for i := range feedback.Keys {
		if k := &feedback.Keys[i]; k.Counts(p) {
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

// Member returns a member of a group as the API shows it, with its R_Keys.
func Member(m *groupfile.Member, reach api.Reach) api.Member {
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
		reach := api.Reach{State: api.LeftOut, Reason: g.Advice(r, l.Member.ID()), Part: string(r.Standing)}
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
		hasSpoken := p.Part != feedback.PartUnknown && !p.Part.IsToCome() && p.Acked != g.File.Source.FirstPSN.Prev()
		if hasSpoken {
			r.Acked = new(uint32(p.Acked))
		}
		if p.Part == feedback.PartUnknown && r.Reason == "" {
			r.Reason = notHeard
		}
		r.NAKs = state.Receivers[path].NAKs
		r.Copies, r.Edge = copiesOf(g, path, m.ID(), state), edgeOf(g, m.ID())
		if p.Pending != 0 {
			r.Pending = p.Pending.String()
		}
		if state.Group.Policy.Repair != feedback.RepairOff {
			r.Repair = repairOf(&p, state.Sent)
			r.Repair.Recently = state.Repaired[path]
		}
	}
	if m.ID() == g.Source {
		r.Part = api.PartSource
	}
}

// repairOf describes the repair of a path of a group whose source has sent packets up to sent.
func repairOf(p *feedback.PathSnapshot, sent roce.PSN) *api.Repair {
	return &api.Repair{
		Repairing: p.Repairing, Cursor: uint32(p.Cursor), Lag: uint32(max(0, sent.Sub(p.Acked))),
		Repaired: p.Repaired, Probes: p.Probes, GivenUp: p.GivenUp,
	}
}

// Counters returns the sums of the counters of each name.
func Counters(list []dataplane.Counter) api.Counters {
	counts := api.Counters{}
	for _, c := range list {
		counts[c.Name] += c.Value
	}
	return counts
}

func macText(mac []byte) string { return net.HardwareAddr(mac).String() }
