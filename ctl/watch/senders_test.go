package watch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

// look lets the Watch look at the group a quarter of a second later.
func (r *runner) look() api.GroupSummary {
	r.now = r.now.Add(250 * time.Millisecond)
	r.Look("g1", r.now)
	return r.summary()
}

// later is look after a second.
func (r *runner) later() api.GroupSummary {
	r.now = r.now.Add(time.Second)
	return r.look()
}

// refuse makes the data path refuse one more frame of data.
func (r *runner) refuse(reason dataplane.Reason, from string, count, sent uint64) {
	r.sw.Refused(r.Groups.Named("g1").ID, dataplane.Refused{Count: count, Reason: reason, Sent: sent, From: addr(from), To: addr("10.77.0.100"), QPN: 1})
}

// A source of which every packet is refused has a group that is not ready, although nothing ever
// waits there. Every view says so, and what mends it, until the source is heard.
func TestASourceWhosePacketsAreRefused(t *testing.T) {
	for reason, want := range map[dataplane.Reason]string{
		dataplane.OverMTU:          "10.77.0.1: its packets have more payload than the group's path MTU 1024; give its QP that path MTU, or write its own as mtu: into the group file",
		dataplane.HopLimitExceeded: "10.77.0.1: its packets come with a hop limit (TTL) of 1 or 0; give its QP a higher one, such as 64",
		dataplane.RefusedMemory:    "10.77.0.1: its WRITE went to memory that the group does not have, and the NAK remote access has ended its QP; compare its VA, length and R_Key with memory: in the group file, and create its QP and the group again",
		dataplane.WrongQPN:         "10.77.0.1: its frames are for QPN 9, and the peer of its QP is QPN 1; connect its QP to that one",
	} {
		r := newRunner(t, "")
		g := r.Groups.Named("g1")
		if s := r.look(); s.State != api.Ready {
			t.Fatalf("before: %+v", s)
		}
		frame := dataplane.Refused{Count: 1, Reason: reason, From: addr("10.77.0.1"), To: addr("10.77.0.100"), QPN: 9}
		r.sw.Refused(g.ID, frame)
		for range 5 {
			r.look()
		}
		for range 5 {
			if s := r.look(); s.State != api.Degraded || s.Reason != want || s.GoesOn || !s.ClearToSend {
				t.Errorf("%v: %+v", reason, s)
			}
		}
		status := r.status(r.now)
		if status.Healthy || !status.Ready || len(status.Problems) != 1 || status.Problems[0].Reason != want {
			t.Errorf("%v: %+v", reason, status)
		}
		of := r.traffic()
		if of.Reason != want || of.Source == nil || *of.Source != (api.SourceTraffic{IP: "10.77.0.1", RemoteQPN: 1, Trouble: api.TroubleFrames, Reason: strings.TrimPrefix(want, "10.77.0.1: ")}) {
			t.Errorf("%v: %+v", reason, of)
		}
		if v := r.group(); v.Members[0].Reason != strings.TrimPrefix(want, "10.77.0.1: ") {
			t.Errorf("%v: %+v", reason, v.Members[0])
		}
		r.now = r.now.Add(2 * time.Minute) // its QP has ended; but who knows whose the frames of another QP were
		if s, stands := r.look(), reason != dataplane.WrongQPN; (s.State == api.Degraded) != stands || stands && s.Reason != want {
			t.Errorf("%v, minutes later: %+v", reason, s)
		}
		r.sw.Traffic("g1", dataplane.Traffic{Sent: 1})
		if s := r.look(); s.State != api.Ready {
			t.Errorf("%v, once its packets are forwarded: %+v", reason, s)
		}
		r.expectEvents(t, "degraded g1: "+want, "restored g1: no member is in trouble any more")
		if e := r.Groups.Events.After(api.Cursor{}, "g1").Events; e[len(e)-2].GoesOn {
			t.Error("the event says that the group goes on")
		}
		if of := r.traffic(); of.Source != nil {
			t.Errorf("%+v", of)
		}
	}
}

