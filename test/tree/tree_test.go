package tree

import (
	"fmt"
	"testing"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/internal/rnic"
	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/fabric"
	"github.com/rocast/rocast/internal/testlab/softgroup"
)

// The trees of the tests: hosts of each box, and the box to which each box but the first is joined.
var (
	row   = [2][]int{{2, 2}, {0}}             // two boxes in a row
	spine = [2][]int{{2, 0, 3}, {0, 1}}       // two leaves, and a box between them that has no host
	fork  = [2][]int{{2, 2, 2}, {0, 0}}       // a box with two below it
	deep  = [2][]int{{2, 1, 1, 1}, {0, 1, 1}} // three levels
)

// Every new packet crosses every link once, whatever carries it, and every host gets all data.
func TestEachLinkCarriesEachPacketOnce(t *testing.T) {
	testlab.NeedRoot(t)
	exact := 0
	defer func() {
		if exact == 0 && !t.Failed() {
			t.Error("on no link was the number of packets certain: the machine is too busy")
		}
	}()
	for _, shape := range []struct {
		name string
		tree [2][]int
	}{{"two in a row", row}, {"leaf and spine", spine}, {"a fork", fork}, {"three levels", deep}} {
		for _, engine := range []string{"auto", "afxdp"} {
			for between, way := range []string{"bridge", "router"} {
				for _, repair := range []string{"off", "local"} {
					if testing.Short() && engine == "afxdp" {
						continue
					}
					if shape.name != "two in a row" && (repair == "off") != (engine == "auto") {
						continue // two of the four are enough there
					}
					name := fmt.Sprintf("%s/%s/%s/repair %s", shape.name, engine, way, repair)
					t.Run(name, func(t *testing.T) {
						tr := newTree(t, options{
							between: fabric.Between(between), engine: engine, keys: "repair: " + repair, memory: 2 << 20,
						}, shape.tree[0], shape.tree[1])
						tr.write(0, nil)
						tr.counts(uint64(tr.o.memory / softgroup.PathMTU))
						exact += tr.exact
						if engine == "auto" {
							tr.carries()
						}
					})
				}
			}
		}
	}
}

// counts fails the test if a link did not carry each packet once, or more answers than packets.
// What a busy machine makes the box or the source send again is counted apart.
func (tr *tree) counts(packets uint64) {
	tr.t.Helper()
	source := tr.group.Members[0].RNIC.Counters()
	again := source.Get(rnic.FramesRetransmitted)
	most := packets + again
	for _, l := range tr.lab.Links { // what a box is sent again it may send on again
		most += tr.repaired(l)
	}
	for i, l := range tr.lab.Links {
		down, up, err := l.Wire.Passed()
		testlab.Must(tr.t, err)
		if down < packets || down > most || up == 0 || up > most {
			tr.t.Errorf("link %d carried %d packets down and %d answers up, and the source sent %d packets, %d of them again\n%s",
				i, down, up, packets, again, tr.state())
		}
		if most == packets {
			tr.exact++
		}
	}
}

// repaired is how many packets the upper box of a link has sent again to the lower one.
func (tr *tree) repaired(l *fabric.Link) uint64 {
	for _, b := range tr.boxes {
		if b.at != l.Ends[0].Box {
			continue
		}
		for _, m := range tr.of(b).Members {
			if m.IP == l.Ends[1].IP.String() && m.Repair != nil {
				return m.Repair.Repaired
			}
		}
	}
	return 0
}

// carries writes the group's memory again until the kernel of every box has carried packets.
func (tr *tree) carries() {
	tr.t.Helper()
	testlab.Eventually(tr.t, patience, "the kernel of every box carries packets", func() bool {
		for _, b := range tr.boxes {
			if tr.of(b).Engine.Carried == 0 {
				tr.write(0, nil)
				return false
			}
		}
		return true
	}, tr.state)
}

