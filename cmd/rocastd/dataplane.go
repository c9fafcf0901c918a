package main

import (
	"github.com/rocast/rocast/ctl"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/dataplane"
	"github.com/rocast/rocast/dataplane/afxdp"
)

// openSwitch attaches the data path to the ports of the config; globs in the config have already
// been replaced by names. The returned function detaches the data path. Call it only after Run has
// returned.
func openSwitch(c config.Config) (ctl.Switch, func() error, error) {
	var egress []dataplane.Egress
	for _, e := range config.PortEgress(c.Egress, c.Ports) {
		egress = append(egress, e.Bounds())
	}
	s, err := afxdp.Open(afxdp.Config{
		Ports: c.Ports, Mode: afxdp.Mode(c.Mode), Busy: c.Busy, Workers: c.Workers, FanOut: c.Engine == "auto",
		RepairMemory: c.RepairMemory, Egress: egress,
	})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
