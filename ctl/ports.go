package ctl

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/rocast/rocast/dataplane"
)

// lookAgainEvery is how often the ports are looked at when no link changes: a number of queues changes without a word, and
// so do the counts the data path warns about.
const lookAgainEvery = time.Second

// followPorts opens and closes ports as their interfaces come and go, until ctx is done.
func (c *Controller) followPorts(ctx context.Context) error {
	ticker := time.NewTicker(lookAgainEvery)
	defer ticker.Stop()
	for {
		c.refreshPorts()
		select {
		case <-ctx.Done():
			return nil
		case <-c.NextHops.Links():
		case <-ticker.C:
		}
	}
}

// refreshPorts looks at the ports, and plans the groups anew whose members are reached differently by what is found.
func (c *Controller) refreshPorts() {
	ports, warnings := c.Switch.Refresh() // may take a while: nothing is locked
	for _, sentence := range warnings {
		c.Log.Warn(sentence)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.ports
	c.ports = portsByKey(ports)
	if reflect.DeepEqual(was, c.ports) {
		return
	}
	for _, p := range ports {
		c.logPort(portByName(was, p.Name), p)
	}
	// In one go with c.ports: a hop never names a port that is not there.
	c.replanFor(c.NextHops.SetPorts(openPorts(ports)))
}

// portKey is a port's key in Controller.ports: its ifindex, or what is none. A port that is gone keeps its name, which
// group files may write.
func portKey(p dataplane.PortInfo) int {
	if p.State.Open() {
		return p.IfIndex
	}
	return -1 - int(p.ID)
}

func portsByKey(ports []dataplane.PortInfo) map[int]dataplane.PortInfo {
	byKey := map[int]dataplane.PortInfo{}
	for _, p := range ports {
		p.PortCounters, p.Kernel = dataplane.PortCounters{}, nil
		byKey[portKey(p)] = p
	}
	return byKey
}

func openPorts(ports []dataplane.PortInfo) (ifIndexes []int) {
	for _, p := range ports {
		if p.State.Open() {
			ifIndexes = append(ifIndexes, p.IfIndex)
		}
	}
	return ifIndexes
}

func portByName(ports map[int]dataplane.PortInfo, name string) (found dataplane.PortInfo) {
	for _, p := range ports {
		if p.Name == name {
			found = p
		}
	}
	return found
}

// logPort tells what became of a port.
func (c *Controller) logPort(was, is dataplane.PortInfo) {
	switch {
	case !is.State.Open():
		if is.State != was.State || is.Reason != was.Reason {
			c.Log.Warn("port is "+string(is.State)+", and taken when that is mended", zap.String("port", is.Name), zap.String("reason", is.Reason))
		}
	case is.Opened != was.Opened:
		c.Log.Info("port", portFields(is)...)
	case is.State == dataplane.PortDown && was.State == dataplane.PortUp:
		c.Log.Warn("port is down", zap.String("port", is.Name))
	case is.State == dataplane.PortUp && was.State == dataplane.PortDown:
		c.Log.Info("port is up", zap.String("port", is.Name))
	}
}

func portFields(p dataplane.PortInfo) []zap.Field {
	return []zap.Field{
		zap.String("port", p.Name), zap.String("state", string(p.State)), zap.Int("ifindex", p.IfIndex),
		zap.String("attach", p.Attach), zap.String("mode", p.Mode), zap.Int("queues", p.Queues), zap.Int("mtu", p.MTU),
	}
}

// LogPorts tells what the ports are at the start.
func (c *Controller) LogPorts() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.ports)) {
		c.logPort(dataplane.PortInfo{}, c.ports[key])
	}
}
