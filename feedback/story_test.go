package feedback

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rocast/rocast/internal/merger"
	"github.com/rocast/rocast/roce"
)

// TestStories plays the conversations of testdata. Each is played three times: with the PSNs as
// written; with the group's first PSN at 0xFFFFFE and the clock at an hour, so that every rule is
// also seen across the wrap and with times that are not small; and with an engine that carries
// every packet that it may. All must print the same.
//
//	group receivers=(b,c) first=100 [restored] [joined=(b,90)] [source=b] [ack=(quorum,2)]
//	                         [evict=true] [repair-attempts=7] [sharing=(b,c)]
//	                         and other keys of a policy (Keys)
//	run
//	data 100-103!            packets of the source, a message; ! asks for an ACK
//	data +100                a packet inside a message
//	read 104                 a request that no group can carry
//	b ack 103 [msn=1] [mig]  answers of a receiver
//	c nak 102                also: rnr 102 timer=14, fatal 102 access|invalid|operational, cnp
//	wait 10ms                time passes, with a Timer event at its end
//	lost 102                 the caller no longer has the retained packets up to 102
//	unshare b                b gets no shared copies any more; also: share b
//	members b c -a +e        the membership changes: b and c stay, a leaves, e joins
//	source 500 [away=b] [old=c] [msn=7]
//	                         b becomes the source instead of c; its first PSN is 500, and it has sent
//	                         7 messages before
//
// The output has the outcome of each event, the paths that got a copy, the repairs (! where one
// asks for an ACK), the replies to the source, the reports to the operator, and at the end of a
// block the state of each path and of the source. A path under repair has its cursor.
func TestStories(t *testing.T) {
	for mode, s := range map[string]story{"plain": {}, "wrap": {wrap: true}, "trains": {trains: true}, "carried": {engine: true}} {
		t.Run(mode, func(t *testing.T) {
			carried, merged := 0, 0
			datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
				s := &story{wrap: s.wrap, trains: s.trains, engine: s.engine}
				if s.wrap {
					s.now = 3600 * second // the clock has any start
				}
				defer func() { carried, merged = carried+s.carried, merged+s.merged }()
				defer func() { checkCauses(t, filepath.Base(path), s.causes) }()
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					switch d.Cmd {
					case "group":
						s.open(t, d)
					case "run":
						for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
							s.line(t, d, line)
						}
					default:
						d.Fatalf(t, "unknown command %q", d.Cmd)
					}
					return s.show()
				})
			})
			if s.engine && (carried == 0 || merged == 0) {
				t.Errorf("the engine carried %d packets, and told the source of %d ACKs", carried, merged)
			}
		})
	}
}

type story struct {
	wrap    bool
	trains  bool // packets that need no decision come as trains
	engine  bool // in front of the group
	shift   int32
	now     Tick
	g       *Group
	names   []string
	weights []uint16
	acts    []Action
	out     strings.Builder
	untold  Event // what the engine carried since the last event of the group; its kind is Data if nothing
	carried int
	merges  bool // the engine merges ACKs since the last event of the group
	merger  merger.Merger[Progress]
	merged  int
	causes  [NumCauses]int // of what the source was sent
}

func (s *story) open(t *testing.T, d *datadriven.TestData) {
	cfg, source, needed, beside, relayed := Config{}, "", "", 0, false
	var sharing []string
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "receivers":
			s.names, s.weights = nil, nil
			for _, v := range arg.Vals {
				s.add(v, 1)
			}
		case "first":
			n, _ := strconv.Atoi(arg.Vals[0])
			s.shift = 0
			if s.wrap {
				s.shift = roce.PSN(0xFFFFFE).Sub(roce.PSN(n))
			}
			cfg.FirstPSN = roce.PSN(n).Add(s.shift)
		case "source":
			source = arg.Vals[0]
			if len(arg.Vals) > 1 {
				beside, _ = strconv.Atoi(arg.Vals[1])
			}
		case "needed":
			needed = arg.Vals[0]
		case "sharing":
			sharing = arg.Vals
		case "relayed":
			relayed = true
		case "restored":
			cfg.Restored = true
		case "joined":
			n, _ := strconv.Atoi(arg.Vals[1])
			cfg.Joined = append(cfg.Joined, Joined{Path: slices.Index(s.names, arg.Vals[0]), PSN: roce.PSN(n).Add(s.shift)})
		default: // a key of the policy
			k := keyOf(arg.Key)
			if k == nil {
				d.Fatalf(t, "unknown argument %q", arg.Key)
			}
			if err := k.Set(&cfg.Policy, strings.Join(arg.Vals, " ")); err != nil {
				d.Fatalf(t, "%s: %v", arg.Key, err)
			}
		}
	}
	cfg.Paths, cfg.Weights = len(s.names), s.weights
	s.g = New(cfg)
	if needed != "" {
		s.g.Need(slices.Index(s.names, needed))
	}
	for _, name := range sharing {
		s.g.Share(slices.Index(s.names, name), true)
	}
	if source != "" {
		s.g.Away(slices.Index(s.names, source), beside)
	}
	s.g.Relay(relayed)
}

