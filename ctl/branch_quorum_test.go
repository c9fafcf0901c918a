package ctl

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/chronicle"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/groups"
	"github.com/rocast/rocast/roce"
)

// quorumFile is groupFile with a quorum of 2.
func quorumFile(receivers ...string) string {
	return strings.Replace(groupFile(receivers...), "mtu: 1024", "mtu: 1024\nack: quorum 2", 1)
}

// createMerging creates a group as a release did whose boxes all merged, also where a quorum counts
// the receivers behind them.
func (f *fabric) createMerging(text string) {
	f.t.Helper()
	file, err := groupfile.Parse([]byte(text))
	if err != nil {
		f.t.Fatal(err)
	}
	all := regexp.MustCompile("ack: quorum [0-9]+").ReplaceAllString(text, "ack: all")
	f.create(all)
	b1 := f.box("b1")
	b1.edit("g1", func(g *groups.Group) {
		wanted, own := *g.Wanted, *g.File
		wanted.Policy, own.Policy = file.Policy, file.Policy
		g.Wanted, g.File = &wanted, &own
		if err := b1.groups.Store.Put("g1", []byte(text)); err != nil {
			f.t.Fatal(err)
		}
	})
	b1.restart(true, false)
	f.renewAll()
}

// counts fails if the root's quorum counts another number of receivers behind b2.
func (f *fabric) counts(want int) {
	f.t.Helper()
	b1 := f.box("b1")
	l := b1.groups.Named("g1").Links[0]
	g := b1.published("g1")
	if got := g.Weight(g.FindPath(addr(l.Remote.IP), mftQPN(l.Local.QPN))); got != want || l.Weight != want {
		f.t.Errorf("the quorum counts %d, and %d are kept, want %d", got, l.Weight, want)
	}
}

// Behind a link one receiver is replaced by another one. Until that has joined, and everything
// before is acknowledged, the box there acknowledges what only the other receiver has.
func TestAQuorumDoesNotCountWhoIsJoiningBehindALink(t *testing.T) {
	f := newTree(t)
	b1, b3 := f.box("b1"), f.box("b3")
	f.createMerging(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	f.counts(2)
	b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.3"))
	f.counts(1)
	b3.joins("10.3.0.3", 1010)
	f.renewAll()
	b1.sw.Merge(b1.groups.Named("g1").ID, 1500)
	b1.update(t, quorumFile("10.1.0.2", "10.1.0.3", "10.3.0.1", "10.3.0.3"))
	f.counts(1) // who stood for one cannot stand for two
	b1.restart(false, false)
	f.counts(1)
}

// The same in the other order: the new one has joined before the old one leaves.
func TestAQuorumCountsWhoHasJoinedBehindALink(t *testing.T) {
	for merged, want := range map[roce.PSN]int{1008: 1, 1009: 2, 1500: 2} {
		f := newTree(t)
		b1, b3 := f.box("b1"), f.box("b3")
		f.createMerging(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
		b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.3.0.3"))
		f.counts(2)
		b3.joins("10.3.0.3", 1010)
		f.renewAll()
		b1.sw.Merge(b1.groups.Named("g1").ID, merged)
		b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.3"))
		if f.counts(want); want == 2 {
			b1.update(t, quorumFile("10.1.0.2", "10.3.0.3", "10.3.0.4"))
			f.counts(1)
		}
	}
}

// A restart of the root, or another source, leaves nobody who knows what was acknowledged when.
func TestAQuorumDoesNotGuessWhatWasAcknowledged(t *testing.T) {
	for name, happens := range map[string]func(b1 *box){
		"a restart": func(b1 *box) { b1.restart(false, false) },
		"a switch":  func(b1 *box) { b1.edit("g1", func(g *groups.Group) { g.Past.Switched = true }) },
	} {
		f := newTree(t)
		b1, b3 := f.box("b1"), f.box("b3")
		f.createMerging(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
		b1.sw.Carry("g1", 1500)
		b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.3.0.3"))
		b3.joins("10.3.0.3", 1010)
		f.renewAll()
		happens(b1)
		b1.sw.Merge(b1.groups.Named("g1").ID, 1500)
		b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.3"))
		t.Log(name)
		f.counts(1)
	}
}

// An update that would leave the quorum too few is refused, and nothing changes.
func TestAQuorumIsNotLeftWithTooFewBehindALink(t *testing.T) {
	f := newTree(t)
	b1 := f.box("b1")
	f.createMerging(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	for text, want := range map[string]string{
		quorumFile("10.1.0.2", "10.3.0.3", "10.3.0.4"): "the quorum counts none of the receivers that would be left behind box b2",
		quorumFile("10.3.0.1", "10.3.0.3"):             "the quorum would count 1 receivers and needs 2",
	} {
		if _, err := b1.Update(t.Context(), "g1", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
		f.check("b1: 10.1.0.2 b2 | b2: b3 | b3: 10.3.0.1 10.3.0.2")
		f.counts(2)
	}
	b1.update(t, quorumFile("10.1.0.2", "10.1.0.3"))
	f.check("b1: 10.1.0.2 10.1.0.3")
}

// A box behind may lose its state, and with it who takes part. It acknowledges without those who
// are lost, and the quorum of the root stops counting them.
func TestAQuorumStopsCountingWhoIsOutBehindALink(t *testing.T) {
	f := newTree(t)
	b1, b3 := f.box("b1"), f.box("b3")
	f.createMerging(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
	b3.edit("g1", func(g *groups.Group) { g.Past.Out(idOf("10.3.0.2"), chronicle.Lost, 1010) })
	for range 2 {
		f.renewAll()
		f.counts(1)
		b1.restart(false, false)
		f.counts(1)
	}
	if g, _ := b1.Group("g1"); g.State == api.Failed {
		t.Errorf("%+v", g.GroupSummary)
	}
}

// Who is joining behind the link makes up for nobody who is out there, before it has joined and
// everything before its first packet is acknowledged.
func TestWhoIsJoiningMakesUpForNobodyThatIsOut(t *testing.T) {
	for name, c := range map[string]struct {
		joined bool
		merged roce.PSN
		want   int
	}{
		"it is joining":                     {false, 1500, 1},
		"what was before is on its way":     {true, 1008, 1},
		"everything before is acknowledged": {true, 1009, 2},
	} {
		f := newTree(t)
		b1, b3 := f.box("b1"), f.box("b3")
		f.createMerging(quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2"))
		b1.update(t, quorumFile("10.1.0.2", "10.3.0.1", "10.3.0.2", "10.3.0.3"))
		if c.joined {
			b3.joins("10.3.0.3", 1010)
			f.renewAll()
		}
		b1.sw.Merge(b1.groups.Named("g1").ID, c.merged)
		b3.edit("g1", func(g *groups.Group) { g.Past.Out(idOf("10.3.0.2"), chronicle.Lost, 1010) })
		f.renewAll()
		t.Log(name)
		f.counts(c.want)
	}
}
