package hosts

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rocast/rocast/ctl/api"
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
	host, err := gather.NewHost(addr(ip), asks(ip, role, members))
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

// Acts that need the turn of a name keep it; whatever may take long, or belongs to another group,
// ends it.
func TestWhatKeepsTheTurn(t *testing.T) {
	keeps := map[do]bool{look: true, read: true, change: true, confirm: true, remove: true, made: true}
	for d := begin; d <= outwait; d++ {
		if d.keepsTurn() != keeps[d] {
			t.Errorf("%d: %v", d, d.keepsTurn())
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