// keyOf returns the key with this name, or nil.
func keyOf(name string) *Key {
	if i := slices.IndexFunc(Keys, func(k Key) bool { return k.Name == name }); i >= 0 {
		return &Keys[i]
	}
	return nil
}

func (s *story) line(t *testing.T, d *datadriven.TestData, line string) {
	word := strings.Fields(line)
	switch word[0] {
	case "data":
		for _, span := range word[1:] {
			s.data(span)
		}
	case "wait":
		d, err := time.ParseDuration(word[1])
		if err != nil {
			panic(err)
		}
		s.tell()
		s.now += Tick(d)
		s.play(line, Event{Kind: Timer})
	case "share", "unshare":
		s.g.Share(slices.Index(s.names, word[1]), word[0] == "share")
	case "lost":
		s.play(line, Event{Kind: Lost, PSN: s.psn(word[1])})
	case "members":
		s.members(word[1:])
		s.play(line, Event{Kind: Timer})
	case "source":
		if !s.source(line, word[1:]) {
			return
		}
		s.play(line, Event{Kind: Timer})
	case "ask":
		s.tell()
		s.acts = s.g.Ask(s.now, s.switchOf(word[1:]), s.acts[:0])
		note := "nobody"
		for _, a := range s.acts {
			if a.Kind != Question {
				continue
			}
			if note == "nobody" {
				note = ""
			}
			note += fmt.Sprintf(" %s %s", s.names[a.Path], s.show24(a.PSN))
		}
		fmt.Fprintf(&s.out, "%s: %s", line, s.said(strings.TrimSpace(note)))
	case "read":
		s.play(line, Event{Kind: Refuse, PSN: s.psn(word[1]), Syndrome: roce.NAKInvalidRequest})
	case "write": // to memory that the group does not have; ! asks for an ACK
		psn, asks := strings.CutSuffix(word[1], "!")
		s.play(line, Event{Kind: Refuse, PSN: s.psn(psn), Syndrome: roce.NAKRemoteAccess, AckReq: asks})
	default:
		s.play(line, s.response(t, d, word))
	}
}

// add adds a receiver: b, or b*3 for a path that stands for three.
func (s *story) add(v string, weight uint16) {
	name, number, more := strings.Cut(v, "*")
	if more {
		n, _ := strconv.Atoi(number)
		weight = uint16(n)
	}
	s.names, s.weights = append(s.names, name), append(s.weights, weight)
}

// members takes b (stays), b*2 (stays, and stands for two now), +e (joins), +~e (joins later), ~e
// (stays, and joins later), -a (leaves).
func (s *story) members(words []string) {
	names, weights := s.names, s.weights
	var from []int
	var parts []Part
	s.names, s.weights = nil, nil
	for _, w := range words {
		if strings.HasPrefix(w, "-") {
			continue
		}
		w, joins := strings.CutPrefix(w, "+")
		w, waits := strings.CutPrefix(w, "~")
		part := PartActive
		if waits {
			part = PartWaiting
		}
		name, _, _ := strings.Cut(w, "*")
		if old := slices.Index(names, name); joins {
			s.add(w, 1)
			from = append(from, -1)
		} else {
			s.add(w, weights[old])
			from = append(from, old)
		}
		parts = append(parts, part)
	}
	weights, s.weights = s.weights, weights
	names, s.names = s.names, names
	s.tell() // of the old paths
	s.names, s.weights = names, weights
	s.g.Rearrange(from, weights, parts)
}

