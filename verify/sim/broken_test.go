package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// meddler is a core in which something is broken.
type meddler struct {
	forwarder
	w      *world
	before func(m *meddler, f *dataplane.Frame)
	after  func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, reason dataplane.Reason) dataplane.Reason
	memory int  // state of the broken core
	hoards int  // buffers that it retains and should not
	clings bool // it puts back nothing
}

// PutBack is part of forwarder.
func (m *meddler) PutBack() {
	if !m.clings {
		m.forwarder.PutBack()
	}
}

// Retained is part of forwarder.
func (m *meddler) Retained() (packets, chunks int) {
	packets, chunks = m.forwarder.Retained()
	return packets, chunks + m.hoards
}

// RetainedBytes is part of forwarder.
func (m *meddler) RetainedBytes(id mft.GroupID) int {
	return m.forwarder.RetainedBytes(id) + m.hoards*mft.BufferBytes
}

func (m *meddler) Handle(now feedback.Tick, t *mft.Table, f *dataplane.Frame, out *dataplane.Outputs) dataplane.Reason {
	if m.before != nil {
		m.before(m, f)
	}
	reason := m.forwarder.Handle(now, t, f, out)
	if m.after != nil {
		reason = m.after(m, f, out, reason)
	}
	return reason
}

func (m *meddler) isData(f *dataplane.Frame) bool { return f.Port == 0 && f.View.Opcode.IsRequest() }

// number returns the number of the source's packet in frame f.
func (m *meddler) number(f *dataplane.Frame) int {
	return m.w.hosts[0].plan.number(f.View.PSN(f.Head()))
}

// reply adds a reply to the source, with the MSN that belongs to its PSN.
func (m *meddler) reply(out *dataplane.Outputs, s roce.Syndrome, psn roce.PSN) {
	plan := &m.w.hosts[0].plan
	acknowledged := plan.number(psn)
	if !s.IsACK() {
		acknowledged--
	}
	out.Replies = append(out.Replies, dataplane.Reply{
		Leg: &m.w.group.Source.Leg, PKey: roce.DefaultPKey, PSN: psn,
		AETH: roce.AETH{Syndrome: s, MSN: roce.MSN(plan.messagesBefore(acknowledged + 1))},
	})
}

type after = func(*meddler, *dataplane.Frame, *dataplane.Outputs, dataplane.Reason) dataplane.Reason

// on returns an after that acts only on data packet n, each time the packet comes.
func on(n int, act func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs)) after {
	return func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
		if m.isData(f) && m.number(f) == n {
			act(m, f, out)
		}
		return r
	}
}

