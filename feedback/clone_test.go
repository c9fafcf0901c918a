package feedback

import (
	"bytes"
	"testing"
	"time"

	"github.com/rocast/rocast/roce"
)

// everything is a policy for which every part of a group's state matters.
var everything = Policy{Ack: 2, SilentAfter: 20 * time.Millisecond}

const stateNow = Tick(time.Second)

// aGroup has a value other than zero in each field that determines how a group acts, except the
// flags.
func aGroup(p Policy) *Group {
	g := New(Config{Policy: p, Paths: 3, FirstPSN: 100})
	g.source = source{known: true, first: 90, sent: 120, pos: 110, counted: 105, messages: 3, resentAt: stateNow - 4e6}
	g.merged = merged{known: true, psn: 106, highest: 107, msn: 2}
	g.floor = floor{known: true, psn: 108, msn: 3, above: 1, need: 2}
	g.back = goBack{psn: 111, awaited: true}
	g.pending = pendingNAKs{sequence: 1, rnr: 1}
	g.refusal = refusal{psn: 121, syndrome: roce.NAKInvalidRequest}
	g.end = end{psn: 119, syndrome: roce.NAKRemoteAccess}
	g.doubts = doubts{recopied: span{some: true, from: 101, to: 103}, missed: span{some: true, from: 121, to: 122}, countedAt: stateNow - 5e6}
	if g.policy.repairs() {
		g.source.inside = true
		g.retained = retained{oldest: 106, lowest: 105, at: 1, repairing: 1, running: 1}
		g.gap = gapCalls{seen: true, since: stateNow - gapAgain/2}
		g.legs[0] = leg{
			due: stateNow + 1e6, srtt: 1e5, sampleAt: stateNow - 2e5, since: stateNow - 7e6, cursor: 112, asked: 111, high: 115,
			resent: 110, sample: 113, state: legRepairing, window: 4, attempts: 2, running: true, sampling: true, sentAgain: true,
		}
	}
	g.paths[0] = path{since: stateNow - 5e6, acked: 108, msn: 3, from: 104, fresh: true, pending: roce.NAKSequence, credit: 7, lack: lackDoubt, unheard: 2}
	return g
}

// mended is a policy with repair for which round trips matter.
var mended = Policy{Ack: 2, Repair: RepairLocal}

// fixed is the same with a timer of one length.
var fixed = Policy{Ack: 2, Repair: RepairLocal, RepairTimerFloor: time.Millisecond, RepairTimerCap: time.Millisecond}

func stateOf(g *Group, now Tick) []byte {
	return g.AppendPath(g.AppendState(nil, 100, now), 0, 100, now)
}

// What the source passes over matters while a path may wait for some of it.
func TestStateTellsWhatTheSourcePasses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*Group)
		shows   bool
	}{
		"an active path waits for it":       {func(g *Group) { g.paths[1].acked = 103 }, true},
		"a path may wait for anything":      {func(g *Group) { g.paths[1].part = PartUnknown }, true},
		"a path waits for the lowest":       {func(g *Group) { g.paths[1].acked = 104 }, false},
		"a dead path waits for it":          {func(g *Group) { g.paths[1].acked, g.paths[1].part = 103, PartDead }, false},
		"nobody knows where the source was": {func(g *Group) { g.paths[1].acked, g.source.known = 103, false }, false},
	} {
		for what, change := range map[string]func(*doubts){
			"rounds": func(d *doubts) { d.rounds++ },
			"lowest": func(d *doubts) { d.lowest-- },
			"began":  func(d *doubts) { d.began++ },
		} {
			g, other := aGroup(everything), aGroup(everything)
			for _, g := range []*Group{g, other} {
				g.paths[1].acked, g.paths[2].acked = 110, 110
				g.doubts.lowest, g.doubts.rounds = 105, 3
				c.prepare(g)
			}
			if what == "lowest" && c.shows {
				g.doubts.lowest, other.doubts.lowest = 106, 106
			}
			change(&other.doubts)
			if shows := !bytes.Equal(stateOf(g, stateNow), stateOf(other, stateNow)); shows != c.shows {
				t.Errorf("%s: %s shows: %v", name, what, shows)
			}
		}
	}
}