// source makes another member the source, and reports whether it may be.
func (s *story) source(line string, words []string) (may bool) {
	h := s.switchOf(words[1:])
	h.PSN = s.psn(words[0])
	s.tell()
	if !s.g.MaySwitch(s.now, h) {
		claim := s.g.Claim
		if slices.Contains(words, "above") {
			claim = s.g.ClaimOf
		}
		s.acts = claim(s.now, s.acts[:0])
		fmt.Fprintf(&s.out, "%s: %s", line, s.said("blocked"))
		return false
	}
	s.acts = s.g.SwitchSource(h, s.acts[:0])
	for _, a := range s.acts {
		fmt.Fprintf(&s.out, "event: %s %v at %s\n", s.names[a.Path], a.Note, s.show24(a.PSN))
	}
	return true
}

func (s *story) switchOf(words []string) SourceSwitch {
	h := SourceSwitch{OldPath: -1, NewPath: -1}
	for _, w := range words {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "old":
			h.OldPath = slices.Index(s.names, value)
		case "away":
			h.NewPath = slices.Index(s.names, value)
		case "msn":
			n, _ := strconv.Atoi(value)
			h.Messages = roce.MSN(n)
		case "beside":
			h.Beside, _ = strconv.Atoi(value)
		case "asked":
			h.Asked = true
		case "lacks":
			h.Lacks = true
		case "left":
			h.Left = true
		}
	}
	return h
}

// data plays 100, 100! or 100-103!, of which only the last packet asks for an ACK. A span is a
// message; +100 is a packet inside one.
func (s *story) data(span string) {
	span, inside := strings.CutPrefix(span, "+")
	text, ask := strings.CutSuffix(span, "!")
	from, to := text, text
	if i := strings.LastIndex(text, "-"); i > 0 { // -5 is a PSN
		from, to = text[:i], text[i+1:]
	}
	var run []string // packets of the span with the same outcome, which is printed once
	note := ""
	flush := func() {
		switch len(run) {
		case 0:
			return
		case 1:
			fmt.Fprintf(&s.out, "data %s: %s", run[0], note)
		default:
			fmt.Fprintf(&s.out, "data %s-%s: %s", run[0], run[len(run)-1], note)
		}
		run = nil
	}
	for p, last := s.psn(from), s.psn(to); !p.After(last); p = p.Next() {
		n := s.step(Event{
			Kind: Data, PSN: p, AckReq: ask && p == last,
			First: !inside && p == s.psn(from), Last: !inside && p == last,
		})
		if n != note || strings.Count(n, "\n") > 1 {
			flush()
		}
		note, run = n, append(run, s.show24(p))
	}
	flush()
}

func (s *story) response(t *testing.T, d *datadriven.TestData, word []string) Event {
	ev := Event{Kind: Response, Path: -1}
	if len(word) > 2 {
		ev.PSN = s.psn(word[2])
	}
	for i, name := range s.names {
		if name == word[0] {
			ev.Path = i
		}
	}
	if ev.Path < 0 {
		d.Fatalf(t, "no receiver %q", word[0])
	}
	switch word[1] {
	case "cnp":
		ev.Kind = CNP
		return ev
	case "ack":
		ev.Syndrome = roce.SyndromeUnlimited
	case "nak":
		ev.Syndrome = roce.NAKSequence
	case "rnr":
		ev.Syndrome = roce.SyndromeRNR(0)
	case "fatal":
		ev.Syndrome = map[string]roce.Syndrome{
			"invalid": roce.NAKInvalidRequest, "access": roce.NAKRemoteAccess, "operational": roce.NAKRemoteOperational,
		}[word[3]]
	default:
		d.Fatalf(t, "no answer %q", word[1])
	}
	for _, option := range word[3:] {
		key, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "msn":
			ev.MSN = roce.MSN(n)
		case "credits":
			ev.Syndrome = roce.SyndromeACK(roce.CreditCodeFor(uint32(n)))
		case "nobody":
			ev.Nobody = true
		case "timer":
			ev.Syndrome = roce.SyndromeRNR(roce.RNRTimer(n))
		case "mig":
			ev.MigReq = true
		}
	}
	return ev
}

func (s *story) play(line string, ev Event) {
	fmt.Fprintf(&s.out, "%s: %s", line, s.step(ev))
}

