package chronicle

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/feedback"
	"github.com/rocast/rocast/mft"
	"github.com/rocast/rocast/roce"
)

func id(ip string, qpn roce.QPN) groupfile.ID {
	return groupfile.ID{IP: netip.MustParseAddr(ip), RemoteQPN: qpn}
}

// The same chronicle has the same text, however its map is walked: by address, then by remote QPN.
func TestTheTextIsInOrder(t *testing.T) {
	ids := []groupfile.ID{id("10.0.0.1", 9), id("10.0.0.2", 3), id("10.0.0.2", 4), id("10.0.0.3", 1), id("10.0.0.3", 2)}
	const once = `10.0.0.1 9 10.0.0.2 3 10.0.0.2 4 10.0.0.3 1 10.0.0.3 2`
	const want = once + " " + once // those with a record, then those that have confirmed
	for range 50 {
		var c Chronicle
		for _, id := range ids {
			c.Out(id, Evicted, 5)
			c.Confirm(id)
		}
		text, err := c.Text()
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(strings.Trim(line, " ,\n"), ": "); key == `"ip"` || key == `"remoteQPN"` {
				words = append(words, strings.Trim(value, `"`))
			}
		}
		if got := strings.Join(words, " "); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// The members of a turn have an order too.
func TestTheTextOfATurnIsInOrder(t *testing.T) {
	a, b := mft.Standing{QP: mft.QP(id("10.0.0.1", 2)), Expects: 5}, mft.Standing{QP: mft.QP(id("10.0.0.1", 10)), Expects: 6}
	text := func(members ...mft.Standing) string {
		var c Chronicle
		c.Take(&mft.Turn{Members: members})
		text, err := c.Text()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if one, other := text(a, b), text(b, a); one != other || strings.Index(one, `"expects": 5`) > strings.Index(one, `"expects": 6`) {
		t.Errorf("%s\n%s", one, other)
	}
}

// Those who have joined in a turn come to what a group begins with, and not to the turn.
func TestATurnStaysAsItIs(t *testing.T) {
	var c Chronicle
	first, second := id("10.0.0.2", 1), id("10.0.0.3", 1)
	c.Came(first, 50)
	c.Came(second, 60)
	c.Take(&mft.Turn{First: mft.Sender{NextPSN: 100}, Members: make([]mft.Standing, 1, 3)}) // with room
	begins := func(ids ...groupfile.ID) *mft.Turn {
		f := &groupfile.File{}
		for _, id := range ids {
			f.Receivers = append(f.Receivers, groupfile.Member{IP: id.IP, RemoteQPN: id.RemoteQPN, FirstPSN: 7})
		}
		return c.Begins(f)
	}
	before := begins(first)
	if after := begins(second); len(before.Members) != 2 || before.Members[1].QP != mft.QP(first) || before.Members[1].Expects != 57 ||
		after.Members[1].QP != mft.QP(second) || after.Members[1].Expects != 47 || len(c.Turn.Members) != 1 {
		t.Errorf("%+v, %+v, %+v", before, after, c.Turn)
	}
}

// Routes change while the first source sends: members come from behind another box, and links are
// made anew. Who comes has had every packet, so its QP is as far as the source, and who has joined
// is where it joined. A source that is a link with another QP begins with its first packet.
func TestWhoComesInTheFirstTurn(t *testing.T) {
	came, joined, out := id("10.0.0.2", 1), id("10.0.0.3", 1), id("10.0.0.4", 1)
	f := &groupfile.File{Source: groupfile.Member{FirstPSN: 1000, Role: groupfile.Source}}
	for _, id := range []groupfile.ID{came, joined, out} {
		f.Receivers = append(f.Receivers, groupfile.Member{IP: id.IP, RemoteQPN: id.RemoteQPN, FirstPSN: 7, SendPSN: 9})
	}
	var c Chronicle
	c.Came(joined, 1100)
	c.Out(out, Evicted, 1050)
	turn := mft.Turn{First: mft.Sender{NextPSN: 1200, Messages: 20}}
	c.Renew(&turn)
	want := []mft.Standing{
		{QP: mft.QP(came), Expects: 207, Messages: 20, Sender: mft.Sender{NextPSN: 9}},
		{QP: mft.QP(joined), Expects: 107, Sender: mft.Sender{NextPSN: 9}},
	}
	if got := c.Begins(f); !slices.Equal(got.Members, want) || got.First != turn.First {
		t.Errorf("%+v, want %+v", got, want)
	}
	source := groupfile.Member{IP: came.IP, RemoteQPN: came.RemoteQPN, FirstPSN: 1000, Role: groupfile.Both}
	f.Source = source
	if got := c.Begins(f); got != nil {
		t.Errorf("another source has the turn: %+v", got)
	}
	turn = mft.Turn{Source: mft.QP(came), Members: []mft.Standing{{QP: mft.QP(came), Sender: mft.Sender{NextPSN: 1200}}}}
	if got := c.Begins(f); got == nil || got.Source != turn.Source || len(got.Members) != 2 {
		t.Errorf("the link has its turn: %+v", got)
	}
	f.Source.RemoteQPN++
	if got := c.Begins(f); got != nil {
		t.Errorf("the link was made anew: %+v", got)
	}
	c.Take(&turn) // after a switch only what was stored counts
	f.Source = source
	if got := c.Begins(f); len(got.Members) != 2 || got.Members[1].QP != mft.QP(joined) {
		t.Errorf("%+v", got)
	}
}

// Where a receiver stood in the turn says nothing any more when it has come from another box. All
// others stand where they stood.
func TestWhoHasComeStandsWhereItCame(t *testing.T) {
	comes, stays := id("10.0.0.2", 1), id("10.0.0.3", 1)
	var c Chronicle
	c.Take(&mft.Turn{Members: []mft.Standing{{QP: mft.QP(comes), Expects: 5}, {QP: mft.QP(stays), Expects: 6}}})
	c.Came(comes, 50)
	if m := c.Turn.Members; len(m) != 1 || m[0].QP != mft.QP(stays) || m[0].Expects != 6 || c.Since(comes) != 50 {
		t.Errorf("%+v, since %d", m, c.Since(comes))
	}
}

// The first source, which only sends, has no address in the text. Who has sent nothing has no place
// there as a sender.
func TestTheTextOfTheFirstSourcesTurnNamesNoSource(t *testing.T) {
	for source, names := range map[mft.QP]bool{{}: false, mft.QP(id("10.0.0.1", 1)): true} {
		var c Chronicle
		c.Take(&mft.Turn{Source: source})
		text, err := c.Text()
		if err != nil || strings.Contains(string(text), `"source":`) != names || strings.Contains(string(text), `"first":`) {
			t.Errorf("%v: %s, %v", source, text, err)
		}
		read, err := Read(text, &groupfile.File{}, true)
		if err != nil || read.Turn.Source != source {
			t.Errorf("%v: %+v, %v", source, read.Turn, err)
		}
	}
}

// A source has ended if its turn says so. The source of a turn may have left.
func TestWhetherTheSourceOfATurnHasEnded(t *testing.T) {
	source := mft.QP(id("10.0.0.1", 1))
	member := func(ended bool) []mft.Standing { return []mft.Standing{{QP: source, Sender: mft.Sender{Ended: ended}}} }
	for name, c := range map[string]struct {
		turn  *mft.Turn
		ended bool
	}{
		"no turn":                       {nil, false},
		"it goes on":                    {&mft.Turn{Source: source, Members: member(false)}, false},
		"it has ended":                  {&mft.Turn{Source: source, Members: member(true)}, true},
		"it has left":                   {&mft.Turn{Source: source}, false},
		"another one has ended":         {&mft.Turn{Members: member(true)}, false},
		"the first one that only sends": {&mft.Turn{First: mft.Sender{Ended: true}}, true},
	} {
		if got := (&Chronicle{Turn: c.turn}).SourceEnded(); got != c.ended {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Receivers only join if one is joining, and every other one but the source takes no part.
func TestWhetherReceiversOnlyJoin(t *testing.T) {
	source, joining, out, active := id("10.0.0.1", 1), id("10.0.0.2", 1), id("10.0.0.3", 1), id("10.0.0.4", 1)
	var c Chronicle
	c.LeaveOut(joining, Joining)
	c.Out(out, Behind, 5)
	for name, test := range map[string]struct {
		receivers []groupfile.ID
		joins     bool
	}{
		"nobody":                   {nil, false},
		"the source":               {[]groupfile.ID{source}, false},
		"one is out":               {[]groupfile.ID{out}, false},
		"one joins":                {[]groupfile.ID{joining}, true},
		"one joins and one is out": {[]groupfile.ID{joining, source, out}, true},
		"one is out and one joins": {[]groupfile.ID{out, joining}, true},
		"one joins beside another": {[]groupfile.ID{joining, active}, false},
		"another is there already": {[]groupfile.ID{active, joining}, false},
	} {
		f := &groupfile.File{}
		for _, id := range test.receivers {
			f.Receivers = append(f.Receivers, groupfile.Member{IP: id.IP, RemoteQPN: id.RemoteQPN})
		}
		if got := c.OnlyJoin(f, source); got != test.joins {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A group without a text, or with one that cannot be read, has not switched.
func TestWhatATextSaysOfSwitches(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "{}": false, `{"sourceSwitched":false}`: false, `{"sourceSwitched":true}`: true,
		`{"sourceSwitched":true,"receivers":5}`: false, `{"sourceSwitched":true`: false,
	} {
		if got := SaysSwitched([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if SaysSwitched(nil) {
		t.Error("no text says it")
	}
}

// Of a new group there is nothing to keep.
func TestANewGroupHasNoText(t *testing.T) {
	var c Chronicle
	if text, err := c.Text(); text != nil || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

// The source of a turn may have left. Where a receiver stands that joined in its turn is not known.
func TestATurnWhoseSourceHasLeft(t *testing.T) {
	source, joined := id("10.0.0.1", 1), id("10.0.0.2", 1)
	var c Chronicle
	c.Take(&mft.Turn{Source: mft.QP(source)})
	c.Came(joined, 50)
	f := &groupfile.File{Receivers: []groupfile.Member{{IP: joined.IP, RemoteQPN: joined.RemoteQPN, FirstPSN: 7}}}
	if got := c.Begins(f); got.Source != mft.QP(source) || len(got.Members) != 0 {
		t.Errorf("%+v", got)
	}
}

// With a change of the file a turn keeps those who stay, the first and the last one too: a restart
// needs what their QPs expect. Who leaves may join again with another queue pair.
func TestATurnKeepsThoseWhoStay(t *testing.T) {
	first, leaves, last := id("10.0.0.1", 1), id("10.0.0.2", 1), id("10.0.0.3", 1)
	file := func(ids ...groupfile.ID) *groupfile.File {
		f := &groupfile.File{}
		for _, id := range ids {
			f.Receivers = append(f.Receivers, groupfile.Member{IP: id.IP, RemoteQPN: id.RemoteQPN})
		}
		return f
	}
	var c Chronicle
	c.Take(&mft.Turn{Members: []mft.Standing{{QP: mft.QP(first), Expects: 1}, {QP: mft.QP(leaves), Expects: 2}, {QP: mft.QP(last), Expects: 3}}})
	next := c.Next(file(first, leaves, last), file(first, last))
	if m := next.Turn.Members; len(m) != 2 || m[0].QP != mft.QP(first) || m[0].Expects != 1 || m[1].QP != mft.QP(last) || m[1].Expects != 3 {
		t.Errorf("%+v", m)
	}
}

// A note about a receiver that is not joining changes nothing. It may be about one that has left.
func TestOnlyThoseWhoAreJoiningJoin(t *testing.T) {
	joining, out := id("10.0.0.1", 1), id("10.0.0.2", 1)
	running := &groupfile.File{Receivers: []groupfile.Member{{IP: out.IP, RemoteQPN: 1}}}
	next := &groupfile.File{Receivers: []groupfile.Member{{IP: out.IP, RemoteQPN: 1}, {IP: joining.IP, RemoteQPN: 1}}}
	var c Chronicle
	c.Out(out, Behind, 5)
	c = c.Next(running, next)
	for _, id := range []groupfile.ID{id("10.0.0.9", 1), out} {
		if c.Joined(id, 7) {
			t.Errorf("%v joined", id)
		}
	}
	if c.Ended(joining) != nil || c.Ended(out) == nil || c.Ended(id("10.0.0.9", 1)) != nil {
		t.Errorf("%v, %v", c.Ended(joining), c.Ended(out))
	}
	if !c.Joined(joining, 7) || c.Joined(joining, 8) || c.Standing(joining) != Joined || c.Standing(out) != Behind {
		t.Errorf("%+v", c)
	}
}

func TestASwitchOfTheSourceIsNotForgotten(t *testing.T) {
	for _, c := range []struct{ before, next bool }{{true, false}, {false, true}, {true, true}, {false, false}} {
		both := (&Chronicle{Switched: c.before}).With(Chronicle{Switched: c.next})
		if both.Switched != (c.before || c.next) {
			t.Errorf("%+v: %v", c, both.Switched)
		}
	}
}

// The members of both versions of a file may have confirmed. Members that the file lacks have not.
func TestConfirmationsAreKept(t *testing.T) {
	a, b := id("10.0.0.1", 1), id("10.0.0.2", 1)
	var one, two Chronicle
	if !one.Confirm(a) || one.Confirm(a) || !two.Confirm(b) || one.IsConfirmed(b) {
		t.Errorf("%+v, %+v", one, two)
	}
	both := one.With(two)
	text, err := both.Text()
	if err != nil || text == nil || !both.IsConfirmed(a) || !both.IsConfirmed(b) || one.IsConfirmed(b) {
		t.Fatalf("%+v, %v", both, err)
	}
	f := &groupfile.File{Receivers: []groupfile.Member{{IP: a.IP, RemoteQPN: 1}}}
	read, err := Read(text, f, false)
	if err != nil || !read.IsConfirmed(a) || read.IsConfirmed(b) {
		t.Errorf("%+v, %v", read, err)
	}
	next := both.Next(f, f)
	if !next.IsConfirmed(a) || next.IsConfirmed(b) {
		t.Errorf("%+v", next)
	}
}

// A box that takes a group over with a later file must not take a receiver that the state is not
// about for one that has all packets.
func TestAReceiverThatTheStateIsNotAboutIsLost(t *testing.T) {
	id := func(n byte) groupfile.ID {
		return groupfile.ID{IP: netip.AddrFrom4([4]byte{10, 0, 0, n}), RemoteQPN: 1}
	}
	file := func(numbers ...byte) *groupfile.File {
		f := &groupfile.File{}
		for _, n := range numbers {
			f.Receivers = append(f.Receivers, groupfile.Member{IP: id(n).IP, RemoteQPN: 1})
		}
		return f
	}
	var c Chronicle
	c.Came(id(2), 77)
	text, err := c.TextFor(file(1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(text, file(1, 2, 4), false)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[byte]Standing{1: "", 2: Joined, 3: "", 4: Lost} {
		if s := got.Standing(id(n)); s != want {
			t.Errorf("receiver %d is %q, want %q", n, s, want)
		}
	}
	// A new group's state says that too; a state that names no receivers is about all.
	var fresh Chronicle
	if text, err = fresh.TextFor(file(1)); err != nil {
		t.Fatal(err)
	}
	if got, err = Read(text, file(1, 4), false); err != nil || got.Standing(id(1)) != "" || got.Standing(id(4)) != Lost {
		t.Errorf("%+v, %v", got, err)
	}
	if text, err = c.Text(); err != nil {
		t.Fatal(err)
	}
	if got, err = Read(text, file(2, 4), false); err != nil || got.Standing(id(4)) != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A crash while a member joins loses it, because nobody knows what its QP has received. It has
// received nothing if it is the source.
func TestWhoJoinsAndIsTheSourceIsNotLost(t *testing.T) {
	source, other := id("10.0.0.2", 1), id("10.0.0.3", 1)
	f := &groupfile.File{Receivers: []groupfile.Member{{IP: source.IP, RemoteQPN: 1}, {IP: other.IP, RemoteQPN: 1}}}
	var c Chronicle
	c.LeaveOut(source, Joining)
	c.LeaveOut(other, Joining)
	for turn, want := range map[*mft.Turn]Standing{
		nil: Lost,
		{Source: mft.QP(source), Members: []mft.Standing{{QP: mft.QP(source)}}}: Joining,
		{Members: []mft.Standing{{QP: mft.QP(source)}}}:                         Lost,
	} {
		if c.Turn, c.Switched = turn, turn != nil; turn != nil {
			c.Take(turn)
		}
		text, err := c.Text()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(text, f, false)
		if err != nil || got.Standing(source) != want || got.Standing(other) != Lost {
			t.Errorf("%+v: %v and %v, %v", turn, got.Standing(source), got.Standing(other), err)
		}
	}
}

// What is known of a receiver goes with it to its other ID, and is not kept for the old one:
// another receiver may get that.
func TestARenamedReceiverTakesItsRecordAlong(t *testing.T) {
	was, is := id("10.0.0.1", 1), id("10.0.0.1", 2)
	var c Chronicle
	c.Came(was, 77)
	c.Rename(was, is)
	if c.Standing(was) != "" || c.Standing(is) != Joined || c.Since(is) != 77 {
		t.Errorf("%q at %d, and %q at the old ID", c.Standing(is), c.Since(is), c.Standing(was))
	}
}

// A standing that is none says nothing about its receiver, which must not count as one that takes
// part.
func TestAStandingThatIsNone(t *testing.T) {
	text := `{"receivers":[{"ip":"10.77.0.3","remoteQPN":1,"standing":"behine","psn":7}]}`
	_, err := Read([]byte(text), &groupfile.File{}, true)
	want := `the state that was kept of its receiver 10.77.0.3 is "behine", which is none; remove the group and create it again`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Readers have the copy while the group goes on. Neither side notices what happens to the other.
func TestASharedChronicleDoesNotChange(t *testing.T) {
	f := &groupfile.File{Receivers: []groupfile.Member{{IP: netip.MustParseAddr("10.0.0.1"), RemoteQPN: 1}}}
	a, b, other, apart := f.Receivers[0].ID(), id("10.0.0.2", 2), id("10.0.0.3", 3), id("10.0.0.4", 4)
	for name, change := range map[string]func(c *Chronicle){
		"a settled join": func(c *Chronicle) { c.Complete(apart) },
		"a confirmation": func(c *Chronicle) { c.Confirm(b) },
		"an eviction":    func(c *Chronicle) { c.Out(b, Evicted, 5) },
		"a move":         func(c *Chronicle) { c.Came(b, 7) },
		"another name":   func(c *Chronicle) { c.Rename(a, other) },
		"a join":         func(c *Chronicle) { c.Joined(a, 9) },
		"a turn":         func(c *Chronicle) { c.Take(&mft.Turn{}) },
	} {
		var none Chronicle
		joining := none.Next(&groupfile.File{}, f)
		joining.Confirm(a)
		joining.Take(&mft.Turn{Source: mft.QP(a)})
		joining.LeaveOut(apart, Joining)
		text := func(c *Chronicle) string {
			text, err := c.Text()
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		before := text(&joining)
		for range 2 { // also when it was shared and changed before
			copied := joining.Share()
			again := copied.Share()
			change(&joining)
			if got := text(&copied); got != before {
				t.Errorf("%s: the copy is\n%s\nand was\n%s", name, got, before)
			}
			if text(&joining) == before {
				t.Errorf("%s changes nothing", name)
			}
			change(&copied)
			if got := text(&again); got != before {
				t.Errorf("%s to the copy: the other one is\n%s", name, got)
			}
			joining = again
		}
	}
}

// A restart needs to know for which packets a quorum may count who has joined. What was not stored
// is open where a quorum is left without the receiver, and else it is not: nobody else could
// acknowledge anything.
func TestWhatWasBeforeAJoin(t *testing.T) {
	b, c, d := id("10.0.0.2", 1), id("10.0.0.3", 1), id("10.0.0.4", 1)
	quorum := func(n feedback.AckPolicy, ids ...groupfile.ID) *groupfile.File {
		f := &groupfile.File{Policy: feedback.Policy{Ack: n}, Source: groupfile.Member{FirstPSN: 10, Role: groupfile.Source}}
		for _, id := range ids {
			f.Receivers = append(f.Receivers, groupfile.Member{IP: id.IP, RemoteQPN: id.RemoteQPN, FirstPSN: 7})
		}
		return f
	}
	const joined = `{"ip":"10.0.0.4","remoteQPN":1,"standing":"joined","psn":30`
	const turn = `"sourceSwitched":true,"turn":{"source":{"ip":"10.0.0.2","remoteQPN":1},"members":[{"ip":"10.0.0.2","remoteQPN":1,"sends":{"nextPSN":100}}`
	for name, test := range map[string]struct {
		text string
		f    *groupfile.File
		open bool
	}{
		"open":                             {joined + `,"before":"open"}`, quorum(2, b, c, d), true},
		"open, and needed":                 {joined + `,"before":"open"}`, quorum(2, b, d), true},
		"acknowledged":                     {joined + `,"before":"acknowledged"}`, quorum(2, b, c, d), false},
		"not stored":                       {joined + `}`, quorum(2, b, c, d), true},
		"not stored, and needed":           {joined + `}`, quorum(3, b, c, d), false},
		"not stored, and one has left":     {joined + `}`, quorum(2, b, d), false},
		"since the first packet":           {`{"ip":"10.0.0.4","remoteQPN":1,"standing":"joined","psn":10}`, quorum(2, b, c, d), false},
		"not stored, and another one open": {`{"ip":"10.0.0.3","remoteQPN":1,"standing":"joined","psn":20,"before":"open"},` + joined + `}`, quorum(2, b, c, d), false},
		"not stored, and another one not":  {`{"ip":"10.0.0.3","remoteQPN":1,"standing":"joined","psn":20,"before":"acknowledged"},` + joined + `}`, quorum(2, b, c, d), true},
		"not stored, and another one out":  {`{"ip":"10.0.0.3","remoteQPN":1,"standing":"behind","psn":20},` + joined + `}`, quorum(2, b, c, d), false},
	} {
		got, err := Read([]byte(`{"receivers":[`+test.text+`]}`), test.f, false)
		want := []mft.Join{{QP: mft.QP(d), PSN: 30}}
		joins := slices.DeleteFunc(got.Joins(test.f), func(j mft.Join) bool { return j.QP != mft.QP(d) })
		if err != nil || test.open != slices.Equal(joins, want) || !test.open && joins != nil && len(joins) > 0 {
			t.Errorf("%s: %+v, %v", name, joins, err)
		}
		if again, err := got.Text(); err != nil || strings.Contains(string(again), `"psn": 30,
      "before": "open"`) != test.open {
			t.Errorf("%s: stored %s, %v", name, again, err)
		}
	}
	for name, test := range map[string]struct {
		stands string
		f      *groupfile.File
		open   bool
	}{
		"in this turn":                      {`,{"ip":"10.0.0.4","remoteQPN":1,"expects":77}`, quorum(1, b, c, d), true},
		"in an earlier turn":                {`,{"ip":"10.0.0.4","remoteQPN":1,"expects":78}`, quorum(1, b, c, d), false},
		"since the turn was stored":         {``, quorum(1, b, c, d), true},
		"in this turn, and b is its source": {`,{"ip":"10.0.0.4","remoteQPN":1,"expects":77}`, quorum(2, b, c, d), false},
	} {
		got, err := Read([]byte(`{`+turn+test.stands+`]},"receivers":[`+joined+`}]}`), test.f, false)
		if joins := got.Joins(test.f); err != nil || test.open != (len(joins) == 1) {
			t.Errorf("%s: %+v, %v", name, joins, err)
		}
	}
}

// Who has joined in this run has no place in a group that begins: the data path knows it. A turn
// that begins, and a look at the data path, end the question.
func TestWhereAJoinIsSettled(t *testing.T) {
	joiner := id("10.0.0.2", 1)
	f := &groupfile.File{Receivers: []groupfile.Member{{IP: joiner.IP, RemoteQPN: 1}}}
	for name, settle := range map[string]func(c *Chronicle){
		"by a look": func(c *Chronicle) { c.Complete(joiner) },
		"by a turn": func(c *Chronicle) { c.Take(&mft.Turn{}) },
	} {
		var none Chronicle
		c := none.Next(&groupfile.File{}, f)
		if c.Open() != nil {
			t.Errorf("it has not joined: %v", c.Open())
		}
		c.Joined(joiner, 7)
		copied := c.Share()
		if open := c.Open(); !slices.Equal(open, []groupfile.ID{joiner}) || c.Joins(f) != nil {
			t.Errorf("%v, %v", open, c.Joins(f))
		}
		if settle(&c); c.Open() != nil || copied.Open() == nil {
			t.Errorf("%s: %v, and the copy %v", name, c.Open(), copied.Open())
		}
	}
}

// The group of a connection cannot be updated, so a receiver that is out comes back with the next
// one.
func TestHowAReceiverJoinsAgain(t *testing.T) {
	r := Record{Standing: Evicted, PSN: 7}
	for ofService, want := range map[bool]string{
		false: "evicted: it lacks the source's PSN 7 and what follows; to let it join again, group update without it, then with it and the psn its QP expects",
		true:  "evicted: it lacks the source's PSN 7 and what follows; to let it join again, let the programs connect again",
	} {
		if got := r.Advice(ofService); got != want {
			t.Errorf("of a service %v: %s", ofService, got)
		}
	}
}