// Where the source's newest round began matters until it has begun there often enough.
func TestStateTellsWhereARoundBegan(t *testing.T) {
	for rounds, shows := range map[uint8]bool{0: true, doubtLimit: true, doubtLimit + 1: false} {
		g, other := aGroup(everything), aGroup(everything)
		for _, g := range []*Group{g, other} {
			g.paths[1].part, g.doubts.rounds = PartUnknown, rounds
		}
		other.doubts.began++
		if got := !bytes.Equal(stateOf(g, stateNow), stateOf(other, stateNow)); got != shows {
			t.Errorf("after %d rounds it shows: %v", rounds, got)
		}
	}
}

// The search takes two groups with equal bytes for the same state, so the bytes must include
// everything that can make groups act differently.
func TestStateTellsGroupsApart(t *testing.T) {
	states := map[string]string{}
	note := func(name string, state []byte) {
		if was, met := states[string(state)]; met {
			t.Errorf("%s looks like %s", name, was)
		}
		states[string(state)] = name
	}
	note("the group", stateOf(aGroup(everything), stateNow))
	for name, change := range map[string]func(*Group){
		"source known":       func(g *Group) { g.source.known = false },
		"source inside":      func(g *Group) { g.source.inside = true },
		"unanswered":         func(g *Group) { g.source.unanswered++ },
		"source first":       func(g *Group) { g.source.first++ },
		"source first far":   func(g *Group) { g.source.first = g.source.sent.Add(1 - Window) },
		"source sent":        func(g *Group) { g.source.sent++ },
		"source pos":         func(g *Group) { g.source.pos++ },
		"source counted":     func(g *Group) { g.source.counted++ },
		"source messages":    func(g *Group) { g.source.messages++ },
		"source resent":      func(g *Group) { g.source.resentAt = g.paths[0].since },
		"merged known":       func(g *Group) { g.merged.known = false },
		"merged psn":         func(g *Group) { g.merged.psn++ },
		"merged highest":     func(g *Group) { g.merged.highest++ },
		"merged msn":         func(g *Group) { g.merged.msn++ },
		"floor known":        func(g *Group) { g.floor.known = false },
		"floor psn":          func(g *Group) { g.floor.psn++ },
		"floor msn":          func(g *Group) { g.floor.msn++ },
		"floor migrates":     func(g *Group) { g.floor.migReq = true },
		"floor above":        func(g *Group) { g.floor.above++ },
		"floor need":         func(g *Group) { g.floor.need++ },
		"back psn":           func(g *Group) { g.back.psn++ },
		"back awaited":       func(g *Group) { g.back.awaited = false },
		"back newest":        func(g *Group) { g.back.newest = true },
		"back only newest":   func(g *Group) { g.back.awaited, g.back.newest = false, true },
		"back newest at":     func(g *Group) { g.back = goBack{psn: 112, newest: true} },
		"pending sequence":   func(g *Group) { g.pending.sequence++ },
		"pending rnr":        func(g *Group) { g.pending.rnr++ },
		"refusal psn":        func(g *Group) { g.refusal.psn++ },
		"refusal syndrome":   func(g *Group) { g.refusal.syndrome = roce.NAKRemoteAccess },
		"end psn":            func(g *Group) { g.end.psn++ },
		"end syndrome":       func(g *Group) { g.end.syndrome = roce.NAKRemoteOperational },
		"end sent":           func(g *Group) { g.end.sent = true },
		"end told":           func(g *Group) { g.end.told, g.end.cameAt = true, stateNow-7e6 },
		"end told before":    func(g *Group) { g.end.told, g.end.cameAt = true, stateNow-8e6 },
		"recopied":           func(g *Group) { g.doubts.recopied.some = false },
		"recopied from":      func(g *Group) { g.doubts.recopied.from++ },
		"recopied to":        func(g *Group) { g.doubts.recopied.to++ },
		"missed":             func(g *Group) { g.doubts.missed.some = false },
		"missed from":        func(g *Group) { g.doubts.missed.from++ },
		"missed to":          func(g *Group) { g.doubts.missed.to++ },
		"counted at":         func(g *Group) { g.doubts.countedAt++ },
		"counted long ago":   func(g *Group) { g.doubts.countedAt = stateNow - doubtPeriod },
		"away":               func(g *Group) { g.away = PartUnknown },
		"path since":         func(g *Group) { g.paths[0].since++ },
		"path for long":      func(g *Group) { g.paths[0].since = stateNow - Tick(everything.SilentAfter) },
		"path acked":         func(g *Group) { g.paths[0].acked++ },
		"path msn":           func(g *Group) { g.paths[0].msn++ },
		"path from":          func(g *Group) { g.paths[0].from++ },
		"path pending":       func(g *Group) { g.paths[0].pending = roce.SyndromeRNR(3) },
		"path credit":        func(g *Group) { g.paths[0].credit++ },
		"path part":          func(g *Group) { g.paths[0].part = PartGone },
		"path migrates":      func(g *Group) { g.paths[0].migReq = true },
		"path silent":        func(g *Group) { g.paths[0].silent = silenceTotal },
		"path fresh":         func(g *Group) { g.paths[0].fresh = false },
		"path asks":          func(g *Group) { g.paths[0].lack = lackProven },
		"path follows":       func(g *Group) { g.paths[0].follows = true },
		"path leaves more":   func(g *Group) { g.paths[0].unheard++ },
		"path weight":        func(g *Group) { g.quorum.weigh([]uint16{2, 1, 1}) },
		"path of the source": func(g *Group) { g.absent = 0 },
		"beside":             func(g *Group) { g.beside++ },
		"asked":              func(g *Group) { g.back.asked = true }, // and the source has not come there
	} {
		g := aGroup(everything)
		change(g)
		note(name, stateOf(g, stateNow))
	}
}