// Frames that are refused while the source gets on are not its trouble: a host may forge them.
// Those that end its QP are, whatever was forwarded before them.
func TestRefusedFramesOfASourceThatGetsOn(t *testing.T) {
	r := newRunner(t, "")
	for i := range uint64(8) {
		r.sw.Traffic("g1", dataplane.Traffic{Sent: 100 * (i + 1)})
		r.refuse(dataplane.WrongPort, "10.77.0.1", i+1, 100*i+50)
		if s := r.look(); s.State != api.Ready {
			t.Errorf("%+v", s)
		}
	}
	// In one look it was forwarded first, and refused then.
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 900})
	r.refuse(dataplane.OverMTU, "10.77.0.1", 9, 900)
	r.look()
	if s := r.later(); s.State != api.Degraded {
		t.Errorf("%+v", s)
	}
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 901})
	if s := r.look(); s.State != api.Ready {
		t.Errorf("%+v", s)
	}
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 902})
	r.refuse(dataplane.Reason(feedback.Refused), "10.77.0.1", 10, 902)
	if s := r.look(); s.State != api.Degraded || !strings.Contains(s.Reason, "no group carries") {
		t.Errorf("%+v", s)
	}
	r.again(t)
	if s := r.look(); s.State != api.Ready {
		t.Errorf("what was known is of the group before: %+v", s)
	}
}

// Data of a member that is not the source concerns that member alone: the group goes on.
func TestDataOfAMemberThatIsNotTheSource(t *testing.T) {
	r := newRunner(t, "")
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 100})
	r.refuse(dataplane.NotSource, "10.77.0.3", 1, 100)
	const want = "10.77.0.3: it sends data, and its role does not let it; write role: both for it, and create the group again"
	r.look()
	if s := r.later(); s.State != api.Degraded || s.Reason != want || !s.GoesOn {
		t.Errorf("%+v", s)
	}
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 200}) // that it gets nothing does not end because the source gets on
	if s := r.look(); s.Reason != want {
		t.Errorf("%+v", s)
	}
	r.refuse(dataplane.NotSource, "10.77.0.9", 2, 200) // is no member
	// Its QP has ended without a further frame. It is told until the QP answers.
	answers := func(n uint64) { r.sw.Answer("10.77.0.3", dataplane.Receiver{Acknowledged: n}) }
	answers(150)
	r.look()
	for range 3 {
		r.now = r.now.Add(time.Minute)
		if s := r.look(); s.State != api.Degraded || s.Reason != want {
			t.Errorf("%+v", s)
		}
	}
	answers(151)
	if s := r.look(); s.State != api.Ready {
		t.Errorf("%+v", s)
	}
}

// A member that has left and joins again has another QP, which has sent nothing.
func TestTheTroubleOfAMemberThatHasLeft(t *testing.T) {
	r := newRunner(t, "")
	r.refuse(dataplane.NotSource, "10.77.0.3", 1, 0)
	r.look()
	if s := r.later(); s.State != api.Degraded {
		t.Fatalf("%+v", s)
	}
	was := r.Groups.Named("g1").Plan
	r.edit(func(g *groups.Group) { g.Plan.Receivers = was.Receivers[:1] })
	if s := r.look(); s.State != api.Ready {
		t.Errorf("it has left: %+v", s)
	}
	r.edit(func(g *groups.Group) { g.Plan = was })
	r.look()
	if s := r.later(); s.State != api.Ready {
		t.Errorf("it is back: %+v", s)
	}
}