// For each invariant there are cores that break it. The simulator must name the broken invariant.
func TestInvariantsCatchBrokenCores(t *testing.T) {
	testlab.Long(t)
	for name, tt := range map[string]struct {
		want   Invariant
		s      Scenario
		before func(*meddler, *dataplane.Frame)
		after  after
		says   string // part of the text of the failure; "": any
	}{
		"acknowledges before the receivers do": {want: Truth, s: calm(), after: on(20,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				m.reply(out, roce.SyndromeUnlimited, f.View.PSN(f.Head()))
			})},
		"NAKs what lies above the minimum": {want: Truth, s: calm(), after: on(20,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				m.reply(out, roce.NAKSequence, f.View.PSN(f.Head()))
			})},
		"counts a message too many": {want: Truth, s: calm(), after: func(
			_ *meddler, _ *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
			for i := range out.Replies {
				out.Replies[i].AETH.MSN = out.Replies[i].AETH.MSN.Add(1)
			}
			return r
		}},
		"acknowledges what the fastest receiver has": {want: Truth, s: losing(1e-2), after: func(
			m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
			if f.Port == 1 && f.View.AETH(f.Head()).Syndrome.IsACK() {
				m.reply(out, roce.SyndromeUnlimited, m.w.s.Hosts[0].SendPSN.Add(f.View.PSN(f.Head()).Sub(m.w.s.Hosts[1].RecvPSN)))
			}
			return r
		}},
		"tells another member what the source is to hear": {want: Truth, s: calm(), after: on(20,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				m.reply(out, roce.SyndromeUnlimited, m.w.hosts[0].SendPSN)
				out.Replies[len(out.Replies)-1].Leg = &m.w.group.Paths[0].Leg
			}), says: "b hears"},
		"acknowledges beyond the source's place":                {want: Place, s: losing(5e-2), after: beyondPlace},
		"acknowledges more while the source is on its way back": {want: Place, s: losing(1e-2), after: forgetsTheGoBack},
		"acknowledges a packet that was never sent": {want: Place, s: calm(), after: on(20,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				m.reply(out, roce.SyndromeUnlimited, f.View.PSN(f.Head()).Add(200))
			})},
		"writes one byte further": {want: Memory, s: calm(), after: on(16,
			func(m *meddler, _ *dataplane.Frame, out *dataplane.Outputs) {
				further := *out.Copies[1].Path
				g := m.w.group
				further.Regions = g.Memory.At(func(v mft.VirtualRegion) mft.Region {
					at := out.Copies[1].Path.Regions.Region(g.Memory, g.Memory.Find(v.VA, v.RKey, 0))
					at.VA++
					return at
				})
				out.Copies[1].Path = &further
			})},
		"sends the source back to what it can repair": {want: Repair, s: repairing(), after: on(20,
			func(m *meddler, _ *dataplane.Frame, out *dataplane.Outputs) {
				source := &m.w.hosts[0]
				m.reply(out, roce.NAKSequence, source.SendPSN.Add(int32(source.merged.acked+1)))
			})},
		"retains more than it may": {want: Repair, s: repairing(), after: on(20,
			func(m *meddler, _ *dataplane.Frame, _ *dataplane.Outputs) { m.hoards = m.w.s.RepairChunks })},
		"retains more than its group may": {want: Repair, s: repairingWithin(9), after: on(20,
			func(m *meddler, _ *dataplane.Frame, _ *dataplane.Outputs) { m.hoards = 9 })},
		"does not put back what it retained": {want: Conserved, s: repairing(), after: on(20,
			func(m *meddler, _ *dataplane.Frame, _ *dataplane.Outputs) { m.clings = true })},
		"renumbers the packets behind a lost one": {want: Memory, s: calm(), after: renumbering},
		"makes the ICRC of damaged frames right": {want: Damaged, s: damaging(), before: func(_ *meddler, f *dataplane.Frame) {
			var v roce.View
			if v.Decode(f.Head(), f.Len()) == nil {
				v.PutICRC(f.Bytes(), v.ComputeICRC(f.Bytes()))
			}
		}},
		"drops good frames": {want: Damaged, s: calm(), after: func(
			m *meddler, _ *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
			if m.memory++; m.memory == 50 {
				out.Reset()
				return dataplane.BadICRC
			}
			return r
		}},
		"sends to a queue pair that does not exist": {want: Damaged, s: calm(), after: on(20,
			func(m *meddler, _ *dataplane.Frame, out *dataplane.Outputs) {
				g, c := m.w.group, &out.Copies[0]
				from := roce.Flow{Src: g.Source.Dst, Dst: g.IP, DestQPN: g.QPN}
				to := roce.Flow{Src: c.Path.Src, Dst: c.Path.Dst, DestQPN: c.Path.DestQPN + 1}
				elsewhere := roce.NewEdit(from, to, c.Path.L2[:c.Path.L2Bytes])
				c.Edit = &elsewhere
			})},
		"copies a frame twice": {want: Conserved, s: calm(), after: on(20,
			func(_ *meddler, _ *dataplane.Frame, out *dataplane.Outputs) {
				out.Copies = append(out.Copies, out.Copies[0])
			})},
		"acts on a frame that it drops": {want: Conserved, s: damaging(), after: func(
			m *meddler, _ *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
			if r.Verdict() == dataplane.Drop {
				m.reply(out, roce.SyndromeUnlimited, m.w.s.Hosts[0].SendPSN)
			}
			return r
		}},
		"keeps a frame": {want: Conserved, s: calm(), after: on(20,
			func(m *meddler, _ *dataplane.Frame, _ *dataplane.Outputs) { m.w.pool.lend() })},
		"evicts a healthy receiver":                {want: Membership, s: calm(), after: on(20, newsOf(2, feedback.NoteEvicted))},
		"lets a receiver join that did not ask":    {want: Membership, s: calm(), after: on(20, newsOf(2, feedback.NoteJoined))},
		"calls behind a receiver without a quorum": {want: Membership, s: calm(), after: on(20, newsOf(2, feedback.NoteBehind))},
		"calls behind a receiver that has all its source was told of": {
			want: Membership, s: quorum(), says: "that was told of packet", after: on(60, callBehind(1)),
		},
		"calls behind a receiver whose copy is on its way": {
			want: Membership, s: quorum(), says: "a copy is on its way", after: on(60, callBehind(3)),
		},
		"makes up a notification": {want: Congestion, s: congested(50*time.Microsecond, [4]int{}), after: on(20,
			func(m *meddler, _ *dataplane.Frame, out *dataplane.Outputs) { m.notify(out, &m.w.group.Source.Leg) })},
		"passes a notification twice": {want: Congestion, s: congestedC(), after: onNotification(
			func(m *meddler, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
				m.notify(out, &m.w.group.Source.Leg)
				return r
			})},
		"notifies a receiver": {want: Congestion, s: congestedC(), after: onNotification(
			func(m *meddler, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
				out.Replies = out.Replies[:0]
				m.notify(out, &m.w.group.Paths[0].Leg)
				return r
			})},
		"filters the only congested receiver": {want: Congestion, s: congestedC(), after: onNotification(
			func(_ *meddler, out *dataplane.Outputs, _ dataplane.Reason) dataplane.Reason {
				out.Replies = out.Replies[:0]
				return dataplane.Reason(feedback.CNPFiltered)
			})},
		"filters where all are to pass": {want: Congestion, s: allPass(congested(50*time.Microsecond, [4]int{0, always, always, 0})),
			after: onNotification(func(_ *meddler, out *dataplane.Outputs, _ dataplane.Reason) dataplane.Reason {
				out.Replies = out.Replies[:0]
				return dataplane.Reason(feedback.CNPFiltered)
			})},
		"swallows a notification": {want: Congestion, s: congestedC(), after: onNotification(
			func(_ *meddler, out *dataplane.Outputs, _ dataplane.Reason) dataplane.Reason {
				out.Replies = out.Replies[:0]
				return dataplane.Reason(feedback.CNPPassed)
			})},
		"clears the marks of congestion": {want: Congestion, s: congested(50*time.Microsecond, [4]int{always, 0, 0, 0}),
			before: func(_ *meddler, f *dataplane.Frame) {
				var v roce.View
				if v.Decode(f.Head(), f.Len()) == nil {
					v.SetECN(f.Head(), ecnCapable)
				}
			}},
		"pairs a PSN with an older MSN": {want: Credits, s: calm(), after: onACKs(
			func(r *dataplane.Reply) { r.AETH.MSN = r.AETH.MSN.Add(-1) })},
		"grants a message too many": {want: Credits, s: crediting(), after: onACKs(
			func(r *dataplane.Reply) { r.AETH.Syndrome++ })},
		"grants a message too few": {want: Credits, s: crediting(), after: onACKs(
			func(r *dataplane.Reply) { r.AETH.Syndrome = max(1, r.AETH.Syndrome) - 1 })},
		"grants all messages": {want: Credits, s: crediting(), after: onACKs(
			func(r *dataplane.Reply) { r.AETH.Syndrome = roce.SyndromeUnlimited })},
		"grants messages although credits are not merged": {want: Credits, s: calm(), after: onACKs(
			func(r *dataplane.Reply) { r.AETH.Syndrome = roce.SyndromeACK(roce.CreditCodeFor(64)) })},
		"tells the source nothing": {want: Ends, s: calm(), after: func(
			_ *meddler, _ *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
			out.Replies = out.Replies[:0]
			return r
		}},
		"makes an impatient source give up": {want: Ends, s: impatient(), after: func(
			_ *meddler, _ *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
			out.Replies = out.Replies[:0]
			return r
		}},
		"tells an error that did not happen": {want: Ends, s: calm(), after: on(0,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				m.reply(out, roce.NAKRemoteAccess, f.View.PSN(f.Head()))
			})},
		"tells the error of a receiver that it has evicted": {want: Ends, s: keyLostEvicted(), says: "without a reason",
			after: func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
				if m.isData(f) && m.w.hosts[1].membership == evicted {
					m.reply(out, roce.NAKRemoteAccess, m.w.hosts[0].SendPSN.Add(int32(m.w.hosts[0].merged.acked+1)))
				}
				return r
			}},
		"does not wait after a restart for a receiver evicted before": {want: Truth, s: evictedBeforeCrash(), says: "b, for one",
			after: func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
				others := min(m.w.hosts[2].next[0], m.w.hosts[3].next[0])
				if m.isData(f) && m.w.tally[SwitchCrash].Times > 0 && m.number(f) == others-1 {
					m.reply(out, roce.SyndromeUnlimited, f.View.PSN(f.Head()))
				}
				return r
			}},
		"sends data to a receiver that is not ready": {want: Membership, s: notReady(), says: "which is not ready", after: on(80,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				last := len(m.w.group.Paths) - 1
				out.Copies = append(out.Copies, dataplane.Copy{Path: &m.w.group.Paths[last], PSN: f.View.PSN(f.Head()), Edit: &m.w.group.Edits(-1).Paths[last]})
			})},
		"lets a receiver join that is not ready": {want: Membership, s: notReady(), says: "joined without a cause", after: on(80,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				m.news(out, 3, feedback.NoteJoined, f.View.PSN(f.Head()))
			})},
		"sends a READ to the receivers": {want: Damaged, s: reading(), after: on(20,
			func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs) {
				f.Region = 0
				edits := m.w.group.Edits(-1)
				for i := range m.w.group.Paths {
					p := &m.w.group.Paths[i]
					out.Copies = append(out.Copies, dataplane.Copy{
						Path: p, PSN: p.FirstPSN.Add(20), Edit: &edits.Paths[i],
					})
				}
			})},
	} {
		t.Run(name, func(t *testing.T) {
			var r Runner
			r.w.wrap = func(w *world, core forwarder) forwarder {
				return &meddler{forwarder: core, w: w, before: tt.before, after: tt.after}
			}
			result, story, err := r.Replay(tt.s, 10, nil)
			switch {
			case err != nil:
				t.Fatal(err)
			case result.Failure == nil:
				t.Errorf("nothing was noticed: %v", story)
			case result.Failure.Invariant != tt.want:
				t.Errorf("noticed as %v, not as %v", result.Failure, tt.want)
			case !strings.Contains(result.Failure.What, tt.says):
				t.Errorf("noticed as %v, which does not say %q", result.Failure, tt.says)
			}
		})
	}
}