// waits makes g one whose next source waits: receivers and the old source are asked.
func waits(g *Group) {
	g.claim = claim{true, g.source.sent, stateNow - 3e6}
	g.source.unsure, g.source.told = true, true // so that questions help
	g.asking = asking{turn: 100, begun: true, calls: 1, from: stateNow - 2e6, at: stateNow - 1e6}
	g.again = again{true, g.merged.highest.Next(), 2}
}

// answers makes g one whose source answers a question.
func answers(g *Group) {
	g.back = goBack{psn: g.source.pos, awaited: true, asked: true, came: true, askedAt: stateNow - 4e6}
}

func TestStateTellsWhatWasAsked(t *testing.T) {
	for name, c := range map[string]struct{ prepare, change func(g *Group) }{
		"no claim":             {waits, func(g *Group) { g.claim.stands = false }},
		"a claim of before":    {waits, func(g *Group) { g.claim.sent-- }},
		"when it was claimed":  {waits, func(g *Group) { g.claim.since++ }},
		"no question":          {waits, func(g *Group) { g.asking.begun = false }},
		"how often":            {waits, func(g *Group) { g.asking.calls++ }},
		"since when":           {waits, func(g *Group) { g.asking.from++ }},
		"the newest question":  {waits, func(g *Group) { g.asking.at++ }},
		"a packet seen again":  {waits, func(g *Group) { g.again.psn++ }},
		"a message seen again": {waits, func(g *Group) { g.again.msn++ }},
		"nothing seen again":   {waits, func(g *Group) { g.again.known = false }},
		"an answer":            {answers, func(g *Group) { g.back.psn = g.source.pos.Next() }},
		"when it was asked":    {answers, func(g *Group) { g.back.askedAt++ }},
		"whether it has come":  {answers, func(g *Group) { g.back.came = false }},
		"when it was asked that has not come": {func(g *Group) { answers(g); g.back.came = false },
			func(g *Group) { g.back.askedAt++ }},
		"how it was asked": {answers, func(g *Group) { g.back.by, g.back.askedAt = roce.SyndromeRNR(roundTripRNR), stateNow-AskPeriod }},
		"the last nanosecond of an answer to an RNR NAK": {
			func(g *Group) {
				answers(g)
				g.back.by, g.back.askedAt = roce.SyndromeRNR(roundTripRNR), stateNow-2*AskPeriod
			},
			func(g *Group) { g.back.askedAt++ }},
		"the last nanosecond of an answer": {func(g *Group) { answers(g); g.back.askedAt = stateNow - AskPeriod },
			func(g *Group) { g.back.askedAt++ }},
		"the last nanosecond of who may be silent": {func(g *Group) { waits(g); g.asking.from = stateNow - onItsWay - g.policy.settleWithin() },
			func(g *Group) { g.asking.from++ }},
		"the last nanosecond of a question": {func(g *Group) { waits(g); g.asking.at = stateNow - claimLife }, func(g *Group) { g.asking.at-- }},
		"the last nanosecond of a claim": {func(g *Group) { g.claim = claim{true, g.source.sent, stateNow - g.policy.settleWithin() - claimLife} },
			func(g *Group) { g.claim.since-- }},
		"what a path has told": {func(g *Group) { g.source.known = false }, func(g *Group) { g.paths[0].told = true }},
	} {
		g, other := aGroup(everything), aGroup(everything)
		c.prepare(g)
		c.prepare(other)
		c.change(other)
		if bytes.Equal(stateOf(g, stateNow), stateOf(other, stateNow)) {
			t.Errorf("%s does not show", name)
		}
	}
}