// A group of rocast cm or perftest has no group file in which a receiver could get another role, at
// no box. What a READ needs is the same in all.
func TestRequestsOfAReceiverOfAConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		kept bool
		of   *groups.Branch
		read bool
		want string
	}{
		"of a group file": {true, nil, false, "write role: both for it"},
		"of a connection": {false, nil, false, "carries only what the host sends that connects"},
		"of a branch":     {true, new(groups.Branch), false, "write role: both for it"},
		"behind a box":    {true, &groups.Branch{Service: true}, false, "carries only what the host sends that connects"},
		"a READ":          {false, nil, true, "it sends READ or atomic requests"},
	} {
		r := newRunner(t, "")
		r.edit(func(g *groups.Group) { g.Kept, g.Branch = tt.kept, tt.of })
		r.sw.Refused(r.Groups.Named("g1").ID, dataplane.Refused{Count: 1, Reason: dataplane.NotSource, Read: tt.read, From: addr("10.77.0.3"), To: addr("10.77.0.100"), QPN: 1})
		r.look()
		if s := r.later(); s.State != api.Degraded || !strings.HasPrefix(s.Reason, "10.77.0.3: it sends ") || !strings.Contains(s.Reason, tt.want) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Of several QPs of one host it is the one to whose peer the data goes.
func TestDataOfOneOfTheQPsOfAHost(t *testing.T) {
	const second = "  - {ip: 10.77.0.3, qpn: 21, psn: 3, remoteQPN: 2, regions: [{va: 0x7f3000000000, length: 4096, rkey: 0xfeedbeab}]}\n"
	r := runGroup(t, ctltest.G1+second)
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 100})
	r.sw.Refused(r.Groups.Named("g1").ID, dataplane.Refused{Count: 1, Reason: dataplane.NotSource, Sent: 100, From: addr("10.77.0.3"), To: addr("10.77.0.100"), QPN: 2})
	r.look()
	r.later()
	if m := r.group().Members; m[2].Reason != "" || !strings.HasPrefix(m[3].Reason, "it sends data") {
		t.Errorf("%+v, %+v", m[2], m[3])
	}
}

// A member that waits for its turn as the source is in trouble if that lasts, and not if it comes.
func TestAMemberThatWaitsForItsTurn(t *testing.T) {
	r := runGroup(t, ctltest.BothG1)
	r.refuse(dataplane.SourceBlocked, "10.77.0.2", 1, 0)
	if s := r.look(); s.State != api.Ready {
		t.Errorf("%+v", s)
	}
	r.note(dataplane.Note{Group: r.Groups.Named("g1").ID, Receiver: addr("10.77.0.2"), RemoteQPN: 1, What: feedback.NoteSource, PSN: 2000})
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 1})
	r.look()
	r.refuse(dataplane.SourceBlocked, "10.77.0.1", 2, 1)
	for range 5 {
		r.look()
	}
	const waits = "10.77.0.1: it waits for its turn as the source until "
	said := func(want string) {
		t.Helper()
		if s := r.look(); s.State != api.Degraded || !s.GoesOn || !strings.HasPrefix(s.Reason, waits+want) {
			t.Errorf("%+v", s)
		}
	}
	said("the source before it has ended its last message, and until that is stored; ")
	// Who holds it up is named, first of all who does not answer.
	const every, id = "every receiver has what the source before it sent; ", "10.77.0.3"
	r.sw.Carry("g1", 1001)
	said(every + "10.77.0.1: it has acknowledged everything up to PSN 999, and the source has sent 1001; and 1 more")
	r.sw.Part(r.Groups.Named("g1").ID, id, feedback.PartUnknown)
	said(every + "10.77.0.3: it has not answered since rocastd began; and 1 more")
	r.sw.Repair(id, feedback.PathSnapshot{Part: feedback.PartUnknown, Told: true, Acked: 900}, 0)
	r.sw.Repair("10.77.0.1", feedback.PathSnapshot{Acked: 1001}, 0)
	said(every + "10.77.0.3: it has acknowledged everything up to PSN 900")
	r.sw.Repair(id, feedback.PathSnapshot{Acked: 1001}, 0)
	r.refuse(dataplane.SourceWaits, "10.77.0.1", 3, 1)
	said("the source before it has ended its last message, and until that is stored; ")
	r.refuse(dataplane.SourceOutOfStep, "10.77.0.1", 4, 1)
	if s := r.look(); !strings.Contains(s.Reason, "which was 1000 at the start (sendPSN)") {
		t.Errorf("%+v", s)
	}
}