// step says what an event did: its outcome in one line, and one line for each action but copies.
func (s *story) step(ev Event) string {
	if copies, ok := s.carry(ev); ok {
		return "forwarded to " + strings.Join(copies, ",") + "\n"
	}
	if said, ok := s.merge(ev); ok {
		return said
	}
	s.tell()
	if s.trains && ev.Kind == Data && ev.PSN == s.g.NextPSN() && s.g.Plain() > 0 && !ev.PSN.After(s.g.Horizon()) {
		train := Event{Kind: Train, PSN: ev.PSN.Prev()}
		train.Add(ev.AckReq, ev.Last)
		ev = train
	}
	var outcome Outcome
	s.acts, outcome = s.g.Step(s.now, ev, s.acts[:0])
	if len(s.acts) > MaxActions(len(s.names)) {
		panic("Step appended more actions than MaxActions")
	}
	return s.said(outcome.String()) + s.questions()
}

// questions says which receivers are asked what they have, without a wish of another member.
func (s *story) questions() (said string) {
	for _, a := range s.acts {
		if a.Kind == Question {
			said += fmt.Sprintf("  asked by %s: %s\n", s.show24(a.PSN), s.names[a.Path])
		}
	}
	return said
}

// said says what the actions are that came with an outcome.
func (s *story) said(note string) string {
	var said, copies []string
	for i, a := range s.acts {
		switch a.Kind {
		case Repair:
			said = s.repair(said, i)
		case Copy:
			copies = append(copies, s.names[a.Path])
		case Reply:
			if a.Syndrome.IsACK() != (a.Cause == 0) {
				panic(fmt.Sprintf("%v has the cause %v", a.Syndrome, a.Cause))
			}
			s.causes[a.Cause]++
			said = append(said, "  to source: "+s.reply(a))
		case PassCNP:
			said = append(said, "  to source: CNP")
		case Join:
			said = append(said, fmt.Sprintf("  %s joins at %s, msn %d", s.names[a.Path], s.show24(a.PSN), a.MSN))
		case Notice:
			text := fmt.Sprintf("  event: %s %v at %s", s.names[a.Path], a.Note, s.show24(a.PSN))
			if a.Syndrome != 0 {
				text += fmt.Sprintf(" (%v)", a.Syndrome)
			}
			said = append(said, text)
		}
	}
	if len(copies) > 0 {
		note += " to " + strings.Join(copies, ",")
	}
	return strings.Join(append([]string{note}, said...), "\n") + "\n"
}

// repair says that action i sends a retained packet. A run of packets to one path is one line.
func (s *story) repair(said []string, i int) []string {
	a, text := s.acts[i], ""
	if i > 0 {
		if was := s.acts[i-1]; was.Kind == Repair && was.Path == a.Path && was.PSN.Next() == a.PSN && !was.AckReq {
			text, _, _ = strings.Cut(said[len(said)-1], "-")
			said = said[:len(said)-1]
			text += "-" + s.show24(a.PSN)
		}
	}
	if text == "" {
		text = fmt.Sprintf("  repair to %s: %s", s.names[a.Path], s.show24(a.PSN))
	}
	if a.AckReq {
		text += "!"
	}
	return append(said, text)
}

// carry lets the engine take a packet, if it may, and returns the paths that get a copy. With a
// quorum it takes none: the group would believe fewer NAKs than without an engine (rule 9). With
// repair it takes none: the group has more patience with what an engine carried.
func (s *story) carry(ev Event) (copies []string, ok bool) {
	next, u := s.g.NextPSN(), &s.untold
	if u.Kind == Carried {
		next = u.PSN.Next()
	}
	if repairs := s.g.policy.repairs(); !s.engine || repairs || ev.Kind != Data || ev.PSN != next || s.g.policy.Ack != AckAll || s.g.Plain() == 0 || ev.PSN.After(s.g.Horizon()) {
		return nil, false
	}
	u.Kind, u.PSN, u.Last = Carried, ev.PSN, ev.Last
	if ev.Last {
		u.MSN++
	}
	for i, name := range s.names {
		if s.g.Part(i) == PartActive {
			copies = append(copies, name)
		}
	}
	s.carried++
	return copies, true
}