func TestStateTellsRepairsApart(t *testing.T) {
	before := stateOf(aGroup(mended), stateNow)
	for name, change := range map[string]func(*Group, *leg){
		"oldest":        func(g *Group, _ *leg) { g.retained.oldest++ },
		"no gap":        func(g *Group, _ *leg) { g.gap.seen = false },
		"gap since":     func(g *Group, _ *leg) { g.gap.since++ },
		"guess":         func(g *Group, _ *leg) { g.guess.stands = true },
		"gap rests":     func(g *Group, _ *leg) { g.gap.rests = true },
		"called by RNR": func(g *Group, _ *leg) { g.back.by = roce.SyndromeRNR(shortestRNR) },
		"lull spoke":    func(g *Group, _ *leg) { g.lull.spoke = !g.lull.spoke },
		"lull acked":    func(g *Group, _ *leg) { g.lull.acked = !g.lull.acked },
		"lull asked":    func(g *Group, _ *leg) { g.lull.asked = !g.lull.asked },
		"lull seen":     func(g *Group, _ *leg) { g.lull.seen = !g.lull.seen },
		"lull times":    func(g *Group, _ *leg) { g.lull.times++ },
		"pause":         func(g *Group, _ *leg) { g.pace.pause++ },
		"seen at":       func(g *Group, _ *leg) { g.pace.seenAt++ },
		"asks":          func(g *Group, _ *leg) { g.source.asks = !g.source.asks },
		"one ACK":       func(g *Group, _ *leg) { g.back.oneACK = !g.back.oneACK },
		"due":           func(_ *Group, l *leg) { l.due++ },
		"round trip":    func(_ *Group, l *leg) { l.srtt++ },
		"from":          func(_ *Group, l *leg) { l.from++ },
		"from at":       func(_ *Group, l *leg) { l.fromAt++ },
		"sample at":     func(_ *Group, l *leg) { l.sampleAt++ },
		"since":         func(_ *Group, l *leg) { l.since++ },
		"cursor":        func(_ *Group, l *leg) { l.cursor++ },
		"asked":         func(_ *Group, l *leg) { l.asked++ },
		"high":          func(_ *Group, l *leg) { l.high++ },
		"resent":        func(_ *Group, l *leg) { l.resent++ },
		"sample":        func(_ *Group, l *leg) { l.sample++ },
		"state":         func(_ *Group, l *leg) { l.state = legProbing },
		"varies":        func(_ *Group, l *leg) { l.varies++ },
		"backoff":       func(_ *Group, l *leg) { l.backoff++ },
		"window":        func(_ *Group, l *leg) { l.window++ },
		"carried":       func(_ *Group, l *leg) { l.carried = !l.carried },
		"backs":         func(_ *Group, l *leg) { l.backs, l.backsAt = 1, stateNow },
		"rate":          func(_ *Group, l *leg) { l.rate++ },
		"quickest":      func(_ *Group, l *leg) { l.quickest++ },
		"flight":        func(_ *Group, l *leg) { l.flight++ },
		"attempts":      func(_ *Group, l *leg) { l.attempts++ },
		"does not run":  func(_ *Group, l *leg) { l.running = false },
		"samples not":   func(_ *Group, l *leg) { l.sampling = false },
		"sentAgain":     func(_ *Group, l *leg) { l.sentAgain = false },
		"barred":        func(_ *Group, l *leg) { l.barred = true },
		"reported":      func(_ *Group, l *leg) { l.reported = true },
		"another leg":   func(g *Group, _ *leg) { g.legs[0], g.legs[1] = g.legs[1], g.legs[0] },
		"without legs":  func(g *Group, _ *leg) { g.policy.Repair = RepairOff },
		"asked nothing": func(_ *Group, l *leg) { l.asked = 108 },
	} {
		g := aGroup(mended)
		change(g, &g.legs[0])
		if after := stateOf(g, stateNow); bytes.Equal(after, before) {
			t.Errorf("%s does not show", name)
		}
	}
	for name, change := range map[string]func(g *Group, by Tick){
		"since when the source is silent": func(g *Group, by Tick) {
			g.back.psn, g.lull = g.source.pos, lull{seen: true, since: stateNow - 5e6 + by}
		},
		"a long silence of a source that was slow": func(g *Group, by Tick) {
			g.back.awaited, g.end.syndrome, g.source.pos, g.pace.pause = false, 0, g.source.sent, 10*millisecond
			g.lull = lull{seen: true, since: stateNow - 30*millisecond + by}
		},
		"a long silence after an RNR NAK": func(g *Group, by Tick) {
			g.back.psn, g.back.by = g.source.pos, roce.SyndromeRNR(0)
			g.lull = lull{seen: true, since: stateNow - second + by}
		},
		"a timer that ends next":                      func(g *Group, by Tick) { g.legs[0].due = stateNow + by },
		"a guess that ends next":                      func(g *Group, by Tick) { g.guess = guess{stands: true, until: stateNow + by} },
		"how long a repair goes back":                 func(g *Group, by Tick) { l := &g.legs[0]; l.backs, l.backsAt = 1, stateNow-1e4+by },
		"a guess that stands for the last nanosecond": func(g *Group, by Tick) { g.guess = guess{stands: by == 0, until: stateNow + 1} },
		"a guess that is over and stands":             func(g *Group, by Tick) { g.guess = guess{stands: by == 0, until: stateNow} },
	} {
		g, later := aGroup(mended), aGroup(mended)
		change(g, 0)
		change(later, 1)
		if bytes.Equal(stateOf(g, stateNow), stateOf(later, stateNow)) {
			t.Errorf("%s does not show", name)
		}
	}
}

