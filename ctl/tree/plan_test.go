package tree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The stories draw a fabric, and show what each box does for a group.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		f := newFabric()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				words := strings.Fields(line)
				switch d.Cmd {
				case "fabric":
					f.draw(words)
				case "group":
					receivers := words[2:]
					parts := f.multicast(d.CmdArgs[0].Key, words[0], receivers)
					if wrong := check(parts, receivers); wrong != "" {
						t.Errorf("%s: %s", d.Pos, wrong)
					}
					for _, p := range parts {
						out.WriteString(p.String() + "\n")
					}
				default:
					d.Fatalf(t, "unknown command")
				}
			}
			return out.String()
		})
	})
}

// draw reads "BOX -- BOX BOX" for links and "BOX: HOST HOST" for hosts.
func (f *fabric) draw(words []string) {
	box, isHosts := strings.CutSuffix(words[0], ":")
	for _, other := range words[1:] {
		switch {
		case isHosts:
			f.at[other] = box
		case other != "--":
			f.link(box, other)
		}
	}
	clear(f.ways)
}

func (p part) String() string {
	parts := append([]string{p.box + " sends"}, p.own...)
	for _, neighbour := range slices.Sorted(maps.Keys(p.asked)) {
		parts = append(parts, fmt.Sprintf("%s(%s)", neighbour, strings.Join(p.asked[neighbour], " ")))
	}
	return strings.Join(parts, " ")
}

// pick returns n hosts in random order.
func pick(r *rand.Rand, hosts []string, n int) []string {
	picked := make([]string, n)
	for i, at := range r.Perm(len(hosts))[:n] {
		picked[i] = hosts[at]
	}
	return picked
}

// treeEdges is the number of links of the smallest tree in a whole leaf-spine or fat tree, whatever
// paths are chosen: one link to each other leaf (edge box), one to each pod, and those up.
func treeEdges(f *fabric, source string, receivers []string) int {
	boxes, pods := map[string]bool{}, map[string]bool{}
	root := f.at[source]
	pod := func(box string) string { p, _, _ := strings.Cut(box, "."); return p }
	for _, host := range receivers {
		if box := f.at[host]; box != root {
			boxes[box] = true
			pods[pod(box)] = true
		}
	}
	switch {
	case len(boxes) == 0:
		return 0
	case strings.HasPrefix(root, "leaf"):
		return 1 + len(boxes) // to a spine, and from there to each leaf
	}
	delete(pods, pod(root))
	edges := 1 + len(boxes) // to an aggregation box of this pod, and from aggregation boxes to edge boxes
	if len(pods) > 0 {
		edges += 1 + len(pods) // to a core box, and from there to an aggregation box of each pod
	}
	return edges
}

// In a whole leaf-spine or fat tree every plan is the best one: every receiver is reached once, no
// link carries a packet twice, and no smaller tree exists.
func TestWholeFabricsGetTheSmallestTree(t *testing.T) {
	fabrics := map[string]*fabric{
		"leaf-spine 2x1": leafSpine(2, 1, 3), "leaf-spine 8x4": leafSpine(8, 4, 16),
		"fat tree 4": fatTree(4), "fat tree 8": fatTree(8), "fat tree 16": fatTree(16),
	}
	for name, size := range map[string]int{"fat tree 4": 16, "fat tree 8": 128, "fat tree 16": 1024} {
		if got := len(fabrics[name].hosts()); got != size {
			t.Fatalf("%s has %d hosts, want %d", name, got, size)
		}
	}
	for name, f := range fabrics {
		r := rand.New(rand.NewPCG(1, 2))
		hosts := f.hosts()
		for round := range 30 {
			all := pick(r, hosts, 2+r.IntN(len(hosts)-1))
			if round == 0 {
				all = hosts
			}
			parts := f.multicast(fmt.Sprint("g", round), all[0], all[1:])
			if wrong := check(parts, all[1:]); wrong != "" {
				t.Fatalf("%s, round %d: %s", name, round, wrong)
			}
			if got, want := copies(parts), treeEdges(f, all[0], all[1:]); got != want {
				t.Fatalf("%s, round %d: %d copies on links, and %d suffice", name, round, got, want)
			}
		}
	}
}