// merge lets the engine take an answer, if it may, and returns what the group would have said.
func (s *story) merge(ev Event) (said string, ok bool) {
	next := s.g.NextPSN()
	if s.untold.Kind == Carried {
		next = s.untold.PSN.Next()
	}
	if mig, may := s.g.MayMerge(); !s.engine || ev.Kind != Response || !ev.Syndrome.IsACK() || !may || s.g.AcksDecide() || ev.MigReq != mig ||
		s.g.Plain() == 0 || s.g.Part(ev.Path) != PartActive || !ev.PSN.Before(next) {
		return "", false
	}
	if !s.merges {
		told, _ := s.g.Told()
		s.merges, s.merger = true, merger.Merger[Progress]{Told: told}
		for i := range s.g.paths {
			if s.g.Part(i) == PartActive {
				s.merger.At = append(s.merger.At, s.g.Progress(i))
			}
		}
	}
	entry := 0
	for i := range s.g.paths[:ev.Path] {
		if s.g.Part(i) == PartActive {
			entry++
		}
	}
	outcome := Absorbed
	switch at := s.merger.At[entry].PSN; {
	case ev.PSN.Before(at):
		outcome = Stale
	case ev.PSN == at:
		outcome = Duplicate
	}
	tells, taken := s.merger.ACK(entry, Progress{ev.PSN, ev.MSN})
	switch told := s.merger.Told; {
	case !taken:
		return "", false
	case tells:
		s.merged++
		return fmt.Sprintf("%v\n  to source: %s\n", Merged, s.reply(Action{
			PSN: told.PSN, MSN: told.MSN, Syndrome: roce.SyndromeUnlimited, MigReq: ev.MigReq,
		})), true
	}
	return outcome.String() + "\n", true
}

// tell tells the group what the engine has carried and merged, which has to cause nothing.
func (s *story) tell() {
	if s.untold.Kind == Carried {
		if acts, _ := s.g.Step(s.now, s.untold, nil); len(acts) > 0 {
			fmt.Fprintf(&s.out, "what was carried causes %+v\n", acts)
		}
		s.untold = Event{}
	}
	if !s.merges {
		return
	}
	s.merges = false
	var at []Answered
	for i := range s.g.paths {
		if s.g.Part(i) == PartActive {
			at = append(at, Answered{i, s.merger.At[len(at)]})
		}
	}
	if acts := s.g.Answered(s.now, at, s.merger.Told, nil); len(acts) > 0 {
		fmt.Fprintf(&s.out, "what was merged causes %+v\n", acts)
	}
}

func (s *story) reply(a Action) string {
	kind := a.Syndrome.String()
	if a.Syndrome == roce.SyndromeUnlimited {
		kind = "ACK"
	} else if n, limited := a.Syndrome.CreditCode().Credits(); a.Syndrome.IsACK() && limited {
		kind = fmt.Sprintf("ACK (%d credits)", n)
	}
	text := fmt.Sprintf("%s %s", kind, s.show24(a.PSN))
	if a.MSN != 0 {
		text += fmt.Sprintf(" msn %d", a.MSN)
	}
	if a.MigReq {
		text += " mig"
	}
	if a.Nobody {
		text += ", nobody is left"
	}
	return text
}

// show ends a block with where every path and the source stand.
func (s *story) show() string {
	s.tell()
	g := s.g
	for i := range g.paths {
		p := &g.paths[i]
		place := s.show24(p.acked)
		switch p.part {
		case PartActive:
		case PartUnknown:
			place = "?"
		case PartJoining, PartWaiting:
			place = p.part.String()
		default:
			place += " " + p.part.String()
		}
		fmt.Fprintf(&s.out, "%s %s", s.names[i], place)
		if p.pending != 0 {
			fmt.Fprintf(&s.out, " pending %v", p.pending)
		}
		s.showLeg(i)
		s.out.WriteString("   ")
	}
	if g.policy.repairs() {
		fmt.Fprintf(&s.out, "| oldest %s ", s.show24(g.Oldest()))
		if g.Waiting() {
			s.out.WriteString("waiting ")
		}
	}
	fmt.Fprintf(&s.out, "| sent %s pos %s merged %s\n", s.show24(g.source.sent), s.show24(g.source.pos), s.show24(g.merged.psn))
	text := s.out.String()
	s.out.Reset()
	return text
}

// showLeg shows where the repair of path i is, and whether its timer runs.
func (s *story) showLeg(i int) {
	if !s.g.policy.repairs() {
		return
	}
	l := &s.g.legs[i]
	if l.state != legDirect {
		states := [...]string{legRepairing: "fed", legProbing: "probed", legResting: "rests"}
		fmt.Fprintf(&s.out, " %s at %s", states[l.state], s.show24(l.cursor))
	}
	if l.running {
		fmt.Fprintf(&s.out, " timer %v", time.Duration(max(0, l.due-s.now)))
	}
}

func (s *story) psn(text string) roce.PSN {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return roce.PSN(n & 0xFFFFFF).Add(s.shift)
}

func (s *story) show24(p roce.PSN) string {
	return strconv.Itoa(int(p.Add(-s.shift).Sub(0)))
}