// A state has the same bytes for every way to reach it. Otherwise the search would not end.
func TestStateLeavesOutWhatDoesNotMatter(t *testing.T) {
	all := everything
	all.Ack = AckAll
	never := Policy{Ack: 2}
	for _, c := range []struct {
		name    string
		policy  Policy
		prepare func(*Group)
		change  func(*Group)
	}{
		{"doubts without a quorum", all, nil, func(g *Group) {
			g.doubts = doubts{}
			g.paths[0].lack, g.paths[0].unheard, g.paths[0].follows = lackNone, 0, true
		}},
		{"silence that the policy ignores", never, nil, func(g *Group) { g.paths[0].since, g.source.resentAt = 1, 1 }},
		{"a time that is over", everything, func(g *Group) {
			g.paths[0].since = stateNow - Tick(everything.SilentAfter)
			g.source.resentAt, g.doubts.countedAt = stateNow, stateNow-doubtPeriod
		}, func(g *Group) { g.paths[0].since, g.doubts.countedAt = 1, 1 }},
		{"the PSNs of a source that is not known", everything, func(g *Group) { g.source.known = false },
			func(g *Group) { g.source = source{messages: 3, resentAt: g.source.resentAt}; g.merged.psn = 0 }},
		{"a first PSN that is far back", everything, func(g *Group) { g.source.first = g.source.sent.Add(-Window) },
			func(g *Group) { g.source.first-- }},
		{"the highest PSN of nothing", everything, func(g *Group) { g.merged.known = false }, func(g *Group) { g.merged.highest++ }},
		{"where the source was called back to", everything, func(g *Group) { g.back.awaited = false }, func(g *Group) { g.back.psn++ }},
		{"where nothing was refused", everything, func(g *Group) { g.refusal.syndrome = 0 }, func(g *Group) { g.refusal.psn++ }},
		{"where nothing ends", everything, func(g *Group) { g.end.syndrome = 0 }, func(g *Group) { g.end.psn++ }},
		{"what was not copied again", everything, func(g *Group) { g.doubts.recopied.some = false },
			func(g *Group) { g.doubts.recopied.from++; g.doubts.recopied.to++ }},
		{"NAKs that were not missed", everything, func(g *Group) { g.doubts.missed.some = false },
			func(g *Group) { g.doubts.missed.from++; g.doubts.missed.to++ }},
		{"how often a leg was repaired", mended, nil, func(g *Group) { l := &g.legs[0]; l.repaired, l.probes, l.givenUp = 1, 2, 3 }},
		{"what was asked for and answered", mended, func(g *Group) { g.legs[0].asked, g.legs[0].resent = 108, 108 }, func(g *Group) { g.legs[0].asked, g.legs[0].resent = 90, 91 }},
		{"a timer that is over", mended, func(g *Group) { g.legs[0].due = stateNow }, func(g *Group) { g.legs[0].due -= 5 }},
		{"a timer that does not run", mended, func(g *Group) { g.legs[0].running = false }, func(g *Group) { g.legs[0].due += 5 }},
		{"the cursor of a path that is direct", mended, func(g *Group) { g.legs[0].state = legDirect },
			func(g *Group) { g.legs[0].cursor, g.legs[0].since = 5, 5 }},
		{"since when a path that never went back has not", mended, nil, func(g *Group) { g.legs[0].backsAt = stateNow }},
		{"how often a path went back long ago", mended,
			func(g *Group) { l := &g.legs[0]; l.backs, l.backsAt = 1, stateNow-g.backsWithin(l) },
			func(g *Group) { l := &g.legs[0]; l.backs, l.backsAt = 2, l.backsAt-1 }},
		{"round trips where the timer has one length", fixed, nil,
			func(g *Group) { l := &g.legs[0]; l.srtt, l.varies, l.rate, l.sampling = l.srtt+5, 6, 7, false }},
		{"since when no timer has seen a silence", mended, func(g *Group) { g.back.psn = g.source.pos }, func(g *Group) { g.lull.since = stateNow - 5 }},
		{"when the last packet of a message came", mended, func(g *Group) { g.source.inside = false }, func(g *Group) { g.pace.seenAt = 5 }},
		{"what is not measured", mended, func(g *Group) { g.legs[0].sampling = false }, func(g *Group) { g.legs[0].sample, g.legs[0].sampleAt = 5, 5 }},
		{"a repair that is long enough", mended, func(g *Group) { g.legs[0].since = stateNow - repairLong }, func(g *Group) { g.legs[0].since-- }},
		{"a gap that does not stand", mended, func(g *Group) { g.gap.seen = false }, func(g *Group) { g.gap.since = 5 }},
		{"a gap that is long enough", mended, func(g *Group) { g.gap.since = stateNow - gapAgain }, func(g *Group) { g.gap.since-- }},
		{"when nobody asked", everything, nil, func(g *Group) { g.back.askedAt, g.asking.from, g.asking.at, g.asking.calls = stateNow-1, 1, 1, 1 }},
		{"what came where no question was asked", everything, func(g *Group) { g.back.asked = false }, func(g *Group) { g.back.askedAt, g.back.came = stateNow-1, true }},
		{"whether a source was asked that has come back", everything, func(g *Group) { g.back = goBack{psn: 111, newest: true} },
			func(g *Group) { g.back.asked = true }},
		{"a question whose answer is certain", everything, func(g *Group) { answers(g); g.back.askedAt = stateNow - AskPeriod },
			func(g *Group) { g.back.askedAt-- }},
		{"questions that help no more", everything, func(g *Group) { waits(g); g.source.told, g.source.unsure = false, false },
			func(g *Group) { g.asking = asking{turn: 100, from: 1, at: 1, calls: 2} }},
		{"who has been silent for long enough", everything,
			func(g *Group) { waits(g); g.asking.from = stateNow - onItsWay - g.policy.settleWithin() },
			func(g *Group) { g.asking.from-- }},
		{"a question that was given up", everything, func(g *Group) { waits(g); g.asking.at = stateNow - claimLife - 1 },
			func(g *Group) { g.asking.at-- }},
		{"a claim that does not stand", everything, nil, func(g *Group) { g.claim.sent, g.claim.since = 1, 1 }},
		{"a claim that was given up", everything, nil,
			func(g *Group) {
				g.claim = claim{true, g.source.sent, stateNow - claimLife - g.policy.settleWithin() - 1}
			}},
		{"what was told before the source was heard", everything, nil, func(g *Group) { g.paths[0].told = true }},
		{"messages that the source was sent an ACK for", everything, func(g *Group) { g.again = again{true, g.merged.highest, 2} },
			func(g *Group) { g.again = again{true, g.merged.highest.Prev(), 1} }},
		{"where a path that counts began", everything, func(g *Group) { g.paths[0].fresh = false }, func(g *Group) { g.paths[0].from++ }},
	} {
		g := aGroup(c.policy)
		if c.prepare != nil {
			c.prepare(g)
		}
		before := stateOf(g, stateNow)
		c.change(g)
		if after := stateOf(g, stateNow); !bytes.Equal(before, after) {
			t.Errorf("%s shows:\n%x\n%x", c.name, before, after)
		}
	}
}