// Packets are lost on every link, in both directions, of IPv4 and of IPv6.
func TestLossOnEveryLink(t *testing.T) {
	testlab.Long(t)
	for _, engine := range []string{"auto", "afxdp"} {
		for between, repair := range []string{"off", "local"} {
			t.Run(engine+"/repair "+repair, func(t *testing.T) {
				tr := newTree(t, options{
					between: fabric.Between(between), engine: engine, keys: "repair: " + repair, memory: 4 << 20, loss: 2000,
					ipv6: (engine == "auto") == (repair == "local"),
				}, deep[0], deep[1])
				tr.write(0, nil)
				for i, l := range tr.lab.Links {
					down, up, err := l.Wire.Lost()
					testlab.Must(t, err)
					if down == 0 {
						t.Errorf("link %d lost no packet on the way down, and %d on the way up", i, up)
					}
				}
			})
		}
	}
}

// A box is killed in the middle of a transfer and started again. The QPs live, and every host gets
// all data.
func TestABoxIsKilled(t *testing.T) {
	testlab.Long(t)
	for which, name := range []string{"the first", "the middle", "the last"} {
		for _, engine := range []string{"auto", "afxdp"} {
			for _, repair := range []string{"off", "local"} {
				if which != 1 && (repair == "off") != (engine == "auto") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/repair %s", name, engine, repair), func(t *testing.T) {
					tr := newTree(t, options{
						between: fabric.Router, engine: engine, keys: "repair: " + repair, memory: 8 << 20, loss: 500,
					}, spine[0], spine[1])
					tr.write(0, func() { tr.restart(tr.boxes[which]) })
					if g := tr.of(tr.boxes[which]); !g.Restored || g.State != api.Ready {
						t.Errorf("after the restart: %+v", g.GroupSummary)
					}
				})
			}
		}
	}
}

// The source changes to a host of every box and back: both ends of a link may send.
func TestTheSourceMovesThroughTheTree(t *testing.T) {
	for _, engine := range []string{"auto", "afxdp"} {
		t.Run(engine, func(t *testing.T) {
			tr := newTree(t, options{engine: engine, memory: 1 << 20, both: true, loss: 200}, spine[0], spine[1])
			for _, h := range []int{0, 2, 1, 4, 0, 3} {
				tr.write(h, nil)
			}
		})
	}
}

// After each turn a box is killed, and started again before the next host writes: each box has
// stored the turns by itself, and boxes ask each other what the hosts behind them have.
func TestTurnsInATreeOutliveCrashes(t *testing.T) {
	tr := newTree(t, options{engine: "auto", memory: 256 << 10, both: true}, spine[0], spine[1])
	for turn, h := range []int{0, 2, 1, 4, 0, 3, 2} {
		tr.write(h, nil)
		tr.restart(tr.boxes[turn%len(tr.boxes)])
	}
}

// All hosts and boxes are in one network, in which both boxes have the group's IP. Each box serves
// its own hosts, whichever of them a host's ARP request is answered by.
func TestBoxesOfOneNetwork(t *testing.T) {
	for _, engine := range []string{"auto", "afxdp"} {
		t.Run(engine, func(t *testing.T) {
			tr := newTree(t, options{between: fabric.Flat, engine: engine, memory: 2 << 20}, row[0], row[1])
			tr.write(0, nil)
			tr.counts(uint64(tr.o.memory / softgroup.PathMTU))
			tr.resolves()
		})
	}
}

// resolves fails the test if the hosts of different boxes do not find each other in their common
// network while the tree stands: by ARP, and by neighbour discovery.
func (tr *tree) resolves() {
	tr.t.Helper()
	ip6 := func(i int) string { return fmt.Sprintf("fd81::%d", i+1) }
	for i, h := range tr.group.Members {
		testlab.Must(tr.t, h.NS.Sysctl("net.ipv6.conf."+h.End.Name+".disable_ipv6", "0"))
		h.NS.MustRun(tr.t, "ip address add %s/64 dev %s nodad", ip6(i), h.End.Name)
	}
	for _, from := range tr.group.Members {
		for i, to := range tr.group.Members {
			if tr.boxOf(from) == tr.boxOf(to) {
				continue
			}
			from.NS.MustRun(tr.t, "ip neighbour flush all")
			for _, address := range []string{to.IP.String(), ip6(i)} {
				if _, err := from.NS.Exec("ping", "-c", "1", "-W", "2", address); err != nil {
					tr.t.Errorf("%v does not find %s: %v", from.IP, address, err)
				}
			}
		}
	}
}
