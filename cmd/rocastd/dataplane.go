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
	s, err := afxdp.Open(switchConfig(&c))
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// switchConfig is what a config says of the data path.
func switchConfig(c *config.Config) afxdp.Config {
	var egress []dataplane.Egress
	for _, e := range config.PortEgress(c.Egress, c.Ports) {
		egress = append(egress, e.Bounds())
	}
	return afxdp.Config{
		Ports: c.Ports, Mode: afxdp.Mode(c.Mode), Busy: c.Busy, Workers: c.Workers, FanOut: c.Engine == "auto",
		RepairMemory: c.RepairMemory, Egress: egress,
	}
}