// The bytes do not depend on the group's first PSN and on the time.
func TestStateIsRelative(t *testing.T) {
	play := func(first roce.PSN, start Tick) []byte {
		g := New(Config{Policy: everything, Paths: 3, FirstPSN: first})
		for i, ev := range []Event{
			{Kind: Data, PSN: first, First: true}, {Kind: Data, PSN: first.Add(1), AckReq: true, Last: true},
			{Kind: Response, Path: 1, PSN: first.Add(1), Syndrome: roce.SyndromeUnlimited},
			{Kind: Response, Path: 2, PSN: first, Syndrome: roce.NAKSequence}, {Kind: Data, PSN: first},
		} {
			g.Step(start+Tick(i)*1e6, ev, nil)
		}
		return g.AppendPath(g.AppendState(nil, first, start+7e6), 2, first, start+7e6)
	}
	want := play(100, 1e9)
	if got := play(0xFFFFFF, 5e9); !bytes.Equal(got, want) {
		t.Errorf("%x\n%x", got, want)
	}
	repaired := func(first roce.PSN, start Tick) []byte {
		g := New(Config{Policy: mended, Paths: 3, FirstPSN: first, Restored: true})
		for i, ev := range []Event{
			{Kind: Data, PSN: first, First: true}, {Kind: Data, PSN: first.Add(1), AckReq: true, Last: true},
			{Kind: Response, Path: 1, PSN: first.Add(1), Syndrome: roce.SyndromeUnlimited},
			{Kind: Response, Path: 2, PSN: first, Syndrome: roce.SyndromeRNR(shortestRNR)},
			{Kind: Data, PSN: first.Add(2), AckReq: true, First: true, Last: true}, {Kind: Timer},
		} {
			g.Step(start+Tick(i)*1e5, ev, nil)
		}
		now, b := start+6e5, []byte(nil)
		for i := range g.paths {
			b = g.AppendPath(b, i, first, now)
		}
		if l := &g.legs[1]; !l.sampling || !g.guess.stands || g.legs[2].state == legDirect {
			t.Errorf("%+v %+v %+v", l, g.guess, g.legs[2])
		}
		return g.AppendState(b, first, now)
	}
	for name, prepare := range map[string]func(*Group){"a claim": waits, "an answer": answers} {
		g, later := aGroup(everything), aGroup(everything)
		prepare(g)
		prepare(later)
		const by = Tick(5)
		for _, at := range []*Tick{&later.claim.since, &later.asking.from, &later.asking.at, &later.back.askedAt,
			&later.source.resentAt, &later.doubts.countedAt, &later.paths[0].since} {
			*at += by
		}
		if got, want := stateOf(later, stateNow+by), stateOf(g, stateNow); !bytes.Equal(got, want) {
			t.Errorf("%s depends on the time:\n%x\n%x", name, got, want)
		}
	}
	want = repaired(100, 1e9)
	if got := repaired(0xFFFFFF, 5e9); !bytes.Equal(got, want) {
		t.Errorf("with repair:\n%x\n%x", got, want)
	}
}

