package ctl

import (
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/bounds"
	"github.com/rocast/rocast/dataplane"
)

// PortList describes the ports.
func (c *Controller) PortList() api.Ports { return describePorts(c.Switch.Ports()) }

// describePorts returns all that the API shows of ports.
func describePorts(all []dataplane.PortInfo) api.Ports {
	list := api.Ports{Ports: []api.Port{}}
	for _, p := range all {
		list.Ports = append(list.Ports, api.Port{
			Name: p.Name, State: string(p.State), Reason: p.Reason, IfIndex: p.IfIndex, MAC: portMAC(p), MTU: p.MTU,
			Attach: p.Attach, Fallback: p.Fallback, Mode: p.Mode, MultiBuffer: p.MultiBuffer, Queues: p.Queues, NoKernel: p.NoFanOut, TagsTaken: tagsTakenBy(&p),
			RxFrames: p.RxFrames, RxBytes: p.RxBytes, TxFrames: p.TxFrames, TxBytes: p.TxBytes, TxLost: p.TxLost,
			Marked: p.Marked, QueueFull: p.QueueFull, RepairsPutOff: p.RepairsPutOff,
			Kernel: counters(p.Kernel),
		})
	}
	return list
}

// Stats returns the sums of the counters of all groups, and what is retained for repair.
func (c *Controller) Stats() api.Stats {
	m := c.Switch.RepairMemory()
	return api.Stats{
		Counters: counters(c.Switch.Counters()),
		Retained: api.Retained{Packets: m.Packets, Buffers: m.Buffers, Room: m.Room},
	}
}

// portMAC returns "" for a port without an interface.
func portMAC(p dataplane.PortInfo) string {
	if p.IfIndex == 0 {
		return ""
	}
	return macText(p.MAC[:])
}

// BoundsMet returns how often each bound was met.
func (c *Controller) BoundsMet() map[bounds.Bound]uint64 { return c.Bounds.Counts() }