// A turn may begin and end between two looks, and without anything of the member.
func TestAWaitIsOverWithATurnThatNobodyHasSeen(t *testing.T) {
	const a, b, c = "10.77.0.1", "10.77.0.2", "10.77.0.3"
	r := runGroup(t, strings.Replace(ctltest.BothG1, "psn: 7}", "psn: 7, sendPSN: 3000, role: both}", 1))
	id := r.Groups.Named("g1").ID
	takes := func(who string, sent uint64) {
		turn := ctltest.TurnOfB()
		turn.Source.IP = addr(who)
		r.takes(turn)
		r.sw.Traffic("g1", dataplane.Traffic{Sent: sent})
	}
	ready := func(when string) {
		t.Helper()
		if s := r.later(); s.State != api.Ready {
			t.Errorf("%s: %+v", when, s)
		}
	}
	r.refuse(dataplane.SourceBlocked, b, 1, 0)
	r.look()
	takes(b, 16)
	takes(c, 32)
	ready("its frame was seen before")
	r.refuse(dataplane.SourceWaits, b, 2, 32)
	takes(b, 48)
	takes(a, 64)
	r.look()
	ready("its frame was seen behind its turn")
	r.refuse(dataplane.SourceWaits, b, 3, 64)
	takes(b, 64)
	takes(c, 64)
	r.look()
	ready("it has sent nothing")
	r.refuse(dataplane.SourceWaits, b, 4, 64)
	takes(b, 64)
	r.refuse(dataplane.BadICRC, b, 5, 64)
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 80})
	takes(a, 96)
	r.look()
	ready("a frame of its turn was refused, and sent again")

	r.refuse(dataplane.SourceBlocked, b, 6, 96)
	r.look()
	if s := r.later(); s.State != api.Degraded || !strings.HasPrefix(s.Reason, b+": it waits for its turn") {
		t.Errorf("behind its turn: %+v", s)
	}
	takes(c, 112)
	if s := r.look(); s.State != api.Degraded || !strings.HasPrefix(s.Reason, b+": it waits for its turn") {
		t.Errorf("behind another one's turn: %+v", s)
	}
	takes(b, 112)
	r.refuse(dataplane.BadICRC, b, 7, 112)
	r.look()
	takes(a, 128)
	if s := r.later(); s.State != api.Degraded || !strings.HasPrefix(s.Reason, b+": its packets arrive damaged") {
		t.Errorf("in its turn, without another packet: %+v; %v", s, id)
	}
}

// A source that only sends waits for its turn, and has it, as others do.
func TestTheFirstSourceWaitsForItsTurn(t *testing.T) {
	r := runGroup(t, strings.Replace(ctltest.BothG1, "psn: 5, sendPSN: 1000, role: both}", "psn: 1000, role: source}", 1))
	r.takes(ctltest.TurnOfB())
	r.refuse(dataplane.SourceBlocked, "10.77.0.1", 1, 0)
	r.look()
	if s := r.later(); s.State != api.Degraded || !strings.HasPrefix(s.Reason, "10.77.0.1: it waits") {
		t.Errorf("%+v", s)
	}
	first := ctltest.TurnOfB()
	first.Source = mft.QP{}
	r.takes(first)
	r.takes(ctltest.TurnOfB())
	if s := r.look(); s.State != api.Ready {
		t.Errorf("%+v", s)
	}
}

// A member that was never the source begins with its own sendPSN.
func TestAMemberWhoseFirstTurnIsOutOfStep(t *testing.T) {
	r := runGroup(t, ctltest.BothG1)
	r.refuse(dataplane.SourceOutOfStep, "10.77.0.2", 1, 0)
	r.look()
	if s := r.later(); !strings.HasPrefix(s.Reason, "10.77.0.2: ") || !strings.Contains(s.Reason, "which was 2000 at the start (sendPSN)") {
		t.Errorf("%+v", s)
	}
}