// A copy shares nothing with the group, and takes no memory once it is large enough.
func TestCopyFrom(t *testing.T) {
	all := everything
	all.Repair = RepairLocal
	from, scratch := aGroup(all), &Group{}
	want := stateOf(from, stateNow)
	scratch.CopyFrom(from)
	if got := stateOf(scratch, stateNow); !bytes.Equal(got, want) {
		t.Errorf("the copy is\n%x and not\n%x", got, want)
	}
	scratch.paths[0].acked++
	scratch.legs[0].high++
	if got := stateOf(from, stateNow); !bytes.Equal(got, want) {
		t.Error("a change of the copy changes the group")
	}
	scratch.quorum.ranked = append(scratch.quorum.ranked[:0], 1)
	from.quorum.ranked = append(from.quorum.ranked[:0], 2)
	if scratch.quorum.ranked[0] != 1 {
		t.Error("both rank their paths in the same memory")
	}
	from.quorum.weigh([]uint16{1, 2, 3})
	if scratch.CopyFrom(from); scratch.weight(2) != 3 {
		t.Error("a copy has lost the weights")
	}
	if scratch.quorum.weights[2] = 7; from.weight(2) != 3 {
		t.Error("both have their weights in the same memory")
	}
	smaller := New(Config{Policy: all, Paths: 2})
	if n := testing.AllocsPerRun(10, func() {
		scratch.CopyFrom(smaller)
		scratch.CopyFrom(from)
		scratch.recount() // ranks the paths
	}); n != 0 {
		t.Errorf("a copy allocates %v times", n)
	}
}
