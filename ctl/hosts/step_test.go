package hosts

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/gather"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/roce"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// play is a desk whose tasks are carried out one step at a time, by hand.
type play struct {
	t    *testing.T
	desk desk
	now  time.Time
	met  []netip.Addr // whose bound was met
}

func newPlay(t *testing.T) *play {
	p := &play{t: t, now: noon}
	p.desk = newDesk("b1", 99, func(h netip.Addr) { p.met = append(p.met, h) })
	return p
}

// joins begins the question of a host that has seen a version.
func (p *play) joins(ip, role, seen string, members int) *task {
	p.t.Helper()
	host, err := gather.NewHost(addr(ip), ctltest.HostAsks(ip, role, members))
	if err != nil {
		p.t.Fatal(err)
	}
	return &task{name: "g1", ip: addr(ip), host: host, groupIP: addr("10.77.0.200"), seen: seen, then: p.desk.joins}
}

// step returns what a task does after an event.
func (p *play) step(t *task, e event) act { return p.desk.step(p.now, t, e) }

// does checks what a task does after an event.
func (p *play) does(t *task, e event, want do) act {
	p.t.Helper()
	a := p.step(t, e)
	if a.do != want {
		p.t.Fatalf("%v does %d (%+v, %v), want %d", t.ip, a.do, a.group, a.err, want)
	}
	return a
}

func (p *play) says(t *task, want ...string) {
	p.t.Helper()
	var got []string
	for _, s := range t.says {
		got = append(got, s.message)
	}
	if t.says = nil; strings.Join(got, "; ") != strings.Join(want, "; ") {
		p.t.Errorf("%v says %q, want %q", t.ip, got, want)
	}
}

// none is the outcome of a look where there is no group.
var none = event{err: api.Errorf(api.NotFound, "there is no group")}

// group returns a group of a text.
func (p *play) group(text string) *kept {
	p.t.Helper()
	file, err := groupfile.Parse([]byte(text))
	if err != nil {
		p.t.Fatal(err)
	}
	return &kept{file: file, confirmed: map[groupfile.ID]bool{}}
}

func (g *kept) seen() *Group { d := g.describe(g.file.Name); return &d }

// Two hosts make a group. The one that waits looks at the group when it was made.
func TestStepsOfTwoHostsThatMakeAGroup(t *testing.T) {
	p := newPlay(t)
	one := p.joins("10.77.0.1", "source", "", 2)
	p.does(one, event{}, look)
	p.does(one, none, enter)
	a := p.does(one, event{}, answer)
	if a.group.State != api.HostGathering || len(a.group.Came) != 1 {
		t.Errorf("%+v", a.group)
	}
	one = p.joins("10.77.0.1", "source", a.group.Version, 2)
	p.does(one, event{}, look)
	p.does(one, none, enter)
	over := p.does(one, event{}, wait).over

	two := p.joins("10.77.0.2", "receiver", "", 2)
	p.does(two, event{}, look)
	p.does(two, none, enter)
	party := p.does(two, event{}, choose).party
	created := p.does(two, event{first: party.Hosts[0], rkey: 0x77, taken: map[roce.QPN]bool{100: true}}, create)
	g := p.group(string(created.text))
	if g.file.QPN != 101 || g.file.Memory[0].RKey != 0x74 { // the R_Keys of all regions differ in the lowest bits alone
		t.Errorf("QPN %d, R_Key %#x", g.file.QPN, g.file.Memory[0].RKey)
	}
	select {
	case <-over:
		t.Error("the group is not there yet")
	default:
	}
	b := p.does(two, event{group: g.seen()}, answer)
	p.says(two, "created by hosts")
	<-over
	p.does(one, event{}, look)
	if a := p.does(one, event{group: g.seen()}, answer); a.group.Version != b.group.Version || a.group.State != api.HostRunning || a.group.Members[1].Port != 7002 {
		t.Errorf("%+v", a.group)
	}
}

