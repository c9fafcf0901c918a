// Package ports is control's view of the interfaces that carry groups: which of them are open, and
// which changes are logged.
//
// The data path opens and closes the ports; this package only compares their states.
package ports

import (
	"maps"
	"reflect"
	"slices"

	"go.uber.org/zap"

	"github.com/rocast/rocast/dataplane"
)

// Set holds the configured ports by name. A port stays in the set when its interface disappears.
type Set map[string]dataplane.PortInfo

// New returns the set of the data path's ports. It leaves the counters out, and what is above a
// port, so that two sets are equal if no port has changed its state.
func New(list []dataplane.PortInfo) Set {
	s := Set{}
	for _, p := range list {
		p.PortCounters, p.Kernel, p.UnderVLAN = dataplane.PortCounters{}, nil, ""
		s[p.Name] = p
	}
	return s
}

// Equal reports whether nothing has changed.
func (s Set) Equal(other Set) bool {
	return maps.EqualFunc(s, other, func(a, b dataplane.PortInfo) bool { return reflect.DeepEqual(a, b) })
}

// Open returns the ifindexes of the open ports.
func (s Set) Open() (ifIndexes []int) {
	for _, p := range s {
		if p.State.Open() {
			ifIndexes = append(ifIndexes, p.IfIndex)
		}
	}
	slices.Sort(ifIndexes)
	return ifIndexes
}

// ByIfIndex returns the open port on an interface. The key is the ifindex because an interface may
// be renamed, or have several names.
func (s Set) ByIfIndex(ifIndex int) (p dataplane.PortInfo, found bool) {
	for _, p := range s {
		if p.State.Open() && p.IfIndex == ifIndex {
			return p, true
		}
	}
	return dataplane.PortInfo{}, false
}

// Renumbered returns the interfaces that are open as another port than in was: names of ports were
// exchanged.
func (s Set) Renumbered(was Set) (ifIndexes []int) {
	for _, p := range s {
		if before, found := was.ByIfIndex(p.IfIndex); found && p.State.Open() && before.ID != p.ID {
			ifIndexes = append(ifIndexes, p.IfIndex)
		}
	}
	return ifIndexes
}

// LogChanges logs each port whose state differs from that in was. At the start was is empty.
func (s Set) LogChanges(log *zap.Logger, was Set) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		logChange(log.With(zap.String("port", name)), was[name], s[name])
	}
}

func logChange(log *zap.Logger, was, is dataplane.PortInfo) {
	switch {
	case !is.State.Open():
		if is.State != was.State || is.Reason != was.Reason {
			log.Warn("port unavailable; opens when the interface can be used",
				zap.String("state", string(is.State)), zap.String("reason", is.Reason))
		}
	case is.Opened != was.Opened:
		log.Info("port opened", zap.String("state", string(is.State)), zap.Int("ifindex", is.IfIndex),
			zap.String("attach", is.Attach), zap.String("mode", is.Mode), zap.Int("queues", is.Queues), zap.Int("mtu", is.MTU))
	case is.State == dataplane.PortDown && was.State == dataplane.PortUp:
		log.Warn("link down")
	case is.State == dataplane.PortUp && was.State == dataplane.PortDown:
		log.Info("link up")
	}
}
