package scale

import "fmt"

// Shape is a folded Clos network of three layers: hosts at edge switches, pods of edge and
// aggregation switches, and planes of core switches. Aggregation switch a of each pod reaches all
// core switches of plane a.
type Shape struct {
	Pods         int
	Edges        int // edge switches of a pod
	HostsPerEdge int
	Aggregations int // of a pod, which is the number of planes; 0: the only edge switch is all there is
	Cores        int // of a plane
	Parallel     int // links between an aggregation switch and each of its core switches
}

// FatTree is the fat tree of switches with k ports: k*k*k/4 hosts, and as much capacity between
// layers as hosts have.
func FatTree(k int) Shape {
	return Shape{Pods: k, Edges: k / 2, HostsPerEdge: k / 2, Aggregations: k / 2, Cores: k / 2, Parallel: 1}
}

// Pods64 is the network of 16,384 hosts and switches of 64 ports: 16 pods of 1,024 hosts. Eight
// core switches of a plane take four links from each pod.
func Pods64() Shape {
	return Shape{Pods: 16, Edges: 32, HostsPerEdge: 32, Aggregations: 32, Cores: 8, Parallel: 4}
}

// OneSwitch is a single switch with hosts.
func OneSwitch(hosts int) Shape { return Shape{Pods: 1, Edges: 1, HostsPerEdge: hosts} }

func (s Shape) validate() error {
	if s.Pods < 1 || s.Edges < 1 || s.HostsPerEdge < 1 || s.Aggregations < 0 || s.Aggregations > 0 && (s.Cores < 1 || s.Parallel < 1) {
		return fmt.Errorf("the network %+v has a layer without switches or links", s)
	}
	if s.Aggregations == 0 && s.Pods*s.Edges > 1 {
		return fmt.Errorf("the network %+v has several edge switches and nothing above them", s)
	}
	return nil
}

// Hosts returns the number of hosts.
func (s Shape) Hosts() int { return s.Pods * s.Edges * s.HostsPerEdge }

// Switches returns the number of switches.
func (s Shape) Switches() int { return s.Pods*(s.Edges+s.Aggregations) + s.Aggregations*s.Cores }

// Links returns the number of directed links.
func (s Shape) Links() int { return s.firstCoreLink() + 2*s.Pods*s.Aggregations*s.Cores*s.Parallel }

// A directed link has a number. Links of hosts come first, then those between edge and aggregation
// switches, then those between aggregation and core switches. The link downwards follows the link
// upwards.

func (s Shape) firstEdgeLink() int { return 2 * s.Hosts() }

func (s Shape) firstCoreLink() int {
	return s.firstEdgeLink() + 2*s.Pods*s.Edges*s.Aggregations
}

const down = 1 // is added to the number of the link upwards

func hostLink(host int) int32 { return int32(2 * host) }

func (s Shape) edgeLink(edge, plane int) int32 {
	return int32(s.firstEdgeLink() + 2*(edge*s.Aggregations+plane))
}

func (s Shape) coreLink(pod, plane, core, parallel int) int32 {
	return int32(s.firstCoreLink() + 2*(((pod*s.Aggregations+plane)*s.Cores+core)*s.Parallel+parallel))
}

// betweenSwitches reports whether a link has no host at either end.
func (s Shape) betweenSwitches(link int32) bool { return int(link) >= s.firstEdgeLink() }

// edgeOf returns the edge switch of a host. Edge switches are numbered through all pods.
func (s Shape) edgeOf(host int) int { return host / s.HostsPerEdge }

func (s Shape) podOf(host int) int { return s.edgeOf(host) / s.Edges }

// way returns the links from one host to another. choice decides between ways of equal length.
func (s Shape) way(from, to int, choice uint64) []int32 {
	up, last := hostLink(from), hostLink(to)+down
	e, f := s.edgeOf(from), s.edgeOf(to)
	if e == f {
		return []int32{up, last}
	}
	plane := int(choice % uint64(s.Aggregations))
	choice /= uint64(s.Aggregations)
	a, b := s.edgeLink(e, plane), s.edgeLink(f, plane)+down
	if s.podOf(from) == s.podOf(to) {
		return []int32{up, a, b, last}
	}
	core := int(choice % uint64(s.Cores))
	choice /= uint64(s.Cores)
	parallel := int(choice % uint64(s.Parallel))
	return []int32{up, a, s.coreLink(s.podOf(from), plane, core, parallel), s.coreLink(s.podOf(to), plane, core, parallel) + down, b, last}
}

// layer is where a switch stands.
type layer uint8

const (
	edge layer = iota
	aggregation
	core
)

var layerNames = [...]string{edge: "edge", aggregation: "aggregation", core: "core"}

func (l layer) String() string { return layerNames[l] }

// site is a switch: an edge switch by its number through all pods, an aggregation switch by pod and
// plane, a core switch by plane and number.
type site struct {
	layer
	a, b int
}

// name is the name of the box at a switch, as its neighbours know it.
func (w site) name() string { return fmt.Sprintf("%v-%d-%d", w.layer, w.a, w.b) }

// through returns the neighbours by which a switch reaches a host at equal cost: none if the host
// is its own.
func (s Shape) through(w site, host int) (next []site) {
	e, pod := s.edgeOf(host), s.podOf(host)
	switch w.layer {
	case edge:
		if w.a == e {
			return nil
		}
		for plane := range s.Aggregations {
			next = append(next, site{aggregation, w.a / s.Edges, plane})
		}
	case aggregation:
		if w.a == pod {
			return []site{{edge, e, 0}}
		}
		for c := range s.Cores {
			next = append(next, site{core, w.b, c})
		}
	case core:
		next = append(next, site{aggregation, pod, w.a})
	}
	return next
}

// between returns the link from one switch to a neighbour, and the link back. choice decides
// between parallel links.
func (s Shape) between(w, next site, choice uint64) (there, back int32) {
	lower, upper, ascends := w, next, w.layer < next.layer
	if !ascends {
		lower, upper = next, w
	}
	var link int32
	if upper.layer == aggregation {
		link = s.edgeLink(lower.a, upper.b)
	} else {
		link = s.coreLink(lower.a, lower.b, upper.b, int(choice%uint64(s.Parallel)))
	}
	if ascends {
		return link, link + down
	}
	return link + down, link
}