// A group comes into being between a host's look and its coming: it looks again, and does not wait.
func TestStepsOfAHostThatComesWhileItsGroupBegins(t *testing.T) {
	p := newPlay(t)
	one := p.joins("10.77.0.1", "source", "", 2)
	p.does(one, event{}, look)
	p.does(one, none, enter)
	p.does(one, event{isThere: true}, look)
	if p.desk.hall.Party("g1") != nil {
		t.Error("it waits for hosts")
	}
}

// What ends a question that waits: its time, or that the host hangs up, with which the host goes.
func TestStepsOfQuestionsThatEnd(t *testing.T) {
	for _, hungUp := range []bool{false, true} {
		p := newPlay(t)
		one := p.joins("10.77.0.1", "source", "it has seen", 2)
		p.does(one, event{}, look)
		p.does(one, none, enter)
		p.does(one, event{}, wait)
		if a := p.does(one, event{isOver: true, hungUp: hungUp}, answer); a.group.State != api.HostGathering || a.err != nil {
			t.Errorf("%+v, %v", a.group, a.err)
		}
		if waits := p.desk.hall.Party("g1") != nil; waits == hungUp {
			t.Errorf("hung up %v, and it waits: %v", hungUp, waits)
		}
	}
}

// A member follows its group until that is another one than it has seen, and its program counts as
// asking meanwhile. When the group has ended it looks again.
func TestStepsOfAMemberThatFollowsItsGroup(t *testing.T) {
	p := newPlay(t)
	g := p.group(anotherGroup("g1", 1) + "hosts: true\n")
	g.file.Source.QPN, g.file.Source.FirstPSN = 100, 1
	version := p.desk.describe(g.seen()).Version
	one := p.joins("10.77.0.1", "source", version, 2)
	p.does(one, event{}, look)
	a := p.does(one, event{group: g.seen()}, answer)
	if a.group.Version == version {
		t.Error("the port of a program that has asked is not told")
	}
	one = p.joins("10.77.0.1", "source", a.group.Version, 2)
	p.does(one, event{}, look)
	p.does(one, event{group: g.seen()}, follow)
	p.does(one, event{group: g.seen()}, follow)
	if program := p.desk.programs["g1"][addr("10.77.0.1")]; program.asks != 1 || len(p.desk.silentPrograms(noon.Add(time.Hour), []Known{{Name: "g1"}})) != 0 {
		t.Errorf("%+v", program)
	}
	p.now = noon.Add(time.Minute)
	p.does(one, none, look)
	if program := p.desk.programs["g1"][addr("10.77.0.1")]; program.asks != 0 || program.last != p.now || program.hungUp {
		t.Errorf("%+v", program)
	}
	p.does(one, event{group: g.seen()}, follow)
	p.does(one, event{group: g.seen(), isOver: true, hungUp: true}, answer)
	if program := p.desk.programs["g1"][addr("10.77.0.1")]; program.asks != 0 || !program.hungUp {
		t.Errorf("%+v", program)
	}
	if late := p.desk.silentPrograms(p.now.Add(gather.Patience+1), []Known{{Name: "g1"}}); len(late) != 1 {
		t.Errorf("%+v", late)
	}
}