// worstFactor bounds the copies on links compared with the smallest tree of shortest paths. In the
// 400 fabrics below the worst factor is 1.17; all plans together have one copy in a thousand too
// much.
const worstFactor = 1.25

// In any fabric, broken ones too, every receiver is reached once, no box is registered twice, and
// there are at most worstFactor times as many copies as in the smallest tree of shortest paths.
func TestAnyFabric(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	total, smallest, worst := 0, 0, 1.0
	for round := range 400 {
		f := randomFabric(r)
		hosts := f.hosts()
		all := pick(r, hosts, 2+r.IntN(len(hosts)-1))
		parts := f.multicast(fmt.Sprint("g", round), all[0], all[1:])
		if wrong := check(parts, all[1:]); wrong != "" {
			t.Fatalf("round %d: %s\n%v\n%v", round, wrong, f.links, parts)
		}
		got, least := copies(parts), f.fewest(all[0], all[1:])
		if got < least {
			t.Fatalf("round %d: %d copies, and the smallest tree has %d", round, got, least)
		}
		total, smallest = total+got, smallest+least
		if least > 0 {
			worst = max(worst, float64(got)/float64(least))
		}
	}
	t.Logf("%d copies instead of %d, at worst %.2f times as many", total, smallest, worst)
	if worst > worstFactor {
		t.Errorf("a plan has %.2f times as many copies as the smallest tree", worst)
	}
}

// randomFabric returns a connected fabric of up to 11 boxes, each with a host.
func randomFabric(r *rand.Rand) *fabric {
	f := newFabric()
	n := 3 + r.IntN(9)
	box := func(i int) string { return fmt.Sprintf("b%02d", i) }
	joined := map[[2]int]bool{}
	join := func(a, b int) {
		if a, b = min(a, b), max(a, b); a != b && !joined[[2]int{a, b}] {
			joined[[2]int{a, b}] = true
			f.link(box(a), box(b))
		}
	}
	for i := 1; i < n; i++ {
		join(i, r.IntN(i))
	}
	for range r.IntN(2 * n) {
		join(r.IntN(n), r.IntN(n))
	}
	for i := range n {
		f.at[fmt.Sprintf("h%02d", i)] = box(i)
	}
	return f
}

// A fat tree in which a fifth of the links is broken has next-hop sets of all kinds. Hosts that are
// cut off take no part.
func TestBrokenFatTrees(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for round := range 60 {
		whole, f := fatTree(8), newFabric()
		f.at = whole.at
		for _, a := range slices.Sorted(maps.Keys(whole.links)) {
			for _, b := range whole.links[a] {
				if a < b && r.IntN(5) > 0 {
					f.link(a, b)
				}
			}
		}
		source := pick(r, f.hosts(), 1)[0]
		linked := f.distances(f.at[source])
		hosts := slices.DeleteFunc(f.hosts(), func(h string) bool { _, there := linked[f.at[h]]; return !there || h == source })
		receivers := pick(r, hosts, 1+r.IntN(len(hosts)))
		if wrong := check(f.multicast(fmt.Sprint("g", round), source, receivers), receivers); wrong != "" {
			t.Fatalf("round %d: %s", round, wrong)
		}
	}
}

// A box gives its groups to the spines in turn: their numbers differ by at most one.
func TestOneBoxSpreadsItsGroupsEvenly(t *testing.T) {
	f := leafSpine(4, 5, 4)
	for i := range 203 {
		f.multicast(fmt.Sprint("g", i), "h0.0", []string{"h1.0", "h2.1", "h3.2"})
		low, high := i, 0
		for s := range 5 {
			groups := f.load[[2]string{"leaf0", fmt.Sprintf("spine%d", s)}]
			low, high = min(low, groups), max(high, groups)
		}
		if high-low > 1 {
			t.Fatalf("after %d groups a spine has %d and another one %d", i+1, high, low)
		}
	}
}

// worstSpread bounds the groups of the busiest core box of a fat tree compared with the average
// one. Each box counts only its own groups, so the spread over all boxes is not exact.
const worstSpread = 1.1