// notReady is calm with a receiver that joins early, and is ready after everything was sent.
func notReady() Scenario {
	s := calm()
	s.Hosts[3].Outside = true
	s.Timed = []Timed{{Kind: Join, Host: 3, AfterPacket: 20, For: 10 * time.Millisecond}}
	return s
}

// callBehind adds the report that a receiver is behind at packet 0.
func callBehind(receiver int) func(*meddler, *dataplane.Frame, *dataplane.Outputs) {
	return func(m *meddler, _ *dataplane.Frame, out *dataplane.Outputs) {
		m.news(out, receiver, feedback.NoteBehind, m.w.s.Hosts[0].SendPSN)
	}
}

// news says what became of a receiver.
func (m *meddler) news(out *dataplane.Outputs, receiver int, what feedback.Note, psn roce.PSN) {
	out.Notes = append(out.Notes, dataplane.Note{Receiver: m.w.address(receiver), RemoteQPN: groupQPN, What: what, PSN: psn})
}

// newsOf returns an after that says what became of a receiver.
func newsOf(receiver int, what feedback.Note) func(*meddler, *dataplane.Frame, *dataplane.Outputs) {
	return func(m *meddler, _ *dataplane.Frame, out *dataplane.Outputs) { m.news(out, receiver, what, 0) }
}