// A program takes the place of another one of its host while the group is being created: it waits
// for that, reads the group anew, is taken out, reads again and comes in.
func TestStepsOfAProgramThatReplacesAnother(t *testing.T) {
	p := newPlay(t)
	g := p.group(anotherGroup("g1", 1) + "hosts: true\n")
	two := p.joins("10.77.0.2", "receiver", "", 3)
	p.does(two, event{}, look)
	p.does(two, event{group: g.seen()}, read)
	closed := p.joins("10.77.0.8", "both", "", 2)
	p.does(closed, event{}, look)
	p.does(closed, none, enter)
	p.does(closed, event{}, answer)
	last := p.joins("10.77.0.9", "both", "", 2)
	p.does(last, event{}, look)
	p.does(last, none, enter)
	p.does(last, event{}, choose)

	p.does(two, event{file: g.file, from: 1}, made)
	p.does(two, event{}, read)
	out := p.does(two, event{file: g.file, from: 2}, change)
	if without := p.group(string(out.text)); out.from != 2 || len(without.file.Receivers) != 1 || without.file.Receivers[0].IP != addr("10.77.0.3") {
		t.Errorf("from %v: %s", out.from, out.text)
	}
	g = p.group(string(out.text))
	p.does(two, event{group: g.seen()}, read)
	p.says(two, "a host has left")
	in := p.does(two, event{file: g.file, from: 3}, change)
	g = p.group(string(in.text))
	if m := g.file.Receivers[1]; in.from != 3 || m.IP != addr("10.77.0.2") || m.QPN != 200 || !m.Confirm || m.RemoteQPN != g.file.QPN {
		t.Errorf("from %v: %+v", in.from, m)
	}
	p.does(two, event{group: g.seen()}, answer)
	p.says(two, "a host has joined")
}

// The outcome of each act that fails is the answer, and the desk remembers nothing that is not so.
func TestStepsThatFail(t *testing.T) {
	failed := api.Errorf(api.Unavailable, "it cannot be done")
	g := newPlay(t).group(anotherGroup("g1", 1) + "hosts: true\n")
	file := event{file: g.file}
	for name, c := range map[string]struct {
		ip, role string
		events   []event
	}{
		"the turn":               {"10.77.0.9", "receiver", []event{{}}},
		"reading":                {"10.77.0.9", "receiver", []event{{}, {group: g.seen()}}},
		"coming in":              {"10.77.0.9", "receiver", []event{{}, {group: g.seen()}, file}},
		"reading before leaving": {"10.77.0.2", "receiver", []event{{}, {group: g.seen()}, file}},
		"leaving":                {"10.77.0.2", "receiver", []event{{}, {group: g.seen()}, file, file}},
		"reading after leaving":  {"10.77.0.2", "receiver", []event{{}, {group: g.seen()}, file, file, {}}},
		"another look":           {"10.77.0.9", "receiver", []event{{}, {group: &Group{}}}},
	} {
		p := newPlay(t)
		task := p.joins(c.ip, c.role, "", 3)
		for i, e := range c.events {
			if a := p.step(task, e); a.do == answer {
				t.Fatalf("%s: answered at event %d: %v", name, i, a.err)
			}
		}
		task.says = nil
		if a := p.does(task, event{err: failed}, answer); a.err == nil || a.err.Error() != failed.Error() {
			t.Errorf("%s: %v", name, a.err)
		}
		if p.says(task); len(p.desk.programs) != 0 {
			t.Errorf("%s: it knows %v", name, p.desk.programs)
		}
	}
}

// A host that leaves while its group is created leaves when that is over. One that only waited has
// left, unless it is a member of a group of that name that has come by another way.
func TestStepsOfHostsThatLeave(t *testing.T) {
	p := newPlay(t)
	leaves := func() *task {
		return &task{name: "g1", ip: addr("10.77.0.2"), then: p.desk.leaves(p.desk.leavesAlone)}
	}
	comes := func(members int) *task {
		two := p.joins("10.77.0.2", "receiver", "", members)
		p.does(two, event{}, look)
		p.does(two, none, enter)
		return two
	}
	p.does(comes(3), event{}, answer)
	if a := p.does(leaves(), event{}, answer); a.err != nil || p.desk.hall.Party("g1") != nil {
		t.Errorf("%v", a.err)
	}
	other := p.group(anotherGroup("g1", 1))
	p.does(comes(3), event{}, answer)
	two := leaves()
	p.does(two, event{isThere: true}, look)
	if a := p.does(two, event{group: other.seen()}, answer); a.err != nil {
		t.Errorf("it only waited: %v", a.err)
	}
	two = leaves()
	p.does(two, event{isThere: true}, look)
	if a := p.does(two, event{group: other.seen()}, answer); kindOf(a.err) != api.Forbidden {
		t.Errorf("it did not wait: %v", a.err)
	}
	one := p.joins("10.77.0.1", "source", "", 2)
	p.does(one, event{}, look)
	p.does(one, none, enter)
	p.does(one, event{}, answer)
	p.does(comes(2), event{}, choose)
	two = leaves()
	p.does(two, event{}, made)
	if a := p.does(two, event{err: fmt.Errorf("no time")}, answer); a.err == nil {
		t.Error("it has left a group that is being created")
	}
	two = leaves()
	p.does(two, event{}, made)
	p.does(two, event{}, look)
	if a := p.does(two, none, answer); kindOf(a.err) != api.NotFound {
		t.Errorf("%v", a.err)
	}
}