func TestGroupsOfAllBoxesSpreadOverTheCore(t *testing.T) {
	const k, groups = 8, 4000
	f := fatTree(k)
	hosts := f.hosts()
	r := rand.New(rand.NewPCG(5, 6))
	at := map[string]int{}
	total := 0
	for i := range groups {
		all := pick(r, hosts, 4)
		for _, p := range f.multicast(fmt.Sprint("g", i), all[0], all[1:]) {
			if strings.HasPrefix(p.box, "core") {
				at[p.box]++
				total++
			}
		}
	}
	const cores = k * k / 4
	mean := float64(total) / cores
	busiest := slices.Max(slices.Collect(maps.Values(at)))
	t.Logf("%.0f groups at a core box, %d at the busiest", mean, busiest)
	if float64(busiest) > worstSpread*mean || len(at) != cores {
		t.Errorf("%d core boxes of %d carry groups, the busiest %d, on average %.0f", len(at), cores, busiest, mean)
	}
}

// The first groups of many boxes, none of which has a group yet, do not all use the same spine.
func TestBoxesDoNotAllBeginWithTheSameSpine(t *testing.T) {
	used := map[string]int{}
	for i := range 400 {
		for _, n := range Plan(fmt.Sprint("g", i), []Member{{Through: []string{"spine0", "spine1", "spine2", "spine3"}}}, func(string) int { return 0 }) {
			used[n]++
		}
	}
	for spine, groups := range used {
		if groups < 70 || groups > 130 {
			t.Errorf("%s has %d of 400 groups", spine, groups)
		}
	}
}

func idle(string) int { return 0 }

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		what    string
		members []Member
		load    map[string]int
		want    []string
	}{
		{"no member", nil, nil, []string{}},
		{"the box's own", []Member{{}, {}}, nil, []string{"", ""}},
		{"the least used", []Member{{Through: []string{"a", "b", "c"}}}, map[string]int{"a": 2, "b": 1, "c": 2}, []string{"b"}},
		{"two follow the third, which has one way",
			[]Member{{Through: []string{"a", "b"}}, {Through: []string{"b"}}, {Through: []string{"a", "b"}}}, map[string]int{"b": 9}, []string{"b", "b", "b"}},
		{"a neighbour that is needed anyway goes before one that reaches more",
			[]Member{{Through: []string{"a", "b"}}, {Through: []string{"a", "b"}}, {Through: []string{"a", "c"}}, {Through: []string{"a", "c"}}, {Through: []string{"b"}}, {Through: []string{"c"}}},
			nil, []string{"b", "b", "c", "c", "b", "c"}},
		{"most members", []Member{{Through: []string{"a", "b"}}, {Through: []string{"b", "c"}}, {Through: []string{"a", "d"}}, {Through: []string{"b", "d"}}},
			map[string]int{"b": 9, "a": 1}, []string{"b", "b", "d", "b"}},
		{"a member stays", []Member{{Through: []string{"a", "b"}, Now: "b"}}, map[string]int{"b": 9}, []string{"b"}},
		{"a new member follows one that stays",
			[]Member{{Through: []string{"a", "b"}}, {Through: []string{"a", "b"}, Now: "b"}}, map[string]int{"b": 9}, []string{"b", "b"}},
		{"a member that stays does not follow a new one",
			[]Member{{Through: []string{"a", "b"}, Now: "b"}, {Through: []string{"a"}}}, nil, []string{"b", "a"}},
		{"a member moves when it must", []Member{{Through: []string{"a"}, Now: "b"}}, nil, []string{"a"}},
		{"a member comes to this box", []Member{{Now: "b"}}, nil, []string{""}},
	} {
		got := Plan("g1", c.members, func(n string) int { return c.load[n] })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// The order in which members and neighbours stand changes nothing.
func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	names := []string{"a", "b", "c", "d", "e"}
	for range 200 {
		members := make([]Member, 1+r.IntN(8))
		for i := range members {
			members[i].Through = pick(r, names, r.IntN(len(names)+1))
		}
		want := Plan("g", members, idle)
		order := r.Perm(len(members))
		shuffled := make([]Member, len(members))
		for i, at := range order {
			shuffled[i].Through = pick(r, members[at].Through, len(members[at].Through))
		}
		for i, got := range Plan("g", shuffled, idle) {
			if got != want[order[i]] {
				t.Fatalf("%v: %q, and %v: member %d has %q", members, want, shuffled, i, got)
			}
		}
	}
}