// A receiver whose answers are refused is what its group waits for; one whose answers are taken as
// well is not, and neither is one that lacks nothing.
func TestAReceiverWhoseAnswersAreRefused(t *testing.T) {
	const want = "10.77.0.3: it answers packets that it was never sent: the PSN that its QP expects first is not 7, the psn in the group file; create its QP and the group again"
	for name, c := range map[string]struct {
		acked func(look roce.PSN) (psn roce.PSN, acknowledged uint64)
		want  string
	}{
		"it gets nowhere":  {func(roce.PSN) (roce.PSN, uint64) { return 1500, 500 }, want},
		"it gets on":       {func(i roce.PSN) (roce.PSN, uint64) { return 1500 + i, uint64(500 + i) }, ""},
		"it lacks nothing": {func(roce.PSN) (roce.PSN, uint64) { return 2000, 1000 }, ""},
	} {
		r := newRunner(t, "degraded-after: 0\n")
		r.sw.Carry("g1", 2000)
		r.sw.Merge(r.Groups.Named("g1").ID, 1500)
		r.sw.Traffic("g1", dataplane.Traffic{Sent: 1000})
		for i := range roce.PSN(8) {
			psn, acknowledged := c.acked(i)
			r.sw.Repair("10.77.0.3", feedback.PathSnapshot{Part: feedback.PartActive, Acked: psn}, 0)
			r.sw.Answer("10.77.0.3", dataplane.Receiver{Acknowledged: acknowledged, Refused: uint64(i), RefusedFor: dataplane.Reason(feedback.BeyondSent)})
			r.look()
		}
		if s := r.summary(); s.Reason != c.want || (s.State == api.Ready) != (c.want == "") {
			t.Errorf("%s: %+v", name, s)
		}
		if of := r.traffic(); (of.Receivers[1].Trouble == api.TroubleFrames) != (c.want != "") || of.Source != nil {
			t.Errorf("%s: %+v", name, of)
		}
	}
}

// The cause of a group that stands still may be that a receiver's answers are refused.
func TestRefusedAnswersHoldAGroupUp(t *testing.T) {
	r := newRunner(t, "")
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 1000})
	for i := range uint64(5) {
		r.sw.Answer("10.77.0.3", dataplane.Receiver{Refused: i, RefusedFor: dataplane.WrongVLAN, RefusedAt: 2})
		r.second(2000, 1500, 1500, 1500)
	}
	if s := r.summary(); !strings.HasPrefix(s.Reason, "10.77.0.3: its frames come in another VLAN") || !strings.HasSuffix(s.Reason, "; packets wait, and none gets on") ||
		!strings.Contains(s.Reason, "ethtool -K eth3 rxvlan off") {
		t.Errorf("%+v", s)
	}
}

// What mends it is in the last answer: the port by which it came, and the QPN that it was for.
func TestARefusedAnswerIsDescribed(t *testing.T) {
	for want, last := range map[string]dataplane.Receiver{
		"10.77.0.3: its frames come by eth2, ":                                 {RefusedFor: dataplane.WrongPort, RefusedAt: 1},
		"10.77.0.3: its frames are for QPN 9, and the peer of its QP is QPN 1": {RefusedFor: dataplane.WrongQPN, RefusedQPN: 9},
	} {
		r := newRunner(t, "")
		r.sw.Traffic("g1", dataplane.Traffic{Sent: 1000})
		for last.Refused = range 5 {
			r.sw.Answer("10.77.0.3", last)
			r.second(2000, 1500, 1500, 1500)
		}
		if s := r.summary(); !strings.HasPrefix(s.Reason, want) {
			t.Errorf("%+v", s)
		}
	}
}

func astray(reason dataplane.Reason, count uint64, from string) dataplane.Astray {
	return dataplane.Astray{Refused: dataplane.Refused{Count: count, Reason: reason, From: addr(from), To: addr("10.77.0.100"), QPN: 2}}
}