// Acts that need the lock of a name keep it; whatever may take long, or belongs to another group,
// ends it.
func TestWhatKeepsTheTurn(t *testing.T) {
	keeps := map[do]bool{look: true, read: true, change: true, confirm: true, remove: true, made: true}
	for d := begin; d <= outwait; d++ {
		if d.keepsLock() != keeps[d] {
			t.Errorf("%d: %v", d, d.keepsLock())
		}
	}
}

// The QPNs go round, and leave out those of management and those that are taken.
func TestFreeQPNs(t *testing.T) {
	p := newPlay(t)
	p.desk.qpn = maxHostQPN - 1
	for _, want := range []roce.QPN{maxHostQPN, 3, 4} {
		if got := p.desk.freeQPN(map[roce.QPN]bool{2: true}); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
}

// ready begins the question of a member that says that its QP is ready.
func (p *play) ready(ip, role string, qpn uint32, seen string) *task {
	t := p.joins(ip, role, seen, 3)
	t.host.Ready, t.host.QPN = true, qpn
	return t
}

// A receiver that is ready confirms so. A source has nothing to confirm.
func TestStepsOfMembersThatAreReady(t *testing.T) {
	p := newPlay(t)
	g := p.group(strings.ReplaceAll(anotherGroup("g1", 1), "psn: 5,", "psn: 2, confirm: true,") + "hosts: true\n")
	g.file.Source.FirstPSN = 1
	one, two := p.ready("10.77.0.1", "source", 117, ""), p.ready("10.77.0.2", "receiver", 118, "")
	p.does(one, event{}, look)
	p.does(one, event{group: g.seen()}, answer)
	p.does(two, event{}, look)
	if a := p.does(two, event{group: g.seen()}, confirm); string(a.text) != `{"ip":"10.77.0.2","qpn":118,"state":"RTS","psn":2}` {
		t.Errorf("%s", a.text)
	}
	if a := p.does(two, event{group: g.seen()}, answer); a.err != nil || a.group.Members[1].Port != 7002 {
		t.Errorf("%+v, %v", a.group, a.err)
	}
	// A program with another queue pair answers at another port, so this one is not told.
	g.file.Receivers[0].QPN++
	if a := p.desk.describe(g.seen()); a.Members[1].Port != 0 {
		t.Errorf("%+v", a.Members)
	}
}

// A member whose group has ended hears why, wherever it is noticed that the group is gone. If it
// has heard so, its question waits.
func TestStepsOfMembersThatAreLeft(t *testing.T) {
	p := newPlay(t)
	g := p.group(strings.ReplaceAll(anotherGroup("g1", 1), "psn: 5,", "psn: 2, confirm: true,") + "hosts: true\n")
	ends := func() { p.desk.keepEnded(p.now, g.seen(), addr("10.77.0.1")) }
	gone := api.Errorf(api.NotFound, "there is no group")
	for name, events := range map[string][]event{
		"at the first look":    {{}, {err: gone}},
		"at its confirmation":  {{}, {group: g.seen()}, {err: gone}},
		"its QP is another":    {{}, {group: p.group(strings.Replace(anotherGroup("g1", 7), "psn: 5", "psn: 2", 1) + "hosts: true\n").seen()}},
		"while it follows one": {{}, {group: g.seen()}, {group: g.seen()}, {err: gone}, {err: gone}},
	} {
		two := p.ready("10.77.0.2", "receiver", 118, p.desk.describe(g.seen()).Version)
		if name == "while it follows one" { // with the port that it is about to say
			p.desk.know(p.now, "g1", two.host)
			two.seen = p.desk.describe(g.seen()).Version
		}
		ends()
		var a act
		for _, e := range events {
			a = p.step(two, e)
		}
		if a.do != answer || a.group.State != api.HostEnded || a.err != nil {
			t.Errorf("%s: does %d: %+v, %v", name, a.do, a.group, a.err)
		}
		again := p.ready("10.77.0.2", "receiver", 118, a.group.Version)
		p.does(again, event{}, look)
		p.does(again, none, outwait)
		if b := p.does(again, event{isOver: true}, answer); b.group.Version != a.group.Version {
			t.Errorf("%s: %+v", name, b.group)
		}
	}
	p.now = p.now.Add(keepLeft + 1)
	two := p.ready("10.77.0.2", "receiver", 118, "")
	p.does(two, event{}, look)
	if a := p.does(two, none, answer); kindOf(a.err) != api.NotFound {
		t.Errorf("long after that: %+v, %v", a.group, a.err)
	}
}

// A question that follows a group ends with an error, and its program asks no more.
func TestStepsOfAGroupThatCannotBeFollowed(t *testing.T) {
	p := newPlay(t)
	g := p.group(anotherGroup("g1", 1) + "hosts: true\n")
	g.file.Source.FirstPSN = 1
	one := p.ready("10.77.0.1", "source", 117, "")
	p.desk.know(p.now, "g1", one.host)
	one.seen = p.desk.describe(g.seen()).Version
	p.does(one, event{}, look)
	p.does(one, event{group: g.seen()}, follow)
	if a := p.does(one, event{err: fmt.Errorf("it cannot be seen")}, answer); a.err == nil || p.desk.programs["g1"][addr("10.77.0.1")].asks != 0 {
		t.Errorf("%v, %+v", a.err, p.desk.programs["g1"][addr("10.77.0.1")])
	}
}

// A group ends with the member that is the source now, with the one that was so first, and with the
// last one that listens; it goes on without any other one.
func TestStepsOfAGroupThatEndsWithAMember(t *testing.T) {
	const sends = `name: g1
ip: 10.77.0.100
qpn: 1
mtu: 1024
hosts: end
memory: []
members:
  - {ip: 10.77.0.1, qpn: 11, psn: 1, sendPSN: 5, role: both}
  - {ip: 10.77.0.2, qpn: 12, psn: 2, sendPSN: 6, role: both}
  - {ip: 10.77.0.3, qpn: 13, psn: 3}
`
	for name, c := range map[string]struct {
		ip, source string // who leaves, and who is the source now
		text       string
		want       do
	}{
		"the first source":  {"10.77.0.1", "10.77.0.2", sends, look},
		"the source":        {"10.77.0.2", "10.77.0.2", sends, look},
		"another member":    {"10.77.0.2", "10.77.0.1", sends, change},
		"the last receiver": {"10.77.0.3", "10.77.0.1", strings.Replace(sends, "  - {ip: 10.77.0.2, qpn: 12, psn: 2, sendPSN: 6, role: both}\n", "", 1), look},
	} {
		p := newPlay(t)
		g := p.group(c.text)
		seen := g.seen()
		for i := range seen.Members {
			if seen.Members[i].Part = ""; seen.Members[i].IP == c.source {
				seen.Members[i].Part = api.PartSource
			}
		}
		leaves := &task{name: "g1", ip: addr(c.ip), then: p.desk.leaves(p.desk.leavesAlone)}
		p.does(leaves, event{isThere: true}, look)
		p.does(leaves, event{group: seen}, read)
		a := p.step(leaves, event{file: g.file, from: "basis"})
		if a.do != c.want {
			t.Errorf("%s: does %d, want %d", name, a.do, c.want)
			continue
		}
		if c.want == look {
			a = p.does(leaves, event{group: seen}, remove)
		}
		if a.from != "basis" {
			t.Errorf("%s: what another one has changed meanwhile is changed too", name)
		}
		if a := p.does(leaves, event{err: fmt.Errorf("it cannot be done")}, answer); a.err == nil {
			t.Errorf("%s: it has left", name)
		}
		p.says(leaves)
		if len(p.desk.ended) > 0 {
			t.Errorf("%s: others hear that the group has ended", name)
		}
	}
}

// A group ends for all because a member that sends says so. If it cannot be removed, nobody hears
// that it has ended.
func TestStepsOfAGroupThatAMemberEnds(t *testing.T) {
	for name, failed := range map[string]error{"it ends": nil, "it cannot": fmt.Errorf("it cannot be done")} {
		for _, tell := range []bool{true, false} {
			p := newPlay(t)
			g := p.group(anotherGroup("g1", 1) + "hosts: end\n")
			ends := &task{name: "g1", ip: addr("10.77.0.1"), then: p.desk.leaves(p.desk.endsAll(tell))}
			p.does(ends, event{isThere: true}, look)
			p.does(ends, event{group: g.seen()}, read)
			if a := p.does(ends, event{file: g.file, from: "basis"}, remove); a.from != "basis" {
				t.Errorf("%s: a group that another one has made meanwhile would go too", name)
			}
			told := tell && failed == nil
			if a := p.does(ends, event{err: failed}, answer); a.err != failed || told != (p.desk.ended["g1"] != nil) {
				t.Errorf("%s, tell %v: %v, told %v", name, tell, a.err, p.desk.ended)
			}
			if told {
				p.says(ends, "a host has ended its group")
			} else {
				p.says(ends)
			}
		}
	}
}

// A member whose program has gone is removed. It stays if the program asks again meanwhile, if
// another program of the host has come, or where hosts may not change the group.
func TestStepsOfAProgramThatHasGone(t *testing.T) {
	theirs := anotherGroup("g1", 1) + "hosts: true\n"
	for name, c := range map[string]struct {
		text      string
		qpn, psn  uint32 // of the program
		meanwhile func(p *play, s *silent)
		want      do
		forgotten bool
	}{
		"it has gone":                {theirs, 118, 5, nil, read, false},
		"it asks again":              {theirs, 118, 5, func(_ *play, s *silent) { s.program.asks++ }, answer, false},
		"another one has come":       {theirs, 118, 5, func(p *play, _ *silent) { p.desk.know(p.now, "g1", p.ready("10.77.0.2", "receiver", 119, "").host) }, answer, false},
		"the member has another QP":  {theirs, 119, 5, nil, answer, true},
		"it has another first PSN":   {theirs, 118, 6, nil, answer, true},
		"the group is an operator's": {anotherGroup("g1", 1), 118, 5, nil, answer, false},
	} {
		p := newPlay(t)
		g := p.group(c.text)
		host := p.ready("10.77.0.2", "receiver", c.qpn, "").host
		host.PSN = c.psn
		s := silent{group: "g1", host: host.IP, program: p.desk.know(p.now, "g1", host), port: 7002}
		gone := &task{name: "g1", ip: host.IP, then: p.desk.expires(s)}
		p.does(gone, event{}, look)
		if c.meanwhile != nil {
			c.meanwhile(p, &s)
		}
		if a := p.step(gone, event{group: g.seen()}); a.do != c.want {
			t.Errorf("%s: does %d, want %d", name, a.do, c.want)
		}
		if (p.desk.programs["g1"][host.IP] == nil) != c.forgotten {
			t.Errorf("%s: the desk knows %v", name, p.desk.programs)
		}
	}
}

// A program that comes while the one before is taken out is not forgotten with that.
func TestStepsOfAProgramThatComesWhileAnotherGoes(t *testing.T) {
	p := newPlay(t)
	g := p.group(anotherGroup("g1", 1) + "hosts: true\n")
	host := p.ready("10.77.0.2", "receiver", 118, "").host
	host.PSN = 5
	gone := &task{name: "g1", ip: host.IP, then: p.desk.expires(silent{group: "g1", host: host.IP, program: p.desk.know(p.now, "g1", host), port: 7002})}
	p.does(gone, event{}, look)
	p.does(gone, event{group: g.seen()}, read)
	p.does(gone, event{file: g.file}, change)
	p.desk.know(p.now, "g1", p.ready("10.77.0.2", "receiver", 119, "").host)
	p.does(gone, event{group: g.seen()}, answer)
	if program := p.desk.programs["g1"][host.IP]; program == nil || program.qpn != 119 {
		t.Errorf("%+v", program)
	}
}

// A member that confirms at the last moment stays, and a part of another box's group is that box's.
func TestStepsOfMembersThatAreLateToConfirm(t *testing.T) {
	p := newPlay(t)
	g := p.group(strings.ReplaceAll(anotherGroup("g1", 1), "psn: 5,", "psn: 5, confirm: true,") + "hosts: end\n")
	known := []Known{{Name: "g1", File: g.file, Unconfirmed: g.unconfirmed()}}
	branch := []Known{{Name: "g1", File: g.file, Unconfirmed: g.unconfirmed(), IsBranch: true}}
	if late := p.desk.lateToConfirm(noon, known); len(late) != 0 {
		t.Errorf("%v", late)
	}
	late := p.desk.lateToConfirm(noon.Add(confirmWithin), known)
	if len(late) != 1 || late[0].member.IP != addr("10.77.0.2") {
		t.Fatalf("%v", late)
	}
	lapses := func() *task { return &task{name: "g1", ip: late[0].member.IP, then: p.desk.lapses(late[0])} }
	one := lapses()
	p.does(one, event{}, look)
	p.does(one, event{group: g.seen()}, read)
	p.says(one, "the program of a host has not said that its QP is ready, so its member is removed")
	g.confirmed[late[0].member] = true
	one = lapses()
	p.does(one, event{}, look)
	p.does(one, event{group: g.seen()}, answer)
	p.says(one)
	p.desk.lateToConfirm(noon, branch)
	if late := p.desk.lateToConfirm(noon.Add(confirmWithin), branch); len(late) != 0 {
		t.Errorf("of another box: %v", late)
	}
}

// Groups that ended long ago make room for another one.
func TestGroupsThatEndedLongAgoMakeRoom(t *testing.T) {
	p := newPlay(t)
	g := p.group(anotherGroup("g1", 1) + "hosts: true\n")
	for i := range maxLeft {
		p.desk.ended[fmt.Sprint("n", i)] = &endedGroup{at: noon}
	}
	p.desk.keepEnded(noon.Add(keepLeft), g.seen(), addr("10.77.0.1"))
	if len(p.desk.ended) != maxLeft || p.desk.ended["g1"] != nil {
		t.Errorf("there is no room: %d", len(p.desk.ended))
	}
	p.desk.keepEnded(noon.Add(keepLeft+1), g.seen(), addr("10.77.0.1"))
	if len(p.desk.ended) != 1 || p.desk.ended["g1"] == nil {
		t.Errorf("%d are kept", len(p.desk.ended))
	}
}