// notify sends a notification to the member of leg.
func (m *meddler) notify(out *dataplane.Outputs, leg *mft.Leg) {
	out.Replies = append(out.Replies, dataplane.Reply{Leg: leg, CNP: true, PKey: roce.DefaultPKey})
}

// onNotification returns an after that acts only on notifications of receivers.
func onNotification(act func(*meddler, *dataplane.Outputs, dataplane.Reason) dataplane.Reason) after {
	return func(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
		if f.Kind == dataplane.KindCNP {
			return act(m, out, r)
		}
		return r
	}
}

// onACKs returns an after that changes every ACK to the source.
func onACKs(change func(*dataplane.Reply)) after {
	return func(_ *meddler, _ *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
		for i := range out.Replies {
			if reply := &out.Replies[i]; !reply.CNP && reply.AETH.Syndrome.IsACK() {
				change(reply)
			}
		}
		return r
	}
}

// beyondPlace acknowledges the newest acknowledged packet again when the source resends packets
// below it.
func beyondPlace(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
	for _, reply := range out.Replies {
		if reply.AETH.Syndrome.IsACK() {
			m.memory = max(m.memory, m.w.hosts[0].plan.number(reply.PSN))
		}
	}
	if m.isData(f) && m.number(f) < m.memory {
		m.reply(out, roce.SyndromeUnlimited, m.w.s.Hosts[0].SendPSN.Add(int32(m.memory)))
	}
	return r
}

