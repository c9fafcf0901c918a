package config

import (
	"fmt"
	"path"

	"github.com/rocast/rocast/ctl/yamldoc"
	"github.com/rocast/rocast/dataplane"
)

// Egress bounds the queues of the ports whose names match a pattern. Kmin, Kmax and Limit are in
// bytes, Percent is the probability of a mark at Kmax. Kmax 0: nothing is marked. Limit 0: the
// device decides.
type Egress struct {
	Port              string // a name or a glob
	Kmin, Kmax, Limit int
	Percent           int
}

const (
	// defaultPercent is what hyperscalers published for DCQCN (Li et al., HPCC, SIGCOMM 2019).
	defaultPercent = 20
	// leastLimit holds some frames of path MTU 4096, also in the half that repairs may use.
	leastLimit = 32 << 10
)

func (c *Config) readEgress(v yamldoc.Value) error {
	return v.Each("egress", func(item yamldoc.Value) error {
		e, err := readOneEgress(item)
		c.Egress = append(c.Egress, e)
		return err
	})
}

func readOneEgress(v yamldoc.Value) (Egress, error) {
	var kmin, kmax, limit, percent uint64
	percent = defaultPercent
	e := Egress{}
	err := v.Fields(
		yamldoc.Field{Key: "port", Set: yamldoc.Into(&e.Port, pattern), Needed: "port: NAME or GLOB"},
		yamldoc.Field{Key: "kmin", Set: yamldoc.Into(&kmin, bound)},
		yamldoc.Field{Key: "kmax", Set: yamldoc.Into(&kmax, bound)},
		yamldoc.Field{Key: "percent", Set: yamldoc.Into(&percent, func(v yamldoc.Value) (uint64, error) { return v.Uint(100) })},
		yamldoc.Field{Key: "limit", Set: yamldoc.Into(&limit, bound)},
	)
	if err != nil {
		return e, err
	}
	switch {
	case kmin == 0 && kmax == 0 && limit == 0:
		err = v.Errorf("bounds nothing; add limit: SIZE, or kmin: SIZE and kmax: SIZE")
	case (kmin == 0) != (kmax == 0):
		err = v.Errorf("has only one of kmin and kmax; add the other one")
	case kmin > kmax:
		err = v.Errorf("has kmin %d KiB above kmax %d KiB; write a kmin of at most %d KiB", kmin>>10, kmax>>10, kmax>>10)
	case percent == 0:
		err = v.Errorf("has percent 0; write 1 to 100, or leave out kmin and kmax to mark nothing")
	case limit != 0 && limit < leastLimit:
		err = v.Errorf("has limit %d KiB, which is too little for the longest frames; write %dKiB or more", limit>>10, leastLimit>>10)
	case limit != 0 && limit < kmax:
		err = v.Errorf("has limit %d KiB below kmax %d KiB, so that frames would be lost before all are marked; write a "+
			"limit of %dKiB or more", limit>>10, kmax>>10, kmax>>10)
	}
	e.Kmin, e.Kmax, e.Limit, e.Percent = int(kmin), int(kmax), int(limit), int(percent)
	return e, err
}

// bound reads a size that fits into an int of any CPU.
func bound(v yamldoc.Value) (uint64, error) {
	n, err := v.Size(", or leave the key out")
	if err == nil && n > 1<<30 {
		err = v.Errorf("is above 1GiB; write a smaller size")
	}
	return n, err
}

// PortEgress returns the bounds of each port: those of the first entry that matches its name, or
// none.
func PortEgress(bounds []Egress, ports []string) []Egress {
	all := make([]Egress, len(ports))
	for i, name := range ports {
		for _, e := range bounds {
			if matches(e.Port, name) {
				all[i] = e
				break
			}
		}
	}
	return all
}

// CheckEgress refuses an entry for a port that the config does not have.
func CheckEgress(bounds []Egress, ports []string) error {
	for _, e := range bounds {
		if !matchesAny(e.Port, ports) {
			return fmt.Errorf("egress: no port matches %s; the ports are %q", e.Port, ports)
		}
	}
	return nil
}

// Bounds returns the bounds as the data path has them.
func (e Egress) Bounds() dataplane.Egress {
	return dataplane.Egress{KminBytes: e.Kmin, KmaxBytes: e.Kmax, MarkPercent: e.Percent, LimitBytes: e.Limit}
}

func matchesAny(pattern string, names []string) bool {
	for _, name := range names {
		if matches(pattern, name) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	match, _ := path.Match(pattern, name) // the config refuses patterns that are not valid
	return match || pattern == name
}
