package view

import (
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/dataplane"
)

// Ports returns all that the API shows of ports.
func Ports(all []dataplane.PortInfo) api.Ports {
	list := api.Ports{Ports: []api.Port{}}
	for _, p := range all {
		list.Ports = append(list.Ports, api.Port{
			Name: p.Name, State: string(p.State), Reason: p.Reason, IfIndex: p.IfIndex, MAC: portMAC(p), MTU: p.MTU,
			Attach: p.Attach, Fallback: p.Fallback, Mode: p.Mode, MultiBuffer: p.MultiBuffer, Queues: p.Queues, NoKernel: p.NoFanOut, TagsTaken: tagsTakenBy(&p),
			RxFrames: p.RxFrames, RxBytes: p.RxBytes, TxFrames: p.TxFrames, TxBytes: p.TxBytes, TxLost: p.TxLost,
			Marked: p.Marked, QueueFull: p.QueueFull, RepairsPutOff: p.RepairsPutOff,
			Kernel: Counters(p.Kernel),
		})
	}
	return list
}

// portMAC returns "" for a port without an interface.
func portMAC(p dataplane.PortInfo) string {
	if p.IfIndex == 0 {
		return ""
	}
	return macText(p.MAC[:])
}