// A source that sends to a QPN that no group has is named, as long as it was not heard.
func TestASourceThatSendsToNoGroup(t *testing.T) {
	const want = "10.77.0.1: its packets are for QPN 2, and the peer of its QP is QPN 1; connect its QP to that one"
	r := newRunner(t, "")
	r.sw.GoesAstray(astray(dataplane.UnknownQPN, 1, "10.77.0.1"))
	r.lookAtStrays(r.now)
	r.look()
	if s := r.later(); s.Reason != want || s.State != api.Degraded || s.GoesOn {
		t.Errorf("%+v", s)
	}
	if s := r.status(r.now); len(s.Notes) != 0 || s.Healthy {
		t.Errorf("%+v", s)
	}
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 1})
	r.look()
	r.sw.GoesAstray(astray(dataplane.UnknownQPN, 2, "10.77.0.1")) // another QP of the same host
	r.lookAtStrays(r.now)
	r.look()
	if s := r.later(); s.State != api.Ready {
		t.Errorf("%+v", s)
	}
	if s := r.status(r.now); len(s.Notes) != 1 || !s.Healthy {
		t.Errorf("%+v", s)
	}
	// Its packets are its own whatever was forwarded before, and in vain until more is.
	r.sw.GoesAstray(astray(dataplane.OverMTU, 1, "10.77.0.1"))
	r.lookAtStrays(r.now)
	r.look()
	if s := r.later(); s.State != api.Degraded || !strings.Contains(s.Reason, "path MTU") {
		t.Errorf("%+v", s)
	}
	r.sw.Traffic("g1", dataplane.Traffic{Sent: 2})
	if s := r.look(); s.State != api.Ready {
		t.Errorf("%+v", s)
	}
}

// A frame that no group counts is not known to be older than a turn.
func TestASourceThatSendsToNoGroupInALaterTurn(t *testing.T) {
	r := runGroup(t, ctltest.BothG1)
	r.refuse(dataplane.SourceBlocked, "10.77.0.1", 5, 0)
	r.takes(ctltest.TurnOfB())
	first := ctltest.TurnOfB()
	first.Source.IP = addr("10.77.0.1")
	r.takes(first)
	r.sw.GoesAstray(astray(dataplane.OverMTU, 1, "10.77.0.1"))
	r.lookAtStrays(r.now)
	r.look()
	if s := r.later(); s.State != api.Degraded || !strings.Contains(s.Reason, "path MTU") {
		t.Errorf("%+v", s)
	}
}

// What strangers send is a note of the box, and told once: no group and not the box is ill because
// of them.
func TestStrangersMakeNobodyIll(t *testing.T) {
	r := newRunner(t, "")
	begin := r.now
	for i := range uint64(20) {
		r.now = begin.Add(time.Duration(i) * time.Second)
		r.sw.GoesAstray(astray(dataplane.NotMember, i+1, "10.77.0.9"), astray(dataplane.UnknownQPN, i+1, "10.77.0.9"))
		r.sw.Classified("classifier-drop_own_source", i+1)
		r.lookAtStrays(r.now)
		if s := r.look(); s.State != api.Ready {
			t.Errorf("%+v", s)
		}
	}
	want := []string{
		"frames are refused (classifier-drop_own_source) a host sends from an address that only this box sends from, such as a group's IP; give that host another address (rocast events names its MAC)",
		"frames are refused (not-member) from 10.77.0.9 by eth1: it sends data to a group of which it is no member; add it to the group file, or stop its program",
		"frames are refused (unknown-qpn) from 10.77.0.9 by eth1: no group has QPN 2 at 10.77.0.100; connect the QP to the ip and qpn that rocast group ls shows",
	}
	if s := r.status(r.now); !s.Healthy || !slices.Equal(s.Notes, want) {
		t.Errorf("%+v", s)
	}
	if s := r.status(r.now.Add(time.Minute)); len(s.Notes) != 0 {
		t.Errorf("a minute later: %q", s.Notes)
	}
	events := r.happened()
	if len(events) != 3 || !strings.HasPrefix(events[1], "frames-refused: not-member: from 10.77.0.9") {
		t.Errorf("%q", events)
	}
	if n := r.logs.FilterMessage("frames are refused").Len(); n != 3 {
		t.Errorf("the log has %d lines", n)
	}
}

// Frames of groups that the box cannot take are the box's trouble.
func TestABoxThatIsNotSetUpIsNotHealthy(t *testing.T) {
	r := newRunner(t, "")
	for i := range uint64(4) {
		r.sw.Classified("classifier-pass_no_socket", i)
		r.lookAtStrays(r.now)
		s := r.status(r.now)
		if ill := i == 3; s.Healthy == ill || !s.Ready || ill && (s.Problems[0].Of != api.OfBox || s.Problems[0].Name != "classifier-pass_no_socket") {
			t.Errorf("%d: %+v", i, s)
		}
		r.now = r.now.Add(time.Second / 2)
	}
}
