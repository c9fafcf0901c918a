package scale

import (
	"slices"
	"testing"
)

func TestShapesHaveTheirHostsSwitchesAndLinks(t *testing.T) {
	for _, c := range []struct {
		Shape
		hosts, switches, links int
	}{
		// A fat tree of k ports has k*k/2 switches at the edge, as many above, and k*k/4 cores.
		// Each of its three layers of cables has one for each host.
		{FatTree(4), 16, 20, 2 * 3 * 16},
		{FatTree(16), 1024, 320, 2 * 3 * 1024},
		{FatTree(40), 16000, 2000, 2 * 3 * 16000},
		{Pods64(), 16384, 16*64 + 256, 2 * 3 * 16384},
		{OneSwitch(5), 5, 1, 10},
	} {
		if err := c.validate(); err != nil {
			t.Error(err)
		}
		if h, s, l := c.Hosts(), c.Switches(), c.Links(); h != c.hosts || s != c.switches || l != c.links {
			t.Errorf("%+v: %d hosts, %d switches, %d links", c.Shape, h, s, l)
		}
	}
	for _, bad := range []Shape{{}, {Pods: 2, Edges: 1, HostsPerEdge: 4}, {Pods: 1, Edges: 1, HostsPerEdge: 1, Aggregations: 1}} {
		if _, err := New(Papers(bad, 1e9)); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Every port of every switch has one cable: no switch of Pods64 has more than 64.
func TestSwitchesHaveAsManyPortsAsTheirName(t *testing.T) {
	for k, s := range map[int]Shape{16: FatTree(16), 40: FatTree(40), 64: Pods64()} {
		atEdge, above, atCore := s.HostsPerEdge+s.Aggregations, s.Edges+s.Cores*s.Parallel, s.Pods*s.Parallel
		if atEdge != k || above != k || atCore != k {
			t.Errorf("switches of %d ports use %d, %d and %d", k, atEdge, above, atCore)
		}
	}
}

// ends says between which nodes a link is, by a table that is made from the cables.
func (s Shape) ends() (from, to []string) {
	from, to = make([]string, s.Links()), make([]string, s.Links())
	cable := func(link int32, lower, upper string) {
		for i, end := range [2][2]string{{lower, upper}, {upper, lower}} {
			if from[int(link)+i] != "" {
				panic("two cables have one number")
			}
			from[int(link)+i], to[int(link)+i] = end[0], end[1]
		}
	}
	for h := range s.Hosts() {
		cable(hostLink(h), site{100, h, 0}.hostName(), site{edge, s.edgeOf(h), 0}.name())
	}
	for e := range s.Pods * s.Edges {
		for p := range s.Aggregations {
			cable(s.edgeLink(e, p), site{edge, e, 0}.name(), site{aggregation, e / s.Edges, p}.name())
		}
	}
	for pod := range s.Pods {
		for p := range s.Aggregations {
			for c := range s.Cores {
				for k := range s.Parallel {
					cable(s.coreLink(pod, p, c, k), site{aggregation, pod, p}.name(), site{core, p, c}.name())
				}
			}
		}
	}
	return from, to
}

func (w site) hostName() string { w.layer = edge; return "host-" + w.name() }

// A way is a chain of cables from host to host, of 2, 4 or 6 links, and the way back is the same
// chain the other way round.
func TestWaysAreChainsOfCables(t *testing.T) {
	for _, s := range []Shape{FatTree(4), FatTree(8), Pods64(), OneSwitch(3)} {
		from, to := s.ends()
		if slices.Contains(from, "") {
			t.Fatalf("%+v: a link has no cable", s)
		}
		cores := map[string]bool{}
		for i := range 4000 {
			a, b := int(scatter(1, uint64(i))%uint64(s.Hosts())), int(scatter(2, uint64(i))%uint64(s.Hosts()))
			if i < 40 {
				b = i % 3 // near ones as well
			}
			if a == b {
				continue
			}
			way, back := s.way(a, b, scatter(3, uint64(i))), s.way(b, a, scatter(3, uint64(i)))
			want := 6
			if s.edgeOf(a) == s.edgeOf(b) {
				want = 2
			} else if s.podOf(a) == s.podOf(b) {
				want = 4
			}
			if len(way) != want || len(back) != want || way[0] != hostLink(a) || way[want-1] != hostLink(b)+down {
				t.Fatalf("from %d to %d: %v", a, b, way)
			}
			for k := 1; k < want; k++ {
				if to[way[k-1]] != from[way[k]] {
					t.Fatalf("from %d to %d: link %d ends at %s, and the next one begins at %s", a, b, way[k-1], to[way[k-1]], from[way[k]])
				}
				if way[k]^1 != back[want-1-k] {
					t.Fatalf("from %d to %d: there %v, back %v", a, b, way, back)
				}
			}
			if want == 6 {
				cores[to[way[2]]] = true
			}
		}
		if most := s.Aggregations * s.Cores; len(cores) < most*9/10 {
			t.Errorf("%+v: of %d core switches only %d are on any way", s, most, len(cores))
		}
	}
}

// The neighbours of a switch are at the other ends of its cables, one layer nearer to the host.
func TestNeighboursAreAtTheEndsOfCables(t *testing.T) {
	for _, s := range []Shape{FatTree(4), Pods64()} {
		from, to := s.ends()
		for i := range 500 {
			host := int(scatter(5, uint64(i)) % uint64(s.Hosts()))
			w := site{edge, int(scatter(6, uint64(i)) % uint64(s.Pods*s.Edges)), 0}
			for hops := 0; ; hops++ {
				next := s.through(w, host)
				if len(next) == 0 {
					if w.a != s.edgeOf(host) || hops > 4 {
						t.Fatalf("the way to host %d ends at %s after %d links", host, w.name(), hops)
					}
					break
				}
				choice := scatter(7, uint64(i+hops))
				chosen := next[choice%uint64(len(next))]
				there, back := s.between(w, chosen, choice>>8)
				if from[there] != w.name() || to[there] != chosen.name() || there^1 != back {
					t.Fatalf("from %s to %s: link %d from %s to %s, back %d", w.name(), chosen.name(), there, from[there], to[there], back)
				}
				w = chosen
			}
		}
	}
}