// forgetsTheGoBack acknowledges the packet that comes next after the source was told to go back.
// The source had sent it before it heard that.
func forgetsTheGoBack(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
	if m.isData(f) && m.memory > 0 && m.number(f) > m.memory {
		m.reply(out, roce.SyndromeUnlimited, f.View.PSN(f.Head()))
	}
	for _, reply := range out.Replies {
		if reply.AETH.Syndrome == roce.NAKSequence {
			m.memory = m.w.hosts[0].plan.number(reply.PSN)
		}
	}
	return r
}

// renumbering drops packet 5, and renumbers the packets behind it as if packet 5 had not existed.
func renumbering(m *meddler, f *dataplane.Frame, out *dataplane.Outputs, r dataplane.Reason) dataplane.Reason {
	if !m.isData(f) {
		return r
	}
	switch n := m.number(f); {
	case n == 5:
		out.Copies = out.Copies[:0]
	case n > 5:
		for i := range out.Copies {
			out.Copies[i].PSN = out.Copies[i].PSN.Prev()
		}
	}
	return r
}

// quorum is calm with a quorum of two of three receivers. The third receiver is far away: no packet
// has reached it when the others have acknowledged 60 packets.
func quorum() Scenario {
	s := calm()
	s.Policy.Ack = 2
	s.Hosts[3].ToHost.Delay = 10 * time.Millisecond
	return s
}

// congestedC is a run in which only c is congested.
func congestedC() Scenario { return congested(50*time.Microsecond, [4]int{0, 0, always, 0}) }

func allPass(s Scenario) Scenario {
	s.Policy.CNP = feedback.CNPAll
	return s
}

func damaging() Scenario {
	s := calm()
	s.eachLink(func(l *Link) { l.Damage = 1e-2 })
	return s
}

// keyLostEvicted is calm with a receiver that is evicted because it has lost its memory.
func keyLostEvicted() Scenario {
	s := calm()
	s.Policy.OnFatal = feedback.FatalEvict
	s.Timed = []Timed{{Kind: KeyLost, Host: 1, AfterPacket: 100}}
	return s
}

// evictedBeforeCrash is calm with a receiver that is cut off and evicted because it is silent.
// After that the switch crashes, and waits for the receiver again.
func evictedBeforeCrash() Scenario {
	s := calm()
	s.Policy.SilentAfter, s.Policy.Evict = 6*time.Millisecond, true
	s.Timed = []Timed{
		{Kind: Cut, Host: 1, AfterPacket: 100, For: 20 * time.Millisecond},
		{Kind: SwitchCrash, AfterPacket: 200, For: time.Millisecond},
	}
	return s
}

func impatient() Scenario {
	s := calm()
	s.RetryCount = 4
	return s
}

func reading() Scenario {
	s := calm()
	s.Hosts[0].Messages[5].Op = rnic.Read // packets 20 to 23
	return s
}
